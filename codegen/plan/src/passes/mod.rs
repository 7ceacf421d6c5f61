//! The passes that make a plan: a list of functions Plan -> Plan, one line each.

pub mod attention;
pub mod forward;
pub mod fuse;
pub mod gradient;
pub mod memory;
pub mod narrow;
pub mod update;

use crate::options::Options;
use crate::plan::Plan;
use crate::shape::Shape;
use forward::Head;

/// See [`SWITCHES`].
pub(crate) const MULTI_TENSOR_UPDATE: &str = "multi_tensor_update";

/// Names that `Options::without` may hold, with what each pass does.
pub const SWITCHES: &[(&str, &str)] = &[
    ("residual_in_linear", "a residual addition becomes an input of the linear before it"),
    (MULTI_TENSOR_UPDATE, "the norm of the gradients and AdamW are one launch for all parameters"),
];

/// A whole training step for `batch` sequences of `length` tokens: loss, gradients, norm, clip, AdamW.
#[must_use]
pub fn train_step(shape: &Shape, options: &Options, batch: usize, length: usize) -> Plan {
    let plan = forward::build(shape, options, batch, length, Head::Loss);
    let plan = gradient::add(plan);
    let plan = update::add(plan, shape, options);
    let plan = fuse::residual_in_linear(plan, options);
    let plan = narrow::apply(plan, shape, options);
    let plan = attention::choose(plan, options);
    memory::place(plan)
}

/// The forward pass alone: the loss, or logits for asked positions.
#[must_use]
pub fn forward_step(shape: &Shape, options: &Options, batch: usize, length: usize, head: Head) -> Plan {
    // The term belongs to training: a loss that is only measured is the cross-entropy alone.
    let options = &Options { z_loss: 0.0, ..options.clone() };
    let plan = forward::build(shape, options, batch, length, head);
    let plan = fuse::residual_in_linear(plan, options);
    let plan = narrow::apply(plan, shape, options);
    let plan = attention::choose(plan, options);
    memory::place(plan)
}
