//! Decides how attention is computed on a GPU, and gives it the scratch for that.
//!
//! In: a plan whose buffers have their element types. It may be applied again after they changed.

use super::split_heads;
use crate::buffer::Role;
use crate::dtype::Dtype;
use crate::ops::Op;
use crate::ops::attention::{
    Attention, BackwardForm, Form, SHARES, d_q_sum_shape, score_stride, shares_shape,
};
use crate::options::{AttentionPath, Options, RunsOn};
use crate::plan::{Plan, Step};
use crate::tape::write;
use crate::tile::attention_backward_hopper::is_in_one_pass;

/// Bytes of fp32 scores that exist at once in the split form, where one sequence does not need more.
const SCORES: usize = 256 << 20;

/// Chooses a form for each attention step and its gradient.
#[must_use]
pub fn choose(mut plan: Plan, options: &Options) -> Plan {
    if options.runs_on == RunsOn::Host {
        return plan;
    }
    for index in 0..plan.steps.len() {
        let mut step = plan.steps[index].clone();
        let (op, is_backward) = match &step.op {
            Op::Attention(op) => (op.clone(), false),
            Op::AttentionBackward(backward) => (backward.attention.clone(), true),
            _ => continue,
        };
        // What an earlier choice asked for.
        step.writes.retain(|write| plan.buffer(write.buffer).role != Role::Scratch);
        let dtype = plan.io(&step).dtype("q");
        let is_split = dtype == Dtype::Fp32 || options.attention == AttentionPath::Split;
        let total = op.sequences(&plan.io(&step));
        let sequences = at_once(&op, total);
        let scores = vec![sequences * op.heads * op.length, score_stride(op.key_length)];
        let mut scratch = Vec::new();
        if is_split {
            scratch.push(("scores", scores.clone(), Dtype::Fp32));
            scratch.extend(is_backward.then(|| ("d_scores", scores.clone(), Dtype::Fp32)));
            if dtype != Dtype::Fp32 {
                scratch.push(("probabilities", scores.clone(), dtype));
                scratch.extend(is_backward.then_some(("d_scores_narrow", scores, dtype)));
            }
        } else if is_backward {
            scratch.push(("delta", vec![total, op.heads, op.length], Dtype::Fp32));
            if has_d_q_sum(&op, options) {
                let shape = d_q_sum_shape(&op, total, options.deterministic);
                scratch.push(("d_q_sum", shape, Dtype::Fp32));
            }
            if split_heads::pays(&op, total, options) {
                scratch.extend(SHARES.map(|slot| (slot, shares_shape(&op, total), Dtype::Fp32)));
            }
        }
        match &mut step.op {
            Op::Attention(op) => {
                op.form = if is_split { Form::Split { sequences } } else { Form::Fused };
            }
            Op::AttentionBackward(backward) => {
                backward.form = match (is_split, options.deterministic) {
                    (true, _) => BackwardForm::Split { sequences },
                    (false, true) => BackwardForm::Ordered,
                    (false, false) => BackwardForm::Free,
                };
            }
            _ => {}
        }
        add(&mut plan, &mut step, scratch);
        plan.steps[index] = step;
    }
    plan
}

/// Is the queries' gradient added up in memory, in one pass? A GPU that takes turns does so wherever it has such a pass.
fn has_d_q_sum(op: &Attention, options: &Options) -> bool {
    if options.in_turns { is_in_one_pass(op.head_dim, op.softcap.is_some()) } else { !options.deterministic }
}

/// Sequences whose scores exist at once.
fn at_once(op: &Attention, sequences: usize) -> usize {
    let bytes = Dtype::Fp32.bytes() * op.heads * op.length * score_stride(op.key_length);
    (SCORES / bytes.max(1)).clamp(1, sequences.max(1))
}

fn add(plan: &mut Plan, step: &mut Step, scratch: Vec<(&'static str, Vec<usize>, Dtype)>) {
    // The first thing that the step writes names its scratch.
    let Some(first) = step.writes.first().map(|write| plan.buffer(write.buffer).name.clone()) else { return };
    for (slot, shape, dtype) in scratch {
        let name = format!("{first}.{slot}");
        let buffer = match plan.find(&name) {
            Some(earlier) => earlier,
            None => plan.add(name, Vec::new(), dtype, Role::Scratch),
        };
        plan.buffers[buffer.0].shape = shape;
        plan.buffers[buffer.0].dtype = dtype;
        step.writes.push(write(slot, buffer));
    }
}
