//! Takes the gelu between two products into them: the first computes it before it writes a sum, the second's gradient
//! multiplies by its slope. Neither direction has a step of its own then.
//!
//! In: a plan with its gradient, all in fp32. Matrix libraries do so for the tanh form, and for operands and results of one
//! narrow type: other plans stay as they are.

use super::{GELU_GRADIENT_IN_LINEAR, GELU_IN_LINEAR, NARROW_PRODUCERS};
use crate::buffer::BufferId;
use crate::dtype::Dtype;
use crate::ops::Op;
use crate::ops::linear::{GELU, Linear};
use crate::options::Options;
use crate::plan::{Mode, Plan, Read, Step};
use crate::shape::Shape;
use crate::tape::write;

/// [`forward`], where the plan will be narrow and nobody asks for it to stay.
#[must_use]
pub fn in_linear(plan: Plan, shape: &Shape, options: &Options) -> Plan {
    if runs(GELU_IN_LINEAR, shape, options) { forward(plan) } else { plan }
}

/// [`backward`], likewise.
#[must_use]
pub fn gradient_in_linear(plan: Plan, shape: &Shape, options: &Options) -> Plan {
    if runs(GELU_GRADIENT_IN_LINEAR, shape, options) { backward(plan) } else { plan }
}

/// Results are narrow where their producers write them so.
fn runs(pass: &str, shape: &Shape, options: &Options) -> bool {
    let is_narrow = options.precision(shape) != Dtype::Fp32 && options.runs(NARROW_PRODUCERS);
    is_narrow && options.runs(pass)
}

/// `u = linear(x)`, `y = gelu(u)` becomes `y, u = linear(x)`, without u where nothing else reads it.
#[must_use]
pub fn forward(mut plan: Plan) -> Plan {
    let mut index = 0;
    while index + 1 < plan.steps.len() {
        if is_gelu_of_linear(&plan, index) {
            let gelu = plan.steps.remove(index + 1);
            let input = plan.steps[index].writes[0].buffer;
            let is_read = n_readers(&plan, input) > 0;
            let linear = &mut plan.steps[index];
            linear.op = Linear { gelu: true }.into();
            linear.writes[0] = gelu.writes[0];
            linear.writes.extend(is_read.then(|| write("gelu_input", input)));
        }
        index += 1;
    }
    plan
}

/// `d_y = linear_backward(..)`, `d_u = gelu_backward(d_y, u)` becomes `d_u = linear_backward(.., u)`.
#[must_use]
pub fn backward(mut plan: Plan) -> Plan {
    let mut index = 0;
    while index + 1 < plan.steps.len() {
        if let Some((at, input)) = slope_of_linear(&plan, index) {
            let gelu = plan.steps.remove(index + 1);
            let linear = &mut plan.steps[index];
            linear.writes[at] = gelu.writes[0];
            linear.reads.push(Read { slot: "gelu_input", buffer: input });
        }
        index += 1;
    }
    plan
}

fn n_readers(plan: &Plan, buffer: BufferId) -> usize {
    let is_it = |read: &&Read| plan.base(read.buffer).0 == plan.base(buffer).0;
    plan.steps.iter().flat_map(|step| &step.reads).filter(is_it).count()
}

fn read_of(step: &Step, slot: &str) -> Option<BufferId> {
    step.reads.iter().find(|read| read.slot == slot).map(|read| read.buffer)
}

/// Is this step a plain product, and the next the gelu of it?
fn is_gelu_of_linear(plan: &Plan, index: usize) -> bool {
    let (linear, gelu) = (&plan.steps[index], &plan.steps[index + 1]);
    let (Op::Linear(Linear { gelu: false }), Op::Activation(activation)) = (&linear.op, &gelu.op) else {
        return false;
    };
    let [made] = linear.writes[..] else { return false };
    let replaces = [made, gelu.writes[0]].iter().all(|write| write.mode == Mode::Overwrite);
    activation.kind == GELU
        && replaces
        && read_of(linear, "residual").is_none()
        && read_of(gelu, "x") == Some(made.buffer)
}

/// Where the next step only multiplies the d_x of this one, which nothing else reads, by the slope of a gelu: which write
/// that is, and the gelu's input.
fn slope_of_linear(plan: &Plan, index: usize) -> Option<(usize, BufferId)> {
    let (linear, gelu) = (&plan.steps[index], &plan.steps[index + 1]);
    let (Op::LinearBackward(_), Op::ActivationBackward(activation)) = (&linear.op, &gelu.op) else {
        return None;
    };
    let at = linear.writes.iter().position(|write| write.slot == "d_x")?;
    let made = linear.writes[at];
    let replaces = [made, gelu.writes[0]].iter().all(|write| write.mode == Mode::Overwrite);
    let is_it = activation.kind == GELU
        && replaces
        && read_of(linear, "gelu_input").is_none()
        && read_of(gelu, "d_y") == Some(made.buffer)
        && n_readers(plan, made.buffer) == 1;
    let input = read_of(gelu, "x")?;
    is_it.then_some((at, input))
}
