//! Forward steps -> forward and backward steps.

use crate::buffer::{BufferId, Role};
use crate::ops::zero::Zero;
use crate::options::Options;
use crate::plan::{Mode, Phase, Plan, Step, Write};
use crate::tape::Tape;

/// Adds the backward steps of everything that leads to a loss.
#[must_use]
pub fn add(plan: Plan) -> Plan {
    Tape::new(plan).walk()
}

/// Without `first_write_overwrites`: the gradient of each weight is set to zero before the first micro-batch, and every
/// write adds to it.
#[must_use]
pub fn start_from_zero(mut plan: Plan, options: &Options) -> Plan {
    if options.runs("first_write_overwrites") {
        return plan;
    }
    let is_gradient = |plan: &Plan, id: BufferId| plan.buffer(plan.base(id).0).role == Role::Gradient;
    let zeros = (0..plan.buffers.len()).map(BufferId).filter(|id| {
        let is_written = plan.steps.iter().flat_map(|step| &step.writes).any(|write| write.buffer == *id);
        is_gradient(&plan, *id) && plan.buffer(*id).view.is_none() && is_written
    });
    let zero = |buffer| Step {
        op: Zero.into(),
        reads: Vec::new(),
        writes: vec![Write { slot: "y", buffer, mode: Mode::AccumulateLater }],
        phase: Phase::Forward,
    };
    let zeros: Vec<Step> = zeros.map(zero).collect();
    for index in 0..plan.steps.len() {
        for at in 0..plan.steps[index].writes.len() {
            let Write { buffer, mode, .. } = plan.steps[index].writes[at];
            if mode == Mode::AccumulateLater && is_gradient(&plan, buffer) {
                plan.steps[index].writes[at].mode = Mode::Accumulate;
            }
        }
    }
    let start = plan.phase(Phase::Forward).start;
    plan.steps.splice(start..start, zeros);
    plan
}
