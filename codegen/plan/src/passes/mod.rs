//! The passes that make a plan: a list of functions Plan -> Plan, one line each.

pub mod attention;
pub mod forward;
pub mod fuse;
pub mod gelu;
pub mod gradient;
pub mod memory;
pub mod narrow;
pub mod partials;
pub mod split_heads;
pub mod update;

use crate::options::Options;
use crate::plan::Plan;
use crate::shape::Shape;
use forward::Head;

/// See [`SWITCHES`].
pub(crate) const GELU_IN_LINEAR: &str = "gelu_in_linear";

/// See [`SWITCHES`].
pub(crate) const GELU_GRADIENT_IN_LINEAR: &str = "gelu_gradient_in_linear";

/// See [`SWITCHES`].
pub(crate) const NARROW_PRODUCERS: &str = "narrow_producers";

/// See [`SWITCHES`].
pub(crate) const MULTI_TENSOR_UPDATE: &str = "multi_tensor_update";

/// See [`SWITCHES`].
pub(crate) const SPLIT_HEADS: &str = "split_heads";

/// See [`ABLATIONS`].
pub(crate) const ALWAYS_SPLIT_HEADS: &str = "always_split_heads";

/// Names that `Options::without` may hold, with what each pass does.
pub const SWITCHES: &[(&str, &str)] = &[
    ("residual_in_linear", "a residual addition becomes an input of the linear before it"),
    (
        GELU_IN_LINEAR,
        "the product before a gelu_tanh computes it before it writes a sum, where its result is narrow (not without \
         `narrow_producers`)",
    ),
    (
        GELU_GRADIENT_IN_LINEAR,
        "the gradient of the product behind a gelu_tanh multiplies by its slope before it writes a sum, under the same \
         condition",
    ),
    (
        "narrow_gradient",
        "a norm's gradient writes the narrow copy of the residual gradient itself, without a cast",
    ),
    (
        "first_write_overwrites",
        "the first write of a step to a gradient replaces it, so that none is set to zero before",
    ),
    (
        NARROW_PRODUCERS,
        "what products read is written in its narrow type by the step that makes it, without a cast (attention always \
         does: its kernels have one type)",
    ),
    (
        "single_pass_softmax",
        "the softmax of the head holds a row in shared memory, where it fits, and reads it once",
    ),
    (MULTI_TENSOR_UPDATE, "the norm of the gradients and AdamW are one launch for all parameters"),
    (
        SPLIT_HEADS,
        "a block of attention's gradient owns keys for one query head instead of a group, where blocks are so few that \
         multiprocessors would wait",
    ),
];

/// Names that `Options::with` may hold: forms that are measured against, with what each does.
pub const ABLATIONS: &[(&str, &str)] = &[
    (
        "residual_copy",
        "a norm writes a copy of the residual stream, which the linear adds to in place, instead of reading one and \
         writing the other",
    ),
    (
        ALWAYS_SPLIT_HEADS,
        "a block of attention's gradient owns keys for one query head even where blocks are many",
    ),
];

/// A whole training step for `batch` sequences of `length` tokens: loss, gradients, norm, clip, AdamW.
#[must_use]
pub fn train_step(shape: &Shape, options: &Options, batch: usize, length: usize) -> Plan {
    let plan = forward::build(shape, options, batch, length, Head::Loss);
    let plan = gradient::add(plan);
    let plan = gradient::start_from_zero(plan, options);
    let plan = update::add(plan, shape, options);
    let plan = fuse::residual_in_linear(plan, options);
    let plan = fuse::residual_copy(plan, options);
    let plan = gelu::in_linear(plan, shape, options);
    let plan = gelu::gradient_in_linear(plan, shape, options);
    let plan = narrow::apply(plan, shape, options);
    let plan = fuse::narrow_gradient(plan, options);
    let plan = attention::choose(plan, options);
    let plan = partials::fit(plan, options);
    memory::place(plan)
}

/// The forward pass alone: the loss, or logits for asked positions.
#[must_use]
pub fn forward_step(shape: &Shape, options: &Options, batch: usize, length: usize, head: Head) -> Plan {
    // The term belongs to training: a loss that is only measured is the cross-entropy alone.
    let options = &Options { z_loss: 0.0, ..options.clone() };
    let plan = forward::build(shape, options, batch, length, head);
    let plan = fuse::residual_in_linear(plan, options);
    let plan = fuse::residual_copy(plan, options);
    let plan = gelu::in_linear(plan, shape, options);
    let plan = narrow::apply(plan, shape, options);
    let plan = attention::choose(plan, options);
    memory::place(plan)
}
