//! Logits for the asked rows, `logits[i] = f(x[positions[i]] weight^T (+ bias))` where f scales and caps. For generation;
//! it has no gradient.

use super::Operation;
use super::embedding::token_index;
use crate::arch::Arch;
use crate::cost::Cost;
use crate::float::Float;
use crate::launch::Lowered;
use crate::plan::Io;

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, case},
    reference::{Inputs, Outputs},
};

/// What is done to the products of the head, in training and out of it: `c tanh(scale (x weight^T + bias) / c)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logits {
    /// Number of tokens; rows of the weight beyond it are padding.
    pub vocab: usize,
    /// What products are multiplied by.
    pub scale: f64,
    /// The bound c of the logits (Gemma 2, 2024).
    pub softcap: Option<f64>,
}

impl Logits {
    /// The logit of a product, and its derivative by that product.
    pub fn value_and_slope<F: Float>(&self, product: F) -> (F, F) {
        let scale = F::of(self.scale);
        let Some(cap) = self.softcap.map(F::of) else { return (product * scale, scale) };
        let t = (product * scale / cap).tanh();
        (cap * t, (F::of(1.0) - t * t) * scale)
    }
}

/// Reads x [rows, d], weight [vocab or more, d], positions [n], and where there is one bias [vocab or more]. Writes
/// logits [n, vocab].
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// From products to logits.
    pub logits: Logits,
}

/// A row number as an index.
///
/// # Errors
/// When it is not below `rows`.
pub fn row_index(position: i64, rows: usize, at: usize) -> Result<usize, String> {
    token_index(position, rows, at).map_err(|error| format!("asked position: {error}"))
}

impl Operation for Head {
    const NAME: &'static str = "head";
    const NARROW: &'static [&'static str] = &["x", "weight"];

    fn cost(&self, io: &Io) -> Cost {
        let logits = io.buffer("logits");
        let (asked, d) = (logits.rows() as f64, io.columns("x") as f64);
        let bytes = io.bytes() - io.buffer("x").bytes() as f64 + asked * d * 4.0;
        Cost { tensor_flops: 2.0 * logits.len() as f64 * d, bytes, ..Cost::default() }
    }

    fn lower(&self, _io: &Io, _arch: &Arch) -> Lowered {
        Lowered::NoKernel("no kernel yet")
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (x, weight) = (inputs.get("x"), inputs.get("weight"));
        let (rows, d) = inputs.dims("x");
        let mut logits = Vec::new();
        for (at, position) in inputs.integers("positions").into_iter().enumerate() {
            let row = row_index(position, rows, at)?;
            for token in 0..self.logits.vocab {
                let dot =
                    (0..d).map(|i| inputs.operand(x[row * d + i]) * inputs.operand(weight[token * d + i]));
                let bias = inputs.find("bias").map_or(F::default(), |bias| bias[token]);
                logits.push(self.logits.value_and_slope(dot.sum::<F>() + bias).0);
            }
        }
        Ok(vec![("logits", logits)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |logits: Logits, rows: usize, bias: bool| {
            let mut reads = vec![
                ("x", vec![9, 24], Fill::Normal(1.0)),
                ("weight", vec![rows, 24], Fill::Normal(0.5)),
                ("positions", vec![4], Fill::Ints(vec![8, 0, 3, 3])),
            ];
            if bias {
                reads.push(("bias", vec![rows], Fill::Normal(1.0)));
            }
            let label = format!("4 of 9x24, {logits:?}, {rows} rows");
            case(&label, Head { logits }, &reads, &[("logits", vec![4, logits.vocab])])
        };
        vec![
            one(Logits { vocab: 13, scale: 1.0, softcap: None }, 13, false),
            one(Logits { vocab: 11, scale: 0.4, softcap: Some(3.0) }, 16, true),
        ]
    }
}
