//! The first tensor that is not finite is named: where it was written, not where it was noticed.

mod small;

use kernwright_model::trainer::{Divergence, Origin, TrainError, TrainOptions, Trainer};
use kernwright_plan::Options as PlanOptions;
use kernwright_plan::executor::{PlanId, Values};
use kernwright_plan::plan::Phase;
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_plan::shape::Shape;
use small::options;

fn shape() -> Shape {
    small::shape(2, "")
}

fn with_trainer(options: TrainOptions, test: impl FnOnce(&mut Trainer<'_>)) {
    let (shape, split) = (shape(), small::text());
    let plan_options = PlanOptions::host();
    let mut executor = Reference::<f32>::new(Rounding::None);
    test(&mut Trainer::new(&mut executor, &shape, options, &plan_options, &split, None).unwrap());
}

/// Sets one element of a weight.
fn poison(trainer: &mut Trainer<'_>, name: &str, index: usize, value: f32) {
    let (executor, plan) = (trainer.executor(), PlanId(0));
    let buffer = executor.plan(plan).find(name).unwrap();
    let mut values = executor.read(plan, buffer).unwrap();
    values[index] = value;
    executor.write(plan, buffer, Values::Float(&values)).unwrap();
}

fn divergence(error: TrainError) -> Divergence {
    match error {
        TrainError::Diverged(divergence) => *divergence,
        other => panic!("{other}"),
    }
}

/// A weight that is neither the first nor the last.
fn weight() -> (String, Vec<usize>) {
    let parameters = shape().parameters();
    let parameter = &parameters[parameters.len() / 2];
    (parameter.name.clone(), parameter.shape.clone())
}

#[test]
fn a_weight_that_is_no_number_is_named_with_its_place() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        with_trainer(options(1, 1e-3), |trainer| {
            let (name, shape) = weight();
            trainer.step().unwrap();
            poison(trainer, &name, 5, value);
            let found = divergence(trainer.step().unwrap_err());
            let fault = found.fault.clone().unwrap();
            assert_eq!((fault.tensor.as_str(), fault.origin), (name.as_str(), Origin::Before), "{found}");
            let columns = shape[shape.len() - 1];
            assert_eq!(*fault.at.last().unwrap(), 5 % columns);
            assert_eq!(fault.value.to_bits(), value.to_bits());
            assert_eq!((found.step, found.what), (2, "loss"));
            let error = divergence(trainer.evaluate(&mut |_, _| {}).unwrap_err());
            assert_eq!((error.what, error.fault.map(|fault| fault.tensor)), ("validation loss", Some(name)));
        });
    }
}

#[test]
fn a_product_that_overflows_is_named_and_not_what_comes_after_it() {
    with_trainer(options(2, 1e-3), |trainer| {
        // Finite, but its products are not.
        let weight =
            shape().parameters().into_iter().find(|p| p.name == "layers.1.feed_forward.up.weight").unwrap();
        for index in 0..weight.shape.iter().product() {
            poison(trainer, &weight.name, index, 3e38);
        }
        let found = divergence(trainer.step().unwrap_err());
        let fault = found.fault.clone().unwrap();
        let Origin::Step { op, phase, micro_batch } = fault.origin else { panic!("{found}") };
        assert_eq!((phase, micro_batch), (Phase::Forward, 1), "{found}");
        // It is the output of the very step that reads the weight.
        let plan = trainer.executor().plan(PlanId(0));
        let id = plan.find(&weight.name).unwrap();
        let step = plan.steps.iter().find(|step| step.reads.iter().any(|read| read.buffer == id)).unwrap();
        assert_eq!(op, step.op.name());
        assert!(step.writes.iter().any(|write| plan.buffer(write.buffer).name == fault.tensor), "{found}");
        let text = found.to_string();
        assert!(text.contains(&format!("is `{}`, `", fault.tensor)), "{text}");
        assert!(text.contains(&format!("written by `{op}` in forward of micro-batch 1;")), "{text}");
        assert!(text.ends_with("the learning rate may be too high, `1.000e-3`"), "{text}");
    });
}

#[test]
fn a_norm_that_overflows_is_named_though_loss_and_gradients_are_sound() {
    with_trainer(options(2, 1e-3), |trainer| {
        // Huge activations and a tiny head: ordinary logits, and gradients of the head that cannot be squared.
        for (name, value) in [("final_norm.weight", 1e30), ("head.weight", 1e-32)] {
            let n = shape().parameters().iter().find(|p| p.name == name).unwrap().shape.iter().product();
            (0..n)
                .for_each(|index| poison(trainer, name, index, if index % 2 == 0 { value } else { -value }));
        }
        let found = divergence(trainer.step().unwrap_err());
        assert_eq!((found.what, found.value), ("gradient's norm", f64::INFINITY), "{found}");
        let text = found.to_string();
        let expected = "is `gradient_norm`, `inf` at `[0]`, written by `gradient_norm` in update; ";
        assert!(text.contains(expected), "{text}");
    });
}

#[test]
fn a_learning_rate_that_is_far_too_high_is_named_by_the_weight_or_product_it_spoilt() {
    for (rate, accumulate) in [(1e38, 1), (1e15, 2), (1e12, 1)] {
        with_trainer(options(accumulate, rate), |trainer| {
            let error = (0..40).find_map(|_| trainer.step().err());
            let Some(error) = error else { panic!("a rate of {rate} was survived") };
            let found = divergence(error);
            assert!(found.fault.is_some(), "{found}");
            assert!((found.learning_rate - rate).abs() <= 1e-9 * rate && found.step > 1, "{found}");
        });
    }
}

#[test]
fn no_checkpoint_is_made_of_weights_that_give_no_finite_loss() {
    let run = tempfile::tempdir().unwrap();
    with_trainer(options(1, 1e-3), |trainer| {
        trainer.step().unwrap();
        trainer.save(run.path(), &serde_json::Value::Null).unwrap();
        let (name, shape) = weight();
        let n: usize = shape.iter().product();
        // Finite themselves and their squares too, but no product of three of them.
        (0..n).for_each(|index| poison(trainer, &name, index, 1e25));
        assert!(trainer.save(run.path(), &serde_json::Value::Null).is_err());
        let found = kernwright_model::checkpoint::latest(run.path()).unwrap().unwrap();
        assert_eq!(found.checkpoint.manifest.progress.step, 1);
        assert!(found.damaged.is_empty());
    });
}
