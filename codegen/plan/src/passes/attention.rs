//! Decides how attention is computed on a GPU, and gives it the scratch for that.
//!
//! In: a plan whose buffers have their element types. It may be applied again after they changed.

use crate::buffer::Role;
use crate::dtype::Dtype;
use crate::ops::Op;
use crate::ops::attention::{Attention, BackwardForm, Form, d_q_sum_shape, score_stride};
use crate::options::{AttentionPath, Options, RunsOn};
use crate::plan::{Plan, Step};
use crate::tape::write;

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
        if !matches!(step.op, Op::Attention(_) | Op::AttentionBackward(_)) {
            continue;
        }
        // What an earlier choice asked for.
        step.writes.retain(|write| plan.buffer(write.buffer).role != Role::Scratch);
        let dtype = plan.io(&step).dtype("q");
        let split = dtype == Dtype::Fp32 || options.attention == AttentionPath::Split;
        let sequences = plan.io(&step).rows("q") / length(&step.op).max(1);
        let mut scratch = Vec::new();
        match &mut step.op {
            Op::Attention(op) if split => {
                let sequences = at_once(op, sequences);
                op.form = Form::Split { sequences };
                let shape = scores(op, sequences);
                scratch.push(("scores", shape.clone(), Dtype::Fp32));
                if dtype != Dtype::Fp32 {
                    scratch.push(("probabilities", shape, dtype));
                }
            }
            Op::Attention(op) => op.form = Form::Fused,
            Op::AttentionBackward(backward) if split => {
                let sequences = at_once(&backward.attention, sequences);
                backward.form = BackwardForm::Split { sequences };
                let shape = scores(&backward.attention, sequences);
                scratch.push(("scores", shape.clone(), Dtype::Fp32));
                scratch.push(("d_scores", shape.clone(), Dtype::Fp32));
                if dtype != Dtype::Fp32 {
                    scratch.push(("probabilities", shape.clone(), dtype));
                    scratch.push(("d_scores_narrow", shape, dtype));
                }
            }
            Op::AttentionBackward(backward) => {
                let op = &backward.attention;
                scratch.push(("delta", vec![sequences, op.heads, op.length], Dtype::Fp32));
                if options.deterministic {
                    backward.form = BackwardForm::Ordered;
                } else {
                    scratch.push(("d_q_sum", d_q_sum_shape(op, sequences), Dtype::Fp32));
                    backward.form = BackwardForm::Free;
                }
            }
            _ => {}
        }
        add(&mut plan, &mut step, scratch);
        plan.steps[index] = step;
    }
    plan
}

fn length(op: &Op) -> usize {
    match op {
        Op::Attention(op) => op.length,
        Op::AttentionBackward(backward) => backward.attention.length,
        _ => 1,
    }
}

/// Sequences whose scores exist at once.
fn at_once(op: &Attention, sequences: usize) -> usize {
    let bytes = Dtype::Fp32.bytes() * op.heads * op.length * score_stride(op.length);
    (SCORES / bytes.max(1)).clamp(1, sequences.max(1))
}

fn scores(op: &Attention, sequences: usize) -> Vec<usize> {
    vec![sequences * op.heads * op.length, score_stride(op.length)]
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
