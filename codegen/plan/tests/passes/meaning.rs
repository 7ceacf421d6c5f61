//! What passes and padding must leave as it is.

use crate::{distance, loss_and_gradients, options, read, small, small::Batch, small::Loaded};
use kernwright_plan::Options;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::executor::Values;
use kernwright_plan::ops::head_loss::IGNORED;
use kernwright_plan::plan::Phase;
use kernwright_plan::reference::Rounding;
use kernwright_plan::train_step;

const BOTH: [Phase; 2] = [Phase::Forward, Phase::Backward];

/// The order of a sum may differ where zeros stand between, so the comparison is not exact.
#[test]
fn padding_changes_nothing_that_is_not_padding() {
    let mut n_padded = 0;
    for (name, shape) in small::shapes().filter(|(_, shape)| shape.padded() != *shape) {
        let with = loss_and_gradients(name, &shape, &options(Dtype::Fp32), Rounding::None);
        let plain = Options { padded: false, ..options(Dtype::Fp32) };
        let without = loss_and_gradients(name, &shape, &plain, Rounding::None);
        for ((buffer, with), (_, without)) in with.iter().zip(&without) {
            assert_eq!(with.len(), without.len(), "{name}: `{buffer}`");
            let (error, size) = distance(with, without);
            assert!(error <= 1e-13 * size, "{name}: `{buffer}` is off by {:.1e}", error / size);
        }
        n_padded += 1;
    }
    assert!(n_padded >= 3, "{n_padded} shapes have something to pad");
}

#[test]
fn a_residual_inside_the_linear_changes_no_bit() {
    for (name, shape) in small::shapes() {
        let with = options(Dtype::Fp32);
        let without = Options { without: vec!["residual_in_linear".to_owned()], ..with.clone() };
        let n_steps = |options| train_step(&shape, options, 2, 7).steps.len();
        // Behind a norm or a scale there is no linear to take the addition.
        let is_direct = !shape.norm.placement.after() && shape.residual_scale == 1.0;
        let n_fused = if is_direct { 2 * shape.layers } else { 0 };
        assert_eq!(n_steps(&without) - n_steps(&with), n_fused, "{name}: each addition is fused");
        let plan = train_step(&shape, &with, 2, 7);
        assert!(plan.steps.iter().all(|step| step.op.name() != "cast"), "{name}: a sum shares its gradient");
        let fused = loss_and_gradients(name, &shape, &with, Rounding::None);
        let plain = loss_and_gradients(name, &shape, &without, Rounding::None);
        assert!(fused == plain, "{name}");
    }
}

#[test]
fn micro_batches_add_up_to_the_large_batch() {
    for (name, shape) in small::shapes() {
        let data = Batch::new(&shape, 15);
        let options = options(Dtype::Fp32);
        let mut whole = Loaded::<f64>::new(name, &shape, train_step(&shape, &options, 3, 5), Rounding::None);
        whole.feed(&data, data.counted());
        whole.run(&BOTH, MicroStep::First);
        let mut parts = Loaded::<f64>::new(name, &shape, train_step(&shape, &options, 1, 5), Rounding::None);
        // Twice, since the first micro-batch must also replace what an earlier step left.
        for at in [0, 1, 2, 0, 1, 2] {
            let rows = 5 * at..5 * at + 5;
            let part = Batch { tokens: data.tokens[rows.clone()].into(), targets: data.targets[rows].into() };
            parts.feed(&part, data.counted());
            parts.run(&BOTH, if at == 0 { MicroStep::First } else { MicroStep::Later });
        }
        for ((buffer, expected), (_, found)) in read(&whole, &shape).iter().zip(read(&parts, &shape)) {
            let (error, size) = distance(&found, expected);
            assert!(error <= 1e-13 * size, "{name}: `{buffer}` is off by {error:.2e} of {size:.2e}");
        }
    }
}

#[test]
fn a_batch_without_targets_has_no_loss_and_no_gradient() {
    for (name, shape) in small::shapes() {
        let plan = train_step(&shape, &options(Dtype::Fp32), 2, 7);
        let mut loaded = Loaded::<f64>::new(name, &shape, plan, Rounding::None);
        let data = Batch { targets: vec![IGNORED; 14], ..Batch::new(&shape, 14) };
        loaded.feed(&data, 0);
        loaded.put("learning_rate", Values::Float(&[0.1]));
        loaded.put("step", Values::Int(&[1]));
        loaded.run(&[Phase::Forward, Phase::Backward, Phase::Update], MicroStep::First);
        for (buffer, values) in read(&loaded, &shape) {
            assert!(values.iter().all(|value| *value == 0.0), "{name}: `{buffer}` is not 0");
        }
        assert_eq!(loaded.get("gradient_norm"), [0.0], "{name}");
        for parameter in shape.parameters() {
            assert!(
                loaded.get(&parameter.name).iter().all(|p| p.is_finite()),
                "{name}: `{}`",
                parameter.name
            );
        }
    }
}
