//! Logits for the asked rows: `logits[i] = x[positions[i]] weight^T`. For generation; it has no gradient.

use super::Operation;
use super::embedding::token_index;
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::Lowered;
use crate::plan::Io;

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, case},
    float::Float,
    reference::{Inputs, Outputs},
};

/// Reads x [rows, d], weight [vocab, d], positions [n]. Writes logits [n, vocab].
#[derive(Clone, Debug, PartialEq)]
pub struct Head;

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
        let ((rows, d), (vocab, _)) = (inputs.dims("x"), inputs.dims("weight"));
        let mut logits = Vec::new();
        for (at, position) in inputs.integers("positions").into_iter().enumerate() {
            let row = row_index(position, rows, at)?;
            for token in 0..vocab {
                let dot =
                    (0..d).map(|i| inputs.operand(x[row * d + i]) * inputs.operand(weight[token * d + i]));
                logits.push(dot.sum());
            }
        }
        Ok(vec![("logits", logits)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let reads = [
            ("x", vec![9, 24], Fill::Normal(1.0)),
            ("weight", vec![13, 24], Fill::Normal(0.5)),
            ("positions", vec![4], Fill::Ints(vec![8, 0, 3, 3])),
        ];
        vec![case("4 of 9x24", Head, &reads, &[("logits", vec![4, 13])])]
    }
}
