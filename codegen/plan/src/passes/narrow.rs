//! Decides which buffers are narrow (bf16), from what reads them.
//!
//! A buffer is narrow when some step reads it in a slot that its op marks as an operand, unless it is a sum that
//! others add to (the residual stream and its gradient): that stays fp32 and such readers get a narrow copy. A weight
//! stays fp32 too, and gets a working copy that the optimizer writes; so does the bias of a product whose result is narrow,
//! since libraries add only one of the result's type. Where the Shape asks for a narrow residual stream, the stream and
//! its gradient are narrow first, and need no copies. Gradients of weights are narrow where the options say so.

use super::NARROW_PRODUCERS;
use crate::buffer::{BufferId, Role};
use crate::dtype::Dtype;
use crate::ops::Op;
use crate::ops::cast::Cast;
use crate::options::Options;
use crate::plan::{Mode, Phase, Plan, Step};
use crate::shape::Shape;
use crate::tape::{read, write};
use std::collections::{HashMap, HashSet};

/// Gives every buffer its element type.
#[must_use]
pub fn apply(plan: Plan, shape: &Shape, options: &Options) -> Plan {
    let precision = options.precision(shape);
    if precision == Dtype::Fp32 {
        return plan;
    }
    let plan = if shape.residual == Dtype::Fp32 { plan } else { narrow_stream(plan, precision) };
    let wide = if options.runs(NARROW_PRODUCERS) { HashSet::new() } else { written_wide(&plan) };
    let plan = copies(plan, precision, &wide);
    let plan = working_copies(plan, precision, |step, _, slot| step.op.narrow_slots().contains(&slot));
    let narrow: Vec<BufferId> = operands(&plan)
        .into_iter()
        .filter(|base| matches!(plan.buffer(*base).role, Role::Activation) && !wide.contains(base))
        .collect();
    let plan = set(plan, &narrow, precision);
    let plan = working_copies(plan, precision, |step, plan, slot| {
        let result = match step.op {
            Op::Linear(_) => "y",
            Op::Head(_) | Op::HeadLoss(_) => "logits",
            _ => return false,
        };
        let result = plan.io(step).id(result);
        slot == "bias" && result.is_some_and(|result| plan.buffer(result).dtype == precision)
    });
    if options.gradient == precision { narrow_gradients(plan, precision) } else { plan }
}

/// Narrows the gradients of weights, but for those that the head's loss adds to chunk by chunk: each sum would be rounded
/// as often as there are chunks.
fn narrow_gradients(mut plan: Plan, precision: Dtype) -> Plan {
    let of_head = plan.steps.iter().filter(|step| matches!(step.op, Op::HeadLoss(_)));
    let in_chunks: HashSet<_> =
        of_head.flat_map(|step| &step.writes).map(|write| plan.base(write.buffer).0).collect();
    for index in 0..plan.buffers.len() {
        let base = plan.base(BufferId(index)).0;
        if plan.buffer(base).role == Role::Gradient && !in_chunks.contains(&base) {
            plan.buffers[index].dtype = precision;
        }
    }
    plan
}

/// Narrows what ops name as the residual stream, and its gradient.
fn narrow_stream(mut plan: Plan, precision: Dtype) -> Plan {
    let mut stream = HashSet::new();
    for step in &plan.steps {
        let slots = step.op.stream_slots();
        let reads = step.reads.iter().map(|read| (read.slot, read.buffer));
        let writes = step.writes.iter().map(|write| (write.slot, write.buffer));
        for (_, buffer) in reads.chain(writes).filter(|(slot, _)| slots.contains(slot)) {
            stream.insert(plan.base(buffer).0);
        }
    }
    for index in 0..plan.buffers.len() {
        let base = plan.base(BufferId(index)).0;
        if stream.contains(&base) && plan.buffer(base).role == Role::Activation {
            plan.buffers[index].dtype = precision;
        }
    }
    plan
}

/// Base buffers that some step reads as an operand.
fn operands(plan: &Plan) -> HashSet<BufferId> {
    let mut bases = HashSet::new();
    for step in &plan.steps {
        for read in step.reads.iter().filter(|read| step.op.narrow_slots().contains(&read.slot)) {
            bases.insert(plan.base(read.buffer).0);
        }
    }
    bases
}

fn set(mut plan: Plan, bases: &[BufferId], precision: Dtype) -> Plan {
    let bases: HashSet<_> = bases.iter().copied().collect();
    for index in 0..plan.buffers.len() {
        if bases.contains(&plan.base(BufferId(index)).0) {
            plan.buffers[index].dtype = precision;
        }
    }
    // Room for operands of products that a step makes itself: the logits of a chunk, the rows that were asked for.
    for index in 0..plan.steps.len() {
        let slot = match &plan.steps[index].op {
            Op::HeadLoss(_) => "logits",
            Op::Head(_) => "gathered",
            _ => continue,
        };
        if let Some(room) = plan.io(&plan.steps[index]).id(slot) {
            plan.buffers[room.0].dtype = precision;
        }
    }
    plan
}

