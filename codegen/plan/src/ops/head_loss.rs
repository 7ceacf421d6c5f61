//! The head and the loss in one: `logits = x weight^T`, softmax cross-entropy, and in training both gradients.
//!
//! `loss = inverse_count sum over counted rows of (ln sum exp logits - logits[target])`. Rows whose target is -100
//! are not counted; `inverse_count` is 1 over the number of counted rows of the whole step (all micro-batches), or 0
//! when there is none. `d_logits = inverse_count (softmax(logits) - onehot(target))`. Logits exist for `chunk` rows at a
//! time only, which is why the gradients are made here and not by a step of their own.

use super::Operation;
use super::embedding::token_index;
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::Lowered;
use crate::plan::{Io, Mode, Step, Write};
use crate::tape::Tape;

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, case},
    float::Float,
    reference::{Inputs, Outputs},
};

/// The target of a row that does not count.
pub const IGNORED: i32 = -100;

/// Reads x [rows, d], weight [vocab, d], targets [rows], inverse_count [1]. Writes loss [1] and in training d_x,
/// d_weight; logits [chunk, vocab] is scratch.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadLoss {
    /// Rows of logits that exist at once.
    pub chunk: usize,
}

/// The target of a row as an index, `None` when it does not count.
///
/// # Errors
/// When it is neither [`IGNORED`] nor below `vocab`.
pub fn target_index(target: i64, vocab: usize, row: usize) -> Result<Option<usize>, String> {
    if target == i64::from(IGNORED) {
        return Ok(None);
    }
    token_index(target, vocab, row).map(Some).map_err(|error| format!("target: {error}, or {IGNORED}"))
}

impl Operation for HeadLoss {
    const NAME: &'static str = "head_loss";
    const NARROW: &'static [&'static str] = &["x", "weight"];

    fn cost(&self, io: &Io) -> Cost {
        let logits = io.rows("x") as f64 * io.rows("weight") as f64;
        let products = 1 + u8::from(io.has("d_x")) + u8::from(io.has("d_weight"));
        let tensor_flops = f64::from(products) * 2.0 * logits * io.columns("x") as f64;
        // The logits are written and read once by the loss, and twice more for the gradients.
        let logits_bytes = logits * io.dtype("x").bytes() as f64 * f64::from(2 * products);
        Cost { tensor_flops, vector_flops: 6.0 * logits, bytes: io.bytes() + logits_bytes }
    }

    /// The forward step itself makes the gradients: it only has to be told where they go.
    fn backward(&self, step: &Step, index: usize, tape: &mut Tape) {
        let writes = [tape.into(step, "x", "d_x"), tape.into(step, "weight", "d_weight")];
        tape.extend_forward(index, writes.into_iter().flatten().collect());
    }

    fn lower(&self, _io: &Io, _arch: &Arch) -> Lowered {
        Lowered::NoKernel("no kernel yet")
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (x, weight, scale) = (inputs.get("x"), inputs.get("weight"), inputs.get("inverse_count")[0]);
        let ((_, d), (vocab, _)) = (inputs.dims("x"), inputs.dims("weight"));
        let mut loss = F::default();
        let (mut d_x, mut d_weight) = (vec![F::default(); x.len()], vec![F::default(); weight.len()]);
        for (row, target) in inputs.integers("targets").into_iter().enumerate() {
            let Some(target) = target_index(target, vocab, row)? else { continue };
            let x = &x[row * d..][..d];
            let logit = |token: usize| {
                (0..d).map(|i| inputs.operand(x[i]) * inputs.operand(weight[token * d + i])).sum::<F>()
            };
            let logits: Vec<F> = (0..vocab).map(logit).collect();
            let max = logits.iter().copied().fold(logits[0], |a, b| if b > a { b } else { a });
            let lse = max + logits.iter().map(|logit| (*logit - max).exp()).sum::<F>().ln();
            loss += (lse - logits[target]) * scale;
            for token in 0..vocab {
                let one = F::of(f64::from(u8::from(token == target)));
                let g = inputs.operand(((logits[token] - lse).exp() - one) * scale);
                for i in 0..d {
                    d_x[row * d + i] += g * inputs.operand(weight[token * d + i]);
                    d_weight[token * d + i] += g * inputs.operand(x[i]);
                }
            }
        }
        Ok(vec![("loss", vec![loss]), ("d_x", d_x), ("d_weight", d_weight)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |targets: Vec<i32>, vocab: usize, d: usize, chunk: usize| {
            let rows = targets.len();
            let counted = targets.iter().filter(|target| **target != IGNORED).count();
            let inverse = if counted == 0 { 0.0 } else { 1.0 / counted as f32 };
            let reads = [
                ("x", vec![rows, d], Fill::Normal(1.0)),
                ("weight", vec![vocab, d], Fill::Normal(0.6)),
                ("targets", vec![rows], Fill::Ints(targets)),
                ("inverse_count", vec![1], Fill::Values(vec![inverse])),
            ];
            let label = format!("{rows}x{d} of {vocab}, {counted} counted, chunk {chunk}");
            let mut case = case(&label, HeadLoss { chunk }, &reads, &[("loss", vec![1])]);
            scratch(&mut case.plan, chunk.min(rows), vocab);
            case
        };
        vec![
            one(vec![3, -100, 0, 10, 4, 4, 10], 11, 24, 3),
            one(vec![1], 2, 8, 512),
            one(vec![-100, -100, -100], 5, 16, 2),
            one((0..70).map(|i| i * 7 % 33).collect(), 33, 40, 64),
        ]
    }
}

/// Gives every `head_loss` step of a plan room for the logits of `chunk` rows.
pub fn scratch(plan: &mut crate::plan::Plan, chunk: usize, vocab: usize) {
    for index in 0..plan.steps.len() {
        if matches!(plan.steps[index].op, super::Op::HeadLoss(_)) {
            let dtype = plan.io(&plan.steps[index]).dtype("x");
            let buffer = plan.add("logits", vec![chunk, vocab], dtype, crate::buffer::Role::Scratch);
            plan.steps[index].writes.push(Write { slot: "logits", buffer, mode: Mode::Overwrite });
        }
    }
    *plan = crate::passes::memory::place(std::mem::take(plan));
}
