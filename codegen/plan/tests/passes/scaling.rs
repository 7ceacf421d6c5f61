//! Loss scaling: what overflows updates nothing and halves the scale; everything else is as without it.

use crate::{options, small, small::Batch, small::Loaded};
use kernwright_plan::Options;
use kernwright_plan::buffer::Role;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, MicroStep, Values};
use kernwright_plan::options::LossScaling;
use kernwright_plan::plan::Phase;
use kernwright_plan::reference::Rounding;
use kernwright_plan::train_step;

const STEP: [Phase; 3] = [Phase::Forward, Phase::Backward, Phase::Update];

fn scaled(initial: f32, interval: i32) -> Options {
    Options { loss_scaling: LossScaling { initial, interval }, ..options(Dtype::Fp16) }
}

fn loaded(shape: usize, options: &Options, rounding: Rounding) -> Loaded<f64> {
    let (name, shape) = small::shapes().nth(shape).expect("a shape");
    let plan = train_step(&shape, options, 2, 6);
    let mut loaded = Loaded::new(name, &shape, plan, rounding);
    // Targets that a causal model can tell from what it saw.
    let tokens: Vec<i32> = (0..12).map(|i| (i * 5 + i / 6) % shape.vocab as i32).collect();
    let targets = tokens.iter().map(|token| (token * 3 + 1) % shape.vocab as i32).collect();
    loaded.feed(&Batch { tokens, targets }, 12);
    loaded.put("learning_rate", Values::Float(&[0.01]));
    loaded.run(&[Phase::Prepare], MicroStep::First);
    loaded
}

fn step(loaded: &mut Loaded<f64>, number: i32) {
    loaded.put("step", Values::Int(&[number]));
    loaded.run(&STEP, MicroStep::First);
}

/// Everything that an update changes.
fn trained(loaded: &Loaded<f64>) -> Vec<Vec<f64>> {
    let plan = loaded.executor.plan(loaded.plan).clone();
    let is_trained = |role| matches!(role, Role::Parameter | Role::Working | Role::Moment);
    let names = plan.buffers.iter().filter(|buffer| is_trained(buffer.role)).map(|buffer| &buffer.name);
    names.map(|name| loaded.get_padded(name)).collect()
}

#[test]
fn the_scale_is_part_of_a_plan_whose_type_needs_it_and_of_no_other() {
    let shape = small::shapes().next().expect("a shape").1;
    for precision in [Dtype::Fp32, Dtype::Bf16, Dtype::Fp16] {
        let plan = train_step(&shape, &options(precision), 1, 3);
        let state: Vec<&str> = plan.state_buffers().map(|id| plan.buffer(id).name.as_str()).collect();
        let wanted: &[&str] = match precision {
            Dtype::Fp16 => &["halted", "loss_scale", "good_steps", "skipped_steps"],
            _ => &["halted"],
        };
        assert_eq!(state, wanted, "{}", precision.name());
        for id in plan.state_buffers() {
            let role = plan.buffer(id).role;
            assert!(role.is_persistent() && role.is_shared(), "it outlives phases and plans");
        }
    }
}

/// Without rounding nothing overflows, and powers of two cancel exactly.
#[test]
fn a_scale_changes_no_bit_of_what_is_computed_exactly() {
    for shape in 0..small::shapes().count() {
        let [one, other] = [1.0, 1024.0].map(|initial| {
            let mut loaded = loaded(shape, &scaled(initial, 1000), Rounding::None);
            step(&mut loaded, 1);
            step(&mut loaded, 2);
            (loaded.get("loss"), loaded.get("gradient_norm"), trained(&loaded))
        });
        assert!(one == other, "{}", small::shapes().nth(shape).expect("a shape").0);
    }
}

#[test]
fn the_scale_grows_after_enough_updates_in_a_row() {
    let mut loaded = loaded(0, &scaled(4.0, 3), Rounding::None);
    let mut scales = Vec::new();
    for number in 1..=7 {
        step(&mut loaded, number);
        scales.push(loaded.get("loss_scale")[0]);
    }
    assert_eq!(scales, [4.0, 4.0, 8.0, 8.0, 8.0, 16.0, 16.0]);
}

#[test]
fn a_huge_scale_overflows_and_training_goes_on_below_it() {
    let initial = 2.0_f32.powi(30);
    for shape in [0, 3] {
        let mut loaded = loaded(shape, &scaled(initial, 50), Rounding::Follow(Dtype::Fp16));
        let begin = trained(&loaded);
        let (mut losses, mut number) = (Vec::new(), 0);
        while loaded.get("loss_scale") == [f64::from(initial)] || loaded.get("gradient_norm.update") == [0.0]
        {
            number += 1;
            assert!(number < 31, "the scale is 1 by then");
            step(&mut loaded, number);
            let skipped = loaded.get("gradient_norm.update") == [0.0];
            assert_eq!(trained(&loaded) == begin, skipped, "a step that overflows updates nothing");
            losses.push(loaded.get("loss")[0]);
        }
        let skipped = f64::from(number - 1);
        assert!(skipped >= 1.0, "the scale is to overflow");
        assert_eq!(loaded.get("skipped_steps"), [skipped]);
        assert_eq!(loaded.get("loss_scale"), [f64::from(initial) / skipped.exp2()]);
        assert!(losses.iter().all(|loss| *loss == losses[0]), "the reported loss is not scaled: {losses:?}");
        // The first update is number 1, whatever was skipped before.
        assert_eq!(loaded.get("gradient_norm.update"), [1.0]);
        for number in number + 1..number + 60 {
            step(&mut loaded, number);
            losses.push(loaded.get("loss")[0]);
        }
        assert_eq!(loaded.get("halted"), [0.0]);
        let last = losses[losses.len() - 1];
        assert!(last < 0.3 * losses[0], "loss {} to {last}", losses[0]);
    }
}

#[test]
fn at_scale_1_there_is_nothing_left_to_lower() {
    let mut loaded = loaded(0, &scaled(2.0, 50), Rounding::None);
    for (number, scale, halted) in [(1, 1.0, 0.0), (2, 1.0, 2.0), (3, 1.0, 2.0)] {
        loaded.put("step", Values::Int(&[number]));
        loaded.run(&STEP[..2], MicroStep::First);
        loaded.put("loss", Values::Float(&[f32::NAN]));
        loaded.run(&STEP[2..], MicroStep::First);
        assert_eq!((loaded.get("loss_scale")[0], loaded.get("halted")[0]), (scale, halted), "step {number}");
    }
    assert_eq!(loaded.get("skipped_steps"), [1.0]);
}
