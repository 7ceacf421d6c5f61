//! Every generated kernel compiles without a spill or a remark, and what a plan launches is among them.

#![cfg(feature = "render")]

use kernwright_codegen::generate::{Generated, generate};
use kernwright_codegen::render::render;
use kernwright_compile::{Resources, Source, compile_all, testing};
use kernwright_plan::{arch, dtype};
use kernwright_plan::kernels::of_plan;
use kernwright_plan::launch::Lowered;
use kernwright_plan::passes::{SWITCHES, forward::Head};
use kernwright_plan::plan::Plan;
use kernwright_plan::shape::{Shape, presets};
use kernwright_plan::spec::KernelSpec;
use kernwright_plan::{Options, forward_step, kernels, train_step};
use std::collections::{HashMap, HashSet};

const COMPILED: [&str; 2] = ["tiny", "seed-102m"];

fn shape(name: &str) -> Shape {
    presets::find(name).unwrap_or_else(|| panic!("no preset `{name}`")).shape()
}

/// The kernels of the compiled presets for every GPU, each text once.
fn generated() -> Vec<Generated> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for name in COMPILED {
        let of_preset = generate(&shape(name), arch::ALL).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        for arch in arch::ALL {
            let has_any = of_preset.iter().any(|one| one.arch.name == arch.name);
            assert!(has_any, "{name} has no kernel for {}", arch.name);
        }
        // Equal texts for one GPU are compiled once.
        all.extend(
            of_preset.into_iter().filter(|one| seen.insert((one.arch.name.clone(), one.text.clone()))),
        );
    }
    all
}

#[test]
fn every_kernel_compiles_for_every_gpu_without_spills_or_remarks() {
    let all = generated();
    let what = format!("compiling {} kernels of {}", all.len(), COMPILED.join(" and "));
    let Some(compiler) = testing::compiler_or_skip(std::env::vars_os(), &what) else { return };
    let sources: Vec<Source<'_>> = all
        .iter()
        .map(|one| Source { name: &one.kernel, text: &one.text, arch: &one.arch.name, options: &[] })
        .collect();
    let mut faults = Vec::new();
    let mut seconds = 0.0;
    for (one, report) in all.iter().zip(compile_all(&compiler, None, &sources, 0, &|_| {})) {
        let mut fault = |what: String| faults.push(format!("{} for {}: {what}", one.kernel, one.arch.name));
        match (&report.result, report.resources.as_slice()) {
            (Err(error), _) => fault(error.to_string()),
            (Ok(_), [entry]) => {
                if entry.entry != one.kernel {
                    fault(format!("its entry is called `{}`", entry.entry));
                }
                if entry.spills() {
                    let Resources { registers, spill_stores_bytes, spill_loads_bytes, .. } = entry;
                    fault(format!(
                        "spills {spill_stores_bytes} bytes out and {spill_loads_bytes} in at {registers} registers"
                    ));
                }
                // All shared memory is dynamic, or the limits the plan counts with are wrong.
                if entry.static_shared_bytes > 0 {
                    fault(format!("has {} bytes of static shared memory", entry.static_shared_bytes));
                }
                if one.spec.shared_memory > one.arch.shared_memory {
                    fault(format!("asks for {} bytes of shared memory", one.spec.shared_memory));
                }
            }
            (Ok(_), entries) => fault(format!("has {} entries, 1 is allowed", entries.len())),
        }
        seconds += report.seconds;
        report.notes.iter().for_each(|note| fault(note.clone()));
    }
    eprintln!("{} kernels, {seconds:.1} s", all.len());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Options of every kind: each switch, without clipping, another chunk, each precision.
fn options() -> Vec<Options> {
    let plain = Options::default();
    let mut all = vec![plain.clone(), Options { clip: None, ..plain.clone() }];
    all.push(Options { head_chunk: 77, ..plain.clone() });
    all.extend(
        SWITCHES.iter().map(|(name, _)| Options { without: vec![(*name).to_owned()], ..plain.clone() }),
    );
    let precisions = dtype::ALL.iter().filter(|row| row.is_precision);
    all.extend(precisions.map(|row| Options { precision: Some(row.dtype), ..plain.clone() }));
    all
}

/// Plans of odd sizes, and of the greatest length, with options of every kind.
fn plans(shape: &Shape) -> Vec<Plan> {
    let mut plans = Vec::new();
    for options in &options() {
        for (batch, length) in [(1, 1), (3, 37), (5, 129), (2, shape.context)] {
            plans.push(train_step(shape, options, batch, length));
            for head in [Head::Loss, Head::Logits(batch), Head::Logits(batch * length)] {
                plans.push(forward_step(shape, options, batch, length, head));
            }
        }
    }
    plans
}

/// Ops whose kernels are still to come.
const WITHOUT_KERNEL: [&str; 4] = ["attention", "attention_backward", "head", "head_loss"];

#[test]
fn every_step_of_every_preset_becomes_launches() {
    for preset in presets::ALL {
        let shape = Shape { layers: 2, ..preset.shape() };
        for plan in plans(&shape) {
            for (index, step) in plan.steps.iter().enumerate() {
                for arch in arch::ALL {
                    let lowered = step.op.lower(&plan.io(step), arch);
                    let place =
                        || format!("{} for {}, step {index}:\n{}", preset.name, arch.name, plan.dump());
                    match lowered {
                        Lowered::Launches(launches) => assert!(!launches.is_empty(), "{}", place()),
                        Lowered::NoKernel(why) => {
                            assert!(WITHOUT_KERNEL.contains(&step.op.name()), "{why}: {}", place());
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_step_of_any_size_launches_only_kernels_of_the_closed_set() {
    for preset in presets::ALL {
        // Layers are alike, and two of them are enough.
        let shape = Shape { layers: 2, ..preset.shape() };
        let plans = plans(&shape);
        for arch in arch::ALL {
            let closed: HashSet<String> = kernels(&shape, arch).iter().map(KernelSpec::name).collect();
            assert!(!closed.is_empty(), "{} has no kernel for {}", preset.name, arch.name);
            for plan in &plans {
                for spec in of_plan(plan, arch) {
                    let (name, rows) = (spec.name(), plan.find("tokens").map(|id| plan.buffer(id).len()));
                    let place = format!("{} for {}, {rows:?} tokens", preset.name, arch.name);
                    assert!(closed.contains(&name), "{place}: `{name}` is not among its kernels");
                }
            }
        }
    }
}

#[test]
fn kernels_of_one_name_have_one_text() {
    for arch in arch::ALL {
        let mut named: HashMap<String, Vec<KernelSpec>> = HashMap::new();
        for preset in presets::ALL {
            let shape = Shape { layers: 2, ..preset.shape() };
            for spec in plans(&shape).iter().flat_map(|plan| of_plan(plan, arch)) {
                let specs = named.entry(spec.name()).or_default();
                if !specs.contains(&spec) {
                    specs.push(spec);
                }
            }
        }
        assert!(!named.is_empty(), "no kernel for {}", arch.name);
        for (name, specs) in named {
            let texts: HashSet<String> = specs
                .iter()
                .map(|spec| render(spec, arch).unwrap_or_else(|error| panic!("{name}: {error:?}")))
                .collect();
            assert_eq!(texts.len(), 1, "`{name}` for {} stands for: {specs:#?}", arch.name);
        }
    }
}
