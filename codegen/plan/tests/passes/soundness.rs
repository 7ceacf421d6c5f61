//! Plans are sound, placed tightly, and lower at any size.

use crate::{options, small, small::Batch, small::Loaded};
use kernwright_plan::Options;
use kernwright_plan::arch;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::Executor;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::executor::Values;
use kernwright_plan::forward_step;
use kernwright_plan::launch::Launch;
use kernwright_plan::launch::Lowered;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::passes::memory;
use kernwright_plan::plan::Phase;
use kernwright_plan::plan::Plan;
use kernwright_plan::reference::Rounding;
use kernwright_plan::shape::presets;
use kernwright_plan::train_step;
use std::collections::HashSet;

/// Planned peak of the transient buffers over what no placement can go below.
const PEAK_OVER_FLOOR: f64 = 1.25;

/// Checks a plan and returns its transient peak over the floor.
fn check_plan(name: &str, plan: &Plan) -> f64 {
    plan.check().unwrap_or_else(|error| panic!("{name}: {error}"));
    memory::check(plan).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut names = HashSet::new();
    for buffer in &plan.buffers {
        assert!(names.insert(&buffer.name), "{name}: two buffers are called `{}`", buffer.name);
    }
    let (peak, floor) = (plan.arena_bytes - plan.persistent_bytes, memory::transient_floor(plan));
    let ratio = peak as f64 / floor as f64;
    assert!(peak >= floor, "{name}: a peak of {peak} bytes is below the floor of {floor}");
    assert!(ratio <= PEAK_OVER_FLOOR, "{name}: a peak of {peak} bytes is {ratio:.3} of the floor, {floor}");
    ratio
}

#[test]
fn plans_of_every_preset_are_sound_and_placed_tightly() {
    let presets = presets::ALL.iter().map(|preset| (preset.name, preset.shape()));
    for (name, shape) in presets.chain(small::shapes()) {
        for precision in [Dtype::Fp32, Dtype::Bf16] {
            for (batch, length) in [(1, 1), (2, 7), (8, shape.context.min(1024))] {
                let name = format!("{name}, {}, {batch} x {length}", precision.name());
                let options = options(precision);
                let ratio = check_plan(&name, &train_step(&shape, &options, batch, length));
                eprintln!("{name}: peak {ratio:.3} of the floor");
                check_plan(&name, &forward_step(&shape, &options, batch, length, Head::Loss));
                check_plan(&name, &forward_step(&shape, &options, batch, length, Head::Logits(3)));
            }
        }
    }
}

/// What lies behind the limits has no kernel, and says so; a plan allocates nothing, so it may be as large as it likes.
#[test]
fn a_batch_of_any_size_lowers_without_a_panic() {
    let most = i32::MAX as usize;
    for (preset, batch, length) in [
        ("llama-1b", most / 1024, 1024),
        ("llama-1b", most / 2048, 2048),
        ("gpt2-124m", most / 1000, 1000),
        ("gpt2-124m", most, 1),
        ("gpt2-124m", most + 1, 1),
    ] {
        let name = format!("{preset}, {batch} x {length}");
        let shape = presets::find(preset).unwrap_or_else(|| panic!("there is no {preset}")).shape();
        let plan = train_step(&shape, &Options::default(), batch, length);
        let mut too_large = HashSet::new();
        for (step, arch) in plan.steps.iter().flat_map(|step| arch::ALL.iter().map(move |arch| (step, arch)))
        {
            match step.op.lower(&plan.io(step), arch) {
                Lowered::NoKernel(why) if why.contains("make the batch smaller") => {
                    too_large.insert(step.op.name());
                }
                Lowered::NoKernel(_) => {}
                Lowered::Launches(launches) => {
                    for launch in launches {
                        let Launch::Kernel { grid: [x, y, z], spec, .. } = launch else { continue };
                        let fits = x <= i32::MAX as u32 && y <= 65_535 && z <= 65_535;
                        assert!(fits, "{name}: {} has a grid of {x} x {y} x {z}", spec.name());
                    }
                }
            }
        }
        assert_eq!(too_large.contains("embedding"), batch * length > most, "{name}: {too_large:?}");
        assert!(!too_large.is_empty(), "{name}: some step is too large");
    }
}

#[test]
fn plans_of_other_sizes_share_weights_and_nothing_else() {
    for (name, shape) in small::shapes() {
        let options = options(Dtype::Fp32);
        let mut train = Loaded::<f64>::new(name, &shape, train_step(&shape, &options, 2, 7), Rounding::None);
        let data = Batch::new(&shape, 14);
        train.feed(&data, data.counted());
        let plan = forward_step(&shape, &options, 1, 3, Head::Logits(2));
        let mut alone = Loaded::<f64>::new(name, &shape, plan.clone(), Rounding::None);
        let mut both = train;
        let of_training = both.plan;
        both.plan = both.executor.load(plan).unwrap_or_else(|error| panic!("{name}: {error}"));
        for loaded in [&mut alone, &mut both] {
            loaded.put("tokens", Values::Int(&[1, 0, 3]));
            loaded.put("positions", Values::Int(&[2, 0]));
            loaded.run(&[Phase::Prepare, Phase::Forward], MicroStep::First);
        }
        assert!(alone.get("asked_logits") == both.get("asked_logits"), "{name}");
        both.plan = of_training;
        assert_eq!(both.get("tokens").len(), 14, "{name}: the other plan's tokens are as they were");
    }
}
