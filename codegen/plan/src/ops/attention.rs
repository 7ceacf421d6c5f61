//! Attention with grouped key and value heads; of all keys or a window of them, with or without a softcap.
//!
//! Per query head h with kv head h / (heads / kv_heads): `S = scale q k^T`, with a softcap c `S = c tanh(scale q k^T / c)`
//! (Gemma 2, 2024); `P = softmax(S)`, `out = P v`; kept for the gradient is `lse = ln sum exp S` per row, from which
//! `P = exp(S - lse)` is recomputed (T. Dao et al., FlashAttention, 2022). Gradient: `dP = d_out v^T`,
//! `dS = P (dP - rowsum(d_out out))`, times `1 - (S / c)^2` behind a softcap. Where a query sees no key, `out = 0`,
//! `lse = -infinity`, and its gradient is 0.

#[cfg(feature = "reference")]
mod cases;
mod fused;
mod fused_backward;
mod fused_hopper;
mod hopper_backward;
mod hopper_wide_backward;
mod split;
mod strides;
mod window;

pub use fused_backward::{SHARES, d_q_sum_shape, shares_shape};
pub use window::Window;

use super::Operation;
use crate::arch::Arch;
use crate::cost::Cost;
use crate::dtype::Dtype;
use crate::launch::Lowered;
use crate::plan::{Io, Step};
use crate::spec::{SpecField, SpecValue, field};
use crate::tape::{Tape, read};
use crate::tile::{self, Mask};

#[cfg(feature = "reference")]
use super::softcap::softcap;
#[cfg(feature = "reference")]
use crate::{
    case::Case,
    float::Float,
    reference::{Inputs, Outputs},
};

/// Reads q [batch * length, heads * head_dim], k and v [batch * key_length, kv_heads * head_dim]. Writes out like q and, where
/// there is a gradient to come, lse [batch, heads, length]. A slot may also be [batch, heads, length, head_dim].
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Queries of a sequence.
    pub length: usize,
    /// Keys and values of a sequence.
    pub key_length: usize,
    /// Which keys a query sees.
    pub window: Window,
    /// Bound of the scores.
    pub softcap: Option<f64>,
    /// What products of queries and keys are multiplied by.
    pub scale: f64,
    /// How it is computed on a GPU.
    pub form: Form,
}

/// How attention is computed on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In one kernel that never writes the scores. Operands must be narrow.
    Fused,
    /// Product, softmax, product. Scratch: `scores` [sequences * heads * length, stride], and where operands are narrow
    /// `probabilities` of the same shape in their type; `sequences` are worked on at a time.
    Split {
        /// Sequences whose scores exist at once.
        sequences: usize,
    },
}

/// Reads q, k, v, out, lse, d_out. Writes d_q, d_k, d_v.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionBackward {
    /// The op whose gradient it is.
    pub attention: Attention,
    /// How it is computed on a GPU.
    pub form: BackwardForm,
}

/// How the gradient of attention is computed on a GPU. With the scratch [`SHARES`], each of [`shares_shape`], a block of the
/// pass over keys owns those of one query head, and the shares are added up in one order; else those of one head of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackwardForm {
    /// In any order: one pass over tiles of keys, which adds to the queries' gradient. Scratch: `delta` [batch, heads, length],
    /// `d_q_sum` of [`d_q_sum_shape`], perhaps shares; without `d_q_sum` it is ordered.
    Free,
    /// The same bits every time: the queries' gradient in a pass of its own; or where there is `d_q_sum` and the GPU can, in one
    /// pass that adds in turns. Scratch: `delta`, perhaps shares.
    Ordered,
    /// Products and a softmax over scores in memory. Scratch: `scores` and `d_scores` as in [`Form::Split`], and where
    /// operands are narrow `probabilities` and `d_scores_narrow` in their type.
    Split {
        /// Sequences whose scores exist at once.
        sequences: usize,
    },
}

/// Distance between rows of scores in memory, of so many keys: whole 16-byte words of any type.
#[must_use]
pub fn score_stride(key_length: usize) -> usize {
    key_length.next_multiple_of(8)
}

/// Longest sequence: positions beyond it, by a window and a tile, are still counted in 32 bits.
const LONGEST: usize = 1 << 29;

/// What turns products of queries and keys into scores, as every template of attention is told; a bound of -1 or a cap of 0
/// is none.
fn mask_and_scale(op: &Attention) -> [SpecField; 4] {
    // As long as a sequence may be, a bound leaves what none would.
    let bound =
        |bound: Option<usize>| bound.filter(|bound| *bound < LONGEST).map_or(-1, |bound| bound as i64);
    [
        field("left", "wl", SpecValue::Int(bound(op.window.left))),
        field("right", "wr", SpecValue::Int(bound(op.window.right))),
        field("scale", "s", SpecValue::Float(op.scale)),
        field("cap", "c", SpecValue::Float(op.softcap.unwrap_or(0.0))),
    ]
}

