//! Gradients of a narrow type: which they are, and that each micro-batch rounds them once.

use crate::{options, small, small::Batch, small::Loaded};
use kernwright_plan::Options;
use kernwright_plan::buffer::Role;
use kernwright_plan::dtype::{self, Dtype};
use kernwright_plan::executor::{Executor, MicroStep};
use kernwright_plan::options::LossScaling;
use kernwright_plan::plan::{Phase, Plan};
use kernwright_plan::reference::Rounding;
use kernwright_plan::shape::presets;
use kernwright_plan::train_step;

/// With a scale under which fp16 does not overflow.
fn wide(precision: Dtype) -> Options {
    Options { loss_scaling: LossScaling { initial: 64.0, interval: 1000 }, ..options(precision) }
}

fn narrow(precision: Dtype) -> Options {
    Options { gradient: precision, ..wide(precision) }
}

/// The gradients of a plan that are narrow.
fn names(plan: &Plan) -> Vec<String> {
    let gradients = plan.buffers.iter().filter(|buffer| buffer.role == Role::Gradient);
    gradients.filter(|buffer| buffer.dtype != Dtype::Fp32).map(|buffer| buffer.name.clone()).collect()
}

#[test]
fn gradients_are_of_the_type_that_was_asked_for_but_for_those_of_the_head() {
    let shapes = presets::ALL.iter().map(|preset| (preset.name, preset.shape())).chain(small::shapes());
    for (name, shape) in shapes {
        let plan = train_step(&shape, &narrow(Dtype::Bf16), 2, 7);
        let of_head = if shape.tied { "embedding.weight" } else { "head.weight" };
        for parameter in shape.parameters() {
            let gradient = plan.find(&format!("d_{}", parameter.name)).map(|id| plan.buffer(id).dtype);
            let is_of_head = parameter.name == of_head || parameter.name.starts_with("head.");
            let wanted = if is_of_head { Dtype::Fp32 } else { Dtype::Bf16 };
            assert_eq!(gradient, Some(wanted), "{name}: `{}`", parameter.name);
        }
        assert!(
            names(&train_step(&shape, &options(Dtype::Bf16), 2, 7)).is_empty(),
            "{name}: by default fp32"
        );
    }
}

#[test]
fn each_micro_batch_rounds_a_gradient_once() {
    for precision in dtype::ALL.iter().filter(|row| row.is_precision && row.bytes == 2).map(|row| row.dtype) {
        for (name, shape) in small::shapes() {
            let load = |options: &Options| {
                let plan = train_step(&shape, options, 2, 7);
                let mut loaded = Loaded::<f64>::new(name, &shape, plan, Rounding::Follow(precision));
                loaded.run(&[Phase::Prepare], MicroStep::First);
                loaded
            };
            let (mut wide, mut summed) = (load(&self::wide(precision)), load(&narrow(precision)));
            let gradients = names(summed.executor.plan(summed.plan));
            let mut expected: Vec<Vec<f64>> = Vec::new();
            for (index, micro) in
                [MicroStep::First, MicroStep::Later, MicroStep::Later].into_iter().enumerate()
            {
                let mut batch = Batch::new(&shape, 14);
                batch.tokens.rotate_left(index);
                for (loaded, micro) in [(&mut wide, MicroStep::First), (&mut summed, micro)] {
                    loaded.feed(&batch, 3 * batch.counted());
                    loaded.run(&[Phase::Forward, Phase::Backward], micro);
                }
                let parts = gradients.iter().map(|gradient| wide.get_padded(gradient));
                let sums = parts.enumerate().map(|(at, part)| {
                    let old = expected.get(at).cloned().unwrap_or_else(|| vec![0.0; part.len()]);
                    old.iter().zip(&part).map(|(old, new)| precision.round(old + new)).collect()
                });
                expected = sums.collect();
            }
            assert!(!gradients.is_empty(), "{name}");
            for (gradient, expected) in gradients.iter().zip(&expected) {
                let found = summed.get_padded(gradient);
                let place = format!("{name}, {}: `{gradient}`", precision.name());
                // The parts were rounded to fp32 before: now and then that decides a tie.
                let n_others = found.iter().zip(expected).filter(|(a, b)| a != b).count();
                assert!(200 * n_others <= found.len(), "{place}: {n_others} of {} differ", found.len());
                // A tie may have been decided while the sum was larger than it is now.
                let greatest = expected.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
                let unit = precision.epsilon() * greatest;
                let is_near = |(a, b): &(&f64, &f64)| (*a - *b).abs() <= unit;
                let off = found.iter().zip(expected).find(|pair| !is_near(pair));
                assert_eq!(off, None, "{place}");
            }
        }
    }
}

#[test]
fn a_type_that_products_do_not_write_is_refused() {
    let shape = presets::ALL[0].shape();
    let check = |precision, gradient| Options { gradient, ..options(precision) }.check_gradient(&shape);
    for precision in [Dtype::Fp32, Dtype::Bf16, Dtype::Fp16] {
        assert_eq!((check(precision, Dtype::Fp32), check(precision, precision)), (Ok(()), Ok(())));
    }
    let wrong = check(Dtype::Bf16, Dtype::Fp16).unwrap_err();
    assert_eq!(wrong, "the type of gradients must be `fp32` or the precision, `bf16`, found `fp16`");
    let wrong = check(Dtype::Fp32, Dtype::Bf16).unwrap_err();
    assert_eq!(wrong, "the type of gradients must be `fp32`, found `bf16`");
}
