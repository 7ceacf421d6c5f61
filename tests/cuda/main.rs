//! Every generated kernel compiles without a spill or a remark, and what a plan launches is among them.

#![cfg(feature = "render")]

mod attention;
mod closed;
mod compile;
mod tables;

use compile::compile;
use kernwright_codegen::generate::{Generated, generate};
use kernwright_codegen::render::render;
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::kernels::of_plan;
use kernwright_plan::launch::Lowered;
use kernwright_plan::ops::linear::Linear;
use kernwright_plan::ops::{self, Op};
use kernwright_plan::plan::Step;
use kernwright_plan::shape::{Shape, presets};
use kernwright_plan::spec::KernelSpec;
use std::collections::{HashMap, HashSet};

/// The presets that are compiled for every GPU by default; the others on request.
const COMPILED: [&str; 2] = ["tiny", "seed-102m"];

/// Presets that are compiled for some GPUs by default: with much and little shared memory, and of the newest kind.
const COMPILED_FOR_SOME: ([&str; 2], [&str; 3]) =
    (["gpt2-124m", "gemma-2-2b"], ["sm_86", "sm_90a", "sm_100a"]);

/// The GPU that kernels are tuned on.
const TUNED: &str = "sm_90a";

fn shape(name: &str) -> Shape {
    presets::find(name).unwrap_or_else(|| panic!("no preset `{name}`")).shape()
}

/// One text to compile.
struct Text {
    spec: KernelSpec,
    arch: Arch,
    text: String,
}

/// The kernels of these presets for these GPUs, each text once for each.
fn of_presets(names: &[&str], arches: &[Arch]) -> Vec<Text> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for name in names {
        let of_preset = generate(&shape(name), arches).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        for arch in arches {
            let has_any = of_preset.iter().any(|one| one.arch.name == arch.name);
            assert!(has_any, "{name} has no kernel for {}", arch.name);
        }
        let new = of_preset.into_iter().filter(|one| seen.insert((one.arch.name.clone(), one.text.clone())));
        all.extend(new.map(|Generated { spec, arch, text, .. }| Text { spec, arch, text }));
    }
    all
}

/// Of the GPUs that get the same text, the oldest, the newest, and the one that kernels are tuned on: what the compiler makes of
/// a text differs little between them, and an ignored test compiles each for all.
fn representative(all: Vec<Text>) -> Vec<Text> {
    let mut last: HashMap<String, usize> = HashMap::new();
    for (index, one) in all.iter().enumerate() {
        last.insert(one.text.clone(), index);
    }
    let mut seen = HashSet::new();
    let kept = all.into_iter().enumerate().filter(|(index, one)| {
        let is_first = seen.insert(one.text.clone());
        is_first || last[&one.text] == *index || one.arch.name == TUNED
    });
    kept.map(|(_, one)| one).collect()
}

/// Is it a product with a gelu, which has narrow types alone, and no kernel of ours in any?
fn takes_in_gelu(step: &Step) -> bool {
    match step.op {
        Op::Linear(Linear { gelu }) => gelu,
        Op::LinearBackward(_) => step.reads.iter().any(|read| read.slot == "gelu_input"),
        _ => false,
    }
}

/// The kernels of every op's cases.
fn of_cases(arch: &Arch) -> Vec<Text> {
    let mut specs = Vec::new();
    for case in ops::ALL.iter().flat_map(|row| (row.cases)()) {
        for step in &case.plan.steps {
            let lowered = step.op.lower(&case.plan.io(step), arch);
            if let Lowered::NoKernel(why) = lowered {
                assert!(takes_in_gelu(step), "{}, {}: {why}", step.op.name(), case.label);
            }
        }
        specs.extend(of_plan(&case.plan, arch));
    }
    specs.sort_by_key(KernelSpec::name);
    specs.dedup_by_key(|spec| spec.name());
    texts(specs, arch)
}

fn texts(specs: Vec<KernelSpec>, arch: &Arch) -> Vec<Text> {
    let text = |spec: KernelSpec| {
        let text = render(&spec, arch).unwrap_or_else(|error| panic!("{error:?}"));
        Text { spec, arch: arch.clone(), text }
    };
    specs.into_iter().map(text).collect()
}

#[test]
fn every_kernel_compiles_without_spills_or_remarks() {
    let (names, arches) = COMPILED_FOR_SOME;
    let arches = arches.map(|name| arch::find(name).expect("it is a row").clone());
    let mut all = of_presets(&COMPILED, arch::ALL);
    all.extend(of_presets(&names, &arches));
    let all = representative(all);
    for name in [&*arch::ALL[0].name, TUNED, &*arch::ALL[arch::ALL.len() - 1].name] {
        assert!(all.iter().any(|one| one.arch.name == name), "nothing is compiled for {name}");
    }
    compile(&format!("{}, {}", COMPILED.join(", "), names.join(", ")), &all);
}

#[test]
#[ignore = "some minutes"]
fn every_kernel_of_every_preset_compiles_for_every_gpu() {
    let names: Vec<&str> = presets::ALL.iter().map(|preset| preset.name).collect();
    compile("all presets", &of_presets(&names, arch::ALL));
}

#[test]
fn every_kernel_of_every_case_compiles() {
    compile("all cases", &of_cases(&arch::ALL[0]));
}

#[test]
#[ignore = "some minutes"]
fn every_kernel_of_every_case_compiles_for_every_gpu() {
    compile("all cases", &arch::ALL.iter().flat_map(of_cases).collect::<Vec<_>>());
}

/// On two idle cores; a busy machine fails it, which is why it waits to be asked for.
#[test]
#[ignore = "a timing"]
fn the_102m_set_compiles_cold_for_one_gpu_in_20_seconds() {
    let mut set = of_presets(&["seed-102m"], arch::ALL);
    set.retain(|one| one.arch.name == "sm_90a");
    if let Some(seconds) = compile("seed-102m for sm_90a", &set) {
        assert!(seconds < 20.0, "{seconds:.1} s");
    }
}
