//! Sizes the partial sums of norms for the GPU that runs the plan: a block writes each, and no multiprocessor is to idle.
//!
//! In: a plan whose partial sums are as many as fit any GPU. On one kind of machine their number, and with it the order of
//! the sums, stays the same.

use crate::ops::Op;
use crate::ops::norm::most_partials;
use crate::options::Options;
use crate::plan::Plan;

/// As many partial sums as its multiprocessors, if their number is known, can work on.
#[must_use]
pub fn fit(mut plan: Plan, options: &Options) -> Plan {
    let Some(multiprocessors) = options.multiprocessors else { return plan };
    for index in 0..plan.steps.len() {
        let step = &plan.steps[index];
        let Op::NormBackward(norm) = &step.op else { continue };
        let io = plan.io(step);
        let vectors = io.rows("x") * norm.0.groups;
        let Some(partials) = io.id("partials") else { continue };
        let n = most_partials(io.buffer("partials").columns(), multiprocessors).min(vectors);
        plan.buffers[partials.0].shape[0] = n;
    }
    plan
}