impl Attention {
    /// Keys that a query sees.
    #[must_use]
    pub fn seen(&self, query: usize) -> std::ops::Range<usize> {
        self.window.keys_of(query, [self.length, self.key_length])
    }

    /// Queries that see a key.
    #[must_use]
    pub fn seen_by(&self, key: usize) -> std::ops::Range<usize> {
        self.window.queries_of(key, [self.length, self.key_length])
    }

    /// How many of a sequence's first queries see no key.
    #[must_use]
    pub fn blind(&self) -> usize {
        self.seen_by(0).start
    }

    /// Does the softcap bound e^s, and sums of it over any length, to numbers of the operands' type, so that no greatest score need
    /// be followed? The rest of the exponents of fp32 and bf16 is left for the values and the sums.
    #[must_use]
    pub fn is_fixed(&self, dtype: Dtype) -> bool {
        const EXPONENTS: f64 = 80.0;
        dtype == Dtype::Bf16 && self.softcap.is_some_and(|cap| cap * std::f64::consts::LOG2_E <= EXPONENTS)
    }

    /// What a tile depends on, over so many sequences; of a gradient, whether sums have one order.
    #[must_use]
    pub fn for_tiles(&self, dtype: Dtype, sequences: usize, ordered: bool) -> tile::Op {
        let mask = match self.window {
            Window::FULL => Mask::Full,
            Window::CAUSAL => Mask::Causal,
            _ => Mask::Window,
        };
        tile::Op {
            head_dim: self.head_dim,
            group: self.heads / self.kv_heads,
            heads: sequences * self.heads,
            length: self.length,
            mask,
            capped: self.softcap.is_some(),
            fixed: self.is_fixed(dtype),
            ordered,
        }
    }

    /// Pairs of query and key of all heads, if a sequence has that many.
    fn pairs(&self, io: &Io, of_sequence: usize) -> f64 {
        let sequences = self.sequences(io) as f64;
        sequences * self.heads as f64 * of_sequence as f64
    }

    /// Pairs that the mask leaves.
    fn seen_pairs(&self, io: &Io) -> f64 {
        self.pairs(io, (0..self.length).map(|query| self.seen(query).len()).sum())
    }

    /// Cost of `products` products over pairs, and of `work` operations for each pair seen. Where scores are in memory,
    /// products are over all pairs, and each pair moves `moved` bytes.
    fn cost_of(&self, io: &Io, (products, work): (f64, f64), moved: Option<usize>) -> Cost {
        let (seen, all) = (self.seen_pairs(io), self.pairs(io, self.length * self.key_length));
        let multiplied = if moved.is_some() { all } else { seen };
        Cost {
            tensor_flops: products * 2.0 * multiplied * self.head_dim as f64,
            vector_flops: work * seen,
            bytes: io.bytes() + all * moved.unwrap_or(0) as f64,
        }
    }

    /// The score of a product of query and key, and its derivative by the scaled product.
    #[cfg(feature = "reference")]
    fn score<F: Float>(&self, product: F) -> (F, F) {
        softcap(product * F::of(self.scale), self.softcap)
    }

    /// Calls `visit` with (batch, head, kv head, query) for all of them.
    #[cfg(feature = "reference")]
    fn each_query(&self, sequences: usize, mut visit: impl FnMut(usize, usize, usize, usize)) {
        for batch in 0..sequences {
            for head in 0..self.heads {
                for query in 0..self.length {
                    visit(batch, head, head / (self.heads / self.kv_heads), query);
                }
            }
        }
    }
}

