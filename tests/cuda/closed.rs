//! What plans of any size and options launch: kernels of the closed set of their Shape, one text for each name.

use super::attention::heads_and_orders;
use kernwright_codegen::render::render;
use kernwright_plan::kernels::of_plan;
use kernwright_plan::launch::Lowered;
use kernwright_plan::options::AttentionPath;
use kernwright_plan::passes::{ABLATIONS, SWITCHES, forward::Head};
use kernwright_plan::plan::Plan;
use kernwright_plan::shape::{Shape, presets};
use kernwright_plan::spec::KernelSpec;
use kernwright_plan::{Options, arch, dtype, forward_step, kernels, train_step};
use std::collections::{HashMap, HashSet};

/// Options of every kind: each switch, without clipping, another chunk, each precision with each way of attention.
fn options() -> Vec<Options> {
    let plain = Options::default();
    let mut all = vec![plain.clone(), Options { clip: None, ..plain.clone() }];
    all.push(Options { head_chunk: Some(77), ..plain.clone() });
    all.extend(
        SWITCHES.iter().map(|(name, _)| Options { without: vec![(*name).to_owned()], ..plain.clone() }),
    );
    all.extend(ABLATIONS.iter().map(|(name, _)| Options { with: vec![(*name).to_owned()], ..plain.clone() }));
    let precisions = dtype::ALL.iter().filter(|row| row.is_precision);
    for plain in precisions.map(|row| Options { precision: Some(row.dtype), ..plain.clone() }) {
        all.push(Options { attention: AttentionPath::Split, ..plain.clone() });
        all.extend(heads_and_orders().into_iter().map(|one| Options { precision: plain.precision, ..one }));
        all.push(plain);
    }
    all
}

/// Plans of odd sizes, and of the greatest length, with options of every kind.
fn plans(shape: &Shape) -> Vec<Plan> {
    let mut plans = Vec::new();
    for options in &options() {
        for (batch, length) in [(1, 1), (5, 137), (2, shape.context)] {
            plans.push(train_step(shape, options, batch, length));
            for head in [Head::Loss, Head::Logits(batch), Head::Logits(batch * length)] {
                plans.push(forward_step(shape, options, batch, length, head));
            }
        }
    }
    plans
}

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
                        Lowered::NoKernel(why) => panic!("{why}: {}", place()),
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
            // Each twice: a text is the same each time.
            let texts: HashSet<String> = specs
                .iter()
                .chain(&specs)
                .map(|spec| render(spec, arch).unwrap_or_else(|error| panic!("{name}: {error:?}")))
                .collect();
            assert_eq!(texts.len(), 1, "`{name}` for {} stands for: {specs:#?}", arch.name);
        }
    }
}
