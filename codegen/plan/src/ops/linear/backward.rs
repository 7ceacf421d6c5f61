//! The gradients of a linear: `d_x = d_y weight`, `d_weight = d_y^T x`, and d_bias, the sum of d_y over its rows. Where x is a
//! gelu, d_x may be the gradient of what it is the gelu of.

use super::super::Operation;
use super::super::rowwise::{MISSING, UNEVEN, accumulate, aligned, column_sums, column_totals, launches};
use super::{NO_GELU, takes_in};
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::{Epilogue, Gemm, Launch, Lowered, Operand};
use crate::plan::{Io, Mode};

#[cfg(feature = "reference")]
use super::GELU;
#[cfg(feature = "reference")]
use crate::{
    case::Case,
    float::Float,
    reference::{Inputs, Outputs},
};

/// Reads d_y, x, weight and, where x is the gelu of it and d_x its gradient, gelu_input. Writes d_x, d_weight and, where the
/// linear has a bias, d_bias and partials, the sums of d_bias over fixed sets of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearBackward;

impl Operation for LinearBackward {
    const NAME: &'static str = "linear_backward";
    const NARROW: &'static [&'static str] = &["d_y", "x", "weight", "gelu_input"];

    fn cost(&self, io: &Io) -> Cost {
        let products = f64::from(u8::from(io.has("d_x")) + u8::from(io.has("d_weight")));
        let work = io.buffer("d_y").len() as f64 * io.columns("x") as f64;
        let bias = if io.has("d_bias") { io.buffer("d_y").len() as f64 } else { 0.0 };
        let gelu = if io.has("gelu_input") { 12.0 * io.buffer("gelu_input").len() as f64 } else { 0.0 };
        Cost { tensor_flops: products * 2.0 * work, vector_flops: bias + gelu, bytes: io.bytes() }
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        if io.has("gelu_input") {
            let slots = ["d_y", "weight", "d_x", "gelu_input"];
            if io.mode("d_x") != Some(Mode::Overwrite) || !takes_in(io, &slots) {
                return NO_GELU;
            }
            if !aligned(io, &["d_x", "gelu_input"]) {
                return UNEVEN;
            }
        }
        let operand =
            |slot, transposed| io.id(slot).map(|buffer| Operand { transposed, ..Operand::plain(buffer) });
        let (rows, n, k) = (io.rows("d_y"), io.columns("d_y"), io.columns("x"));
        let product = |a, b, slot, epilogue, (m, n, k)| {
            let d = io.id(slot)?;
            let c = (io.mode(slot) != Some(Mode::Overwrite)).then_some(d);
            let (row, batches) = (0, Vec::new());
            Some(Launch::Gemm(Gemm { a: a?, b: b?, c, bias: None, d, epilogue, row, batches, m, n, k }))
        };
        let slope = io.id("gelu_input").map_or(Epilogue::None, Epilogue::GeluSlope);
        let d_x = product(operand("d_y", false), operand("weight", false), "d_x", slope, (rows, k, n));
        let (turned, x) = (operand("d_y", true), operand("x", false));
        let d_weight = product(turned, x, "d_weight", Epilogue::None, (n, k, rows));
        let mut all: Vec<_> = [d_x, d_weight].into_iter().flatten().map(Some).collect();
        if io.has("d_bias") {
            if !io.has("partials") {
                return MISSING;
            }
            if !aligned(io, &["d_y"]) {
                return UNEVEN;
            }
            all.push(column_sums(io, "partials", "d_y", rows));
            all.push(column_totals(io, [Some("d_bias"), None], "partials", n, accumulate(io, "d_bias")));
        }
        launches(all)
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (d_y, x, weight) = (inputs.get("d_y"), inputs.get("x"), inputs.get("weight"));
        let (rows, n) = inputs.dims("d_y");
        let (_, k) = inputs.dims("x");
        let mut d_x = vec![F::default(); rows * k];
        let mut d_weight = vec![F::default(); n * k];
        let mut d_bias = vec![F::default(); n];
        for row in 0..rows {
            for column in 0..n {
                let g = inputs.operand(d_y[row * n + column]);
                for i in 0..k {
                    d_x[row * k + i] += g * inputs.operand(weight[column * k + i]);
                    d_weight[column * k + i] += g * inputs.operand(x[row * k + i]);
                }
                d_bias[column] += d_y[row * n + column];
            }
        }
        if let Some(gelu_input) = inputs.find("gelu_input") {
            for (d_x, input) in d_x.iter_mut().zip(gelu_input) {
                *d_x = *d_x * GELU.value_and_slope(*input).1;
            }
        }
        Ok(vec![("d_x", d_x), ("d_weight", d_weight), ("d_bias", d_bias)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        Vec::new()
    }
}