impl Operation for Attention {
    const NAME: &'static str = "attention";
    const NARROW: &'static [&'static str] = &["q", "k", "v"];

    fn cost(&self, io: &Io) -> Cost {
        // Scores and probabilities are written and read once each.
        let moved = match self.form {
            Form::Fused => None,
            Form::Split { .. } => Some(2 * (Dtype::Fp32.bytes() + io.dtype("q").bytes())),
        };
        self.cost_of(io, (2.0, 4.0), moved)
    }

    fn backward(&self, step: &Step, _index: usize, tape: &mut Tape) {
        let Some(d_out) = tape.gradient(step, "out", "d_out") else { return };
        let id = |slot| Tape::id(step, slot).map(|buffer| read(slot, buffer));
        let reads = [id("q"), id("k"), id("v"), id("out"), id("lse"), Some(d_out)];
        let writes = [tape.into(step, "q", "d_q"), tape.into(step, "k", "d_k"), tape.into(step, "v", "d_v")];
        tape.emit(
            AttentionBackward { attention: self.clone(), form: BackwardForm::Ordered },
            reads.into_iter().flatten().collect(),
            writes.into_iter().flatten().collect(),
        );
    }

    fn lower(&self, io: &Io, arch: &Arch) -> Lowered {
        match self.form {
            Form::Fused => fused::lower(self, io, arch),
            Form::Split { sequences } => split::lower(self, sequences, io),
        }
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (q, k, v) = (inputs.get("q"), inputs.get("k"), inputs.get("v"));
        let [of_q, of_k, of_v] = ["q", "k", "v"].map(|slot| (inputs.dims(slot).1, slot));
        let of_out = (inputs.output_dims("out").1, "out");
        let d = self.head_dim;
        let mut out = vec![F::default(); q.len()];
        let mut lse = Vec::new();
        self.each_query(self.sequences_of(q.len()), |batch, head, kv_head, query| {
            let [at, to] = [of_q, of_out].map(|of| self.at(of, [batch, head, query]));
            let scores = self.seen(query).map(|key| {
                let from = self.at(of_k, [batch, kv_head, key]);
                let dot = (0..d).map(|i| inputs.operand(q[at + i]) * inputs.operand(k[from + i]));
                self.score(dot.sum::<F>()).0
            });
            let scores: Vec<F> = scores.collect();
            if scores.is_empty() {
                lse.push(F::of(f64::NEG_INFINITY));
                return;
            }
            let max = scores.iter().copied().fold(scores[0], |a, b| if b > a { b } else { a });
            let sum = scores.iter().map(|s| (*s - max).exp()).sum::<F>();
            for (key, score) in self.seen(query).zip(&scores) {
                let p = inputs.operand((*score - max).exp());
                let from = self.at(of_v, [batch, kv_head, key]);
                for i in 0..d {
                    out[to + i] += p * inputs.operand(v[from + i]);
                }
            }
            for value in &mut out[to..to + d] {
                *value = *value / sum;
            }
            lse.push(max + sum.ln());
        });
        Ok(vec![("out", out), ("lse", lse)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        cases::all()
    }
}

impl Operation for AttentionBackward {
    const NAME: &'static str = "attention_backward";
    const NARROW: &'static [&'static str] = &["q", "k", "v", "out", "d_out"];

    fn cost(&self, io: &Io) -> Cost {
        // Scores, probabilities and the gradients of both are written and read once, those of scores read twice.
        let moved = match self.form {
            BackwardForm::Free | BackwardForm::Ordered => None,
            BackwardForm::Split { .. } => Some(4 * Dtype::Fp32.bytes() + 5 * io.dtype("q").bytes()),
        };
        let cost = self.attention.cost_of(io, (5.0, 8.0), moved);
        Cost { bytes: cost.bytes + fused_backward::sum_bytes(io), ..cost }
    }

    fn lower(&self, io: &Io, arch: &Arch) -> Lowered {
        match self.form {
            BackwardForm::Free | BackwardForm::Ordered => fused_backward::lower(self, io, arch),
            BackwardForm::Split { sequences } => split::lower_backward(&self.attention, sequences, io),
        }
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (q, k, v) = (inputs.get("q"), inputs.get("k"), inputs.get("v"));
        let (out, lse, d_out) = (inputs.get("out"), inputs.get("lse"), inputs.get("d_out"));
        let op = &self.attention;
        let [of_q, of_k, of_v] = ["q", "k", "v"].map(|slot| (inputs.dims(slot).1, slot));
        let [of_out, of_d_out] = ["out", "d_out"].map(|slot| (inputs.dims(slot).1, slot));
        let [of_d_q, of_d_k, of_d_v] = ["d_q", "d_k", "d_v"].map(|slot| (inputs.output_dims(slot).1, slot));
        let d = op.head_dim;
        let mut d_q = vec![F::default(); q.len()];
        let (mut d_k, mut d_v) = (vec![F::default(); k.len()], vec![F::default(); v.len()]);
        op.each_query(op.sequences_of(q.len()), |batch, head, kv_head, query| {
            let of_query = [of_q, of_out, of_d_out, of_d_q].map(|of| op.at(of, [batch, head, query]));
            let [q, out, d_out] = [(q, 0), (out, 1), (d_out, 2)].map(|(all, at)| &all[of_query[at]..][..d]);
            let d_q = &mut d_q[of_query[3]..][..d];
            let lse = lse[(batch * op.heads + head) * op.length + query];
            let delta = (0..d).map(|i| d_out[i] * out[i]).sum::<F>();
            for key in op.seen(query) {
                let of_key = [of_k, of_v, of_d_k, of_d_v].map(|of| op.at(of, [batch, kv_head, key]));
                let [k, v] = [(k, 0), (v, 1)].map(|(all, at)| &all[of_key[at]..][..d]);
                let dot =
                    |a: &[F], b: &[F]| (0..d).map(|i| inputs.operand(a[i]) * inputs.operand(b[i])).sum::<F>();
                let (score, slope) = op.score(dot(q, k));
                let p = (score - lse).exp();
                let d_s = inputs.operand(p * (dot(d_out, v) - delta) * slope) * F::of(op.scale);
                let p = inputs.operand(p);
                for i in 0..d {
                    d_v[of_key[3] + i] += p * inputs.operand(d_out[i]);
                    d_q[i] += d_s * inputs.operand(k[i]);
                    d_k[of_key[2] + i] += d_s * inputs.operand(q[i]);
                }
            }
        });
        Ok(vec![("d_q", d_q), ("d_k", d_k), ("d_v", d_v)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        Vec::new()
    }
}