/// Buffers that others add to: in place, or as the residual stream.
fn sums(plan: &Plan) -> HashSet<BufferId> {
    let mut sums = HashSet::new();
    for step in &plan.steps {
        let added =
            step.writes.iter().filter(|write| write.mode == Mode::Accumulate).map(|write| write.buffer);
        let stream = step.reads.iter().filter(|read| match step.op {
            Op::Add(_) => read.slot == "a",
            _ => read.slot == "residual",
        });
        sums.extend(added.chain(stream.map(|read| read.buffer)).map(|buffer| plan.base(buffer).0));
    }
    sums
}

/// Without `narrow_producers`: operands that are written in fp32 and copied, all but what attention writes.
fn written_wide(plan: &Plan) -> HashSet<BufferId> {
    let mut wide = operands(plan);
    for step in plan.steps.iter().filter(|step| attends(&step.op)) {
        for write in &step.writes {
            wide.remove(&plan.base(write.buffer).0);
        }
    }
    wide.retain(|base| plan.buffer(*base).role == Role::Activation);
    wide
}

fn attends(op: &Op) -> bool {
    matches!(op, Op::Attention(_) | Op::AttentionBackward(_))
}

/// Does it give what it reads to products? The others read any type.
fn multiplies(op: &Op) -> bool {
    attends(op) || matches!(op, Op::Linear(_) | Op::LinearBackward(_) | Op::HeadLoss(_) | Op::Head(_))
}

/// In front of a step that reads a sum as an operand, or one of the bases that are written wide: a narrow copy of it, which
/// serves all readers until it is written again.
fn copies(mut plan: Plan, precision: Dtype, wide: &HashSet<BufferId>) -> Plan {
    let sums = sums(&plan);
    let mut copies: HashMap<BufferId, BufferId> = HashMap::new();
    let mut steps = Vec::new();
    for mut step in std::mem::take(&mut plan.steps) {
        let narrow = step.op.narrow_slots();
        for index in 0..step.reads.len() {
            let source = step.reads[index];
            let buffer = plan.buffer(source.buffer).clone();
            let is_wide = wide.contains(&plan.base(source.buffer).0) && multiplies(&step.op);
            let is_copied = is_wide || sums.contains(&source.buffer);
            let is_own = buffer.role == Role::Activation && buffer.dtype != precision;
            if !is_copied || !is_own || !narrow.contains(&source.slot) {
                continue;
            }
            if let Some(copy) = copies.get(&source.buffer) {
                step.reads[index].buffer = *copy;
                continue;
            }
            let name = format!("{}.{}.{}", buffer.name, precision.name(), steps.len());
            let copy = plan.add(name, buffer.shape, precision, Role::Activation);
            copies.insert(source.buffer, copy);
            steps.push(Step {
                op: Cast.into(),
                reads: vec![read("x", source.buffer)],
                writes: vec![write("y", copy)],
                phase: step.phase,
            });
            step.reads[index].buffer = copy;
        }
        for write in &step.writes {
            let written = plan.base(write.buffer).0;
            copies.retain(|source, _| plan.base(*source).0 != written);
        }
        steps.push(step);
    }
    plan.steps = steps;
    plan
}

/// A narrow copy of each weight that `wanted` says of a step's slot: made once before the first step, and by AdamW after.
fn working_copies(
    mut plan: Plan,
    precision: Dtype,
    wanted: impl Fn(&Step, &Plan, &'static str) -> bool,
) -> Plan {
    let mut copies: HashMap<BufferId, BufferId> = HashMap::new();
    let mut prepare = Vec::new();
    for index in 0..plan.steps.len() {
        for at in 0..plan.steps[index].reads.len() {
            let source = plan.steps[index].reads[at];
            let buffer = plan.buffer(source.buffer);
            if buffer.role != Role::Parameter || !wanted(&plan.steps[index], &plan, source.slot) {
                continue;
            }
            let (name, shape) = (format!("{}.{}", buffer.name, precision.name()), buffer.shape.clone());
            let copy = *copies.entry(source.buffer).or_insert_with(|| {
                let copy = plan.add(name, shape, precision, Role::Working);
                prepare.push(Step {
                    op: Cast.into(),
                    reads: vec![read("x", source.buffer)],
                    writes: vec![write("y", copy)],
                    phase: Phase::Prepare,
                });
                copy
            });
            plan.steps[index].reads[at].buffer = copy;
        }
    }
    for step in plan.steps.iter_mut().filter(|step| matches!(step.op, Op::AdamW(_))) {
        let mut parameter = None;
        for write in std::mem::take(&mut step.writes) {
            parameter = if write.slot == "parameter" { Some(write.buffer) } else { parameter };
            step.writes.push(write);
            let copy = parameter.filter(|_| write.slot == "v").and_then(|parameter| copies.get(&parameter));
            step.writes.extend(copy.map(|copy| self::write("working", *copy)));
        }
    }
    prepare.append(&mut plan.steps);
    plan.steps = prepare;
    plan
}
