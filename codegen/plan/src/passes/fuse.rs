//! Passes that replace neighbouring steps by one op that does both.

use crate::ops::Op;
use crate::ops::linear::Linear;
use crate::options::Options;
use crate::plan::{Mode, Plan, Read, Step};
use crate::tape::write;

/// `t = linear(x)`, `y = add(r, t)` becomes `y = linear(x, residual = r)` where nothing else reads `t`. The backward
/// steps stay: the gradient of a sum is that of its parts.
#[must_use]
pub fn residual_in_linear(mut plan: Plan, options: &Options) -> Plan {
    if !options.runs("residual_in_linear") {
        return plan;
    }
    let mut index = 0;
    while index + 1 < plan.steps.len() {
        let (linear, add) = (&plan.steps[index], &plan.steps[index + 1]);
        let plain = matches!(linear.op, Op::Linear(Linear { gelu: false }))
            && linear.reads.iter().all(|r| r.slot != "residual");
        if plain && matches!(add.op, Op::Add(_)) {
            let made = linear.writes[0].buffer;
            let n_readers = plan.steps.iter().flat_map(|s| &s.reads).filter(|r| r.buffer == made).count();
            let residual = add.reads.iter().find(|read| read.buffer != made).copied();
            if let (1, Some(residual)) = (n_readers, residual) {
                let y = add.writes[0];
                plan.steps[index].reads.push(Read { slot: "residual", buffer: residual.buffer });
                plan.steps[index].writes[0] = y;
                plan.steps.remove(index + 1);
            }
        }
        index += 1;
    }
    plan
}

/// `y = linear(x, residual = r)`, where a norm before it reads `r`, becomes `y = r` by that norm and `y += linear(x)`: the form
/// that needs no product whose addend lies apart from its result, and moves `y` twice more.
#[must_use]
pub fn residual_copy(mut plan: Plan, options: &Options) -> Plan {
    if !options.asks_for("residual_copy") {
        return plan;
    }
    for index in 0..plan.steps.len() {
        let step = &plan.steps[index];
        let residual = step.reads.iter().position(|read| read.slot == "residual");
        let (Op::Linear(_), Some(residual)) = (&step.op, residual) else { continue };
        let (from, to) = (step.reads[residual].buffer, step.writes[0].buffer);
        let reads_it = |step: &Step| {
            let is_x = step.reads.iter().any(|read| read.slot == "x" && read.buffer == from);
            matches!(step.op, Op::Norm(_)) && is_x && !plan.io(step).has("copy")
        };
        let Some(norm) = plan.steps[..index].iter().rposition(reads_it) else { continue };
        plan.steps[norm].writes.push(write("copy", to));
        plan.steps[index].reads.remove(residual);
        plan.steps[index].writes[0].mode = Mode::Accumulate;
    }
    plan
}

/// `d_x (+)= norm_backward(..)`, `copy = cast(d_x)` becomes one step that writes both: the gradient of the residual stream,
/// and the narrow copy of it that products take.
#[must_use]
pub fn narrow_gradient(mut plan: Plan, options: &Options) -> Plan {
    if !options.runs("narrow_gradient") {
        return plan;
    }
    let mut index = 0;
    while index < plan.steps.len() {
        match made_by_norm(&plan, index) {
            Some(producer) => {
                let copy = plan.steps.remove(index).writes[0].buffer;
                plan.steps[producer].writes.push(write("narrow", copy));
            }
            None => index += 1,
        }
    }
    plan
}

/// The gradient of a norm that made what this step copies to a narrower type, if it can write the copy too.
fn made_by_norm(plan: &Plan, index: usize) -> Option<usize> {
    let cast = &plan.steps[index];
    let (Op::Cast(_), [from], [to]) = (&cast.op, &*cast.reads, &*cast.writes) else { return None };
    let (source, copy) = (plan.buffer(from.buffer), plan.buffer(to.buffer));
    if to.mode != Mode::Overwrite || copy.dtype.bytes() >= source.dtype.bytes() {
        return None;
    }
    let base = plan.base(from.buffer).0;
    let writes = |step: &Step| step.writes.iter().any(|write| plan.base(write.buffer).0 == base);
    let producer = plan.steps[..index].iter().rposition(writes)?;
    let step = &plan.steps[producer];
    let is_result = step.writes.iter().any(|write| write.slot == "d_x" && write.buffer == from.buffer);
    let is_able = matches!(step.op, Op::NormBackward(_)) && !plan.io(step).has("narrow");
    (is_able && is_result && step.phase == cast.phase).then_some(producer)
}
