//! A matrix product with a weight: `y = x weight^T (+ bias) (+ residual)`, weight [outputs, inputs].

use super::Operation;
use super::rowwise::{
    MISSING, UNEVEN, accumulate, aligned, column_sums, column_totals, launches, partials_shape,
};
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::{Gemm, Launch, Lowered, Operand};
use crate::plan::{Io, Mode, Step, Write};
use crate::tape::{Tape, read, write};

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, case},
    float::Float,
    reference::{Inputs, Outputs},
};

/// Reads x [rows, inputs], weight [outputs, inputs], and where present bias [outputs] and residual [rows, outputs].
/// Writes y [rows, outputs].
#[derive(Clone, Debug, PartialEq)]
pub struct Linear;

/// Reads d_y, x, weight. Writes d_x, d_weight and, where the linear has a bias, d_bias and partials, the sums of d_bias
/// over fixed sets of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearBackward;

/// Where the gradients of x, weight and bias go, and the scratch of a bias's, summed over `rows` rows at a time.
pub(super) fn gradient_writes(step: &Step, tape: &mut Tape, rows: usize) -> Vec<Write> {
    let writes = [
        tape.into(step, "x", "d_x"),
        tape.into(step, "weight", "d_weight"),
        tape.into(step, "bias", "d_bias"),
    ];
    let mut writes: Vec<_> = writes.into_iter().flatten().collect();
    if let Some(bias) = Tape::id(step, "bias") {
        let bias = tape.plan().buffer(bias);
        let (name, shape) = (format!("{}.partials", bias.name), partials_shape(rows, bias.len()));
        writes.push(write("partials", tape.scratch(name, shape)));
    }
    writes
}

impl Operation for Linear {
    const NAME: &'static str = "linear";
    const NARROW: &'static [&'static str] = &["x", "weight"];
    const STREAM: &'static [&'static str] = &["residual"];

    fn cost(&self, io: &Io) -> Cost {
        let (y, inputs) = (io.buffer("y").len() as f64, io.columns("x") as f64);
        Cost { tensor_flops: 2.0 * y * inputs, bytes: io.bytes(), ..Cost::default() }
    }

    fn backward(&self, step: &Step, index: usize, tape: &mut Tape) {
        let Some(d_y) = tape.gradient(step, "y", "d_y") else { return };
        let id = |slot| Tape::id(step, slot).map(|buffer| read(slot, buffer));
        let reads = [Some(d_y), id("x"), id("weight")].into_iter().flatten().collect();
        let rows = tape.plan().buffer(d_y.buffer).rows();
        let writes = gradient_writes(step, tape, rows);
        tape.emit(LinearBackward, reads, writes);
        tape.pass_on(step, index, "y", &["residual"]);
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let operand =
            |slot, transposed| io.id(slot).map(|buffer| Operand { transposed, ..Operand::plain(buffer) });
        let (Some(a), Some(b), Some(d)) = (operand("x", false), operand("weight", true), io.id("y")) else {
            return Lowered::NoKernel("the step lacks a slot");
        };
        if io.mode("y") != Some(Mode::Overwrite) && io.has("residual") {
            return Lowered::NoKernel("a product adds to what is there or to a residual, not to both");
        }
        Lowered::Launches(vec![Launch::Gemm(Gemm {
            a,
            b,
            c: if io.mode("y") == Some(Mode::Overwrite) { io.id("residual") } else { Some(d) },
            bias: io.id("bias"),
            d,
            row: 0,
            batches: Vec::new(),
            m: io.rows("y"),
            n: io.columns("y"),
            k: io.columns("x"),
        })])
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (x, weight) = (inputs.get("x"), inputs.get("weight"));
        let (rows, k) = inputs.dims("x");
        let (n, _) = inputs.dims("weight");
        let mut y = vec![F::default(); rows * n];
        for row in 0..rows {
            for column in 0..n {
                let mut sum = F::default();
                for i in 0..k {
                    sum += inputs.operand(x[row * k + i]) * inputs.operand(weight[column * k + i]);
                }
                if let Some(bias) = inputs.find("bias") {
                    sum += bias[column];
                }
                if let Some(residual) = inputs.find("residual") {
                    sum += residual[row * n + column];
                }
                y[row * n + column] = sum;
            }
        }
        Ok(vec![("y", y)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |rows: usize, k: usize, n: usize, extras: &[&'static str]| {
            let mut reads =
                vec![("x", vec![rows, k], Fill::Normal(1.0)), ("weight", vec![n, k], Fill::Normal(0.5))];
            for extra in extras {
                let shape = if *extra == "bias" { vec![n] } else { vec![rows, n] };
                reads.push((extra, shape, Fill::Normal(0.7)));
            }
            let label = format!("{rows}x{k} -> {n} {}", extras.join("+"));
            case(&label, Linear, &reads, &[("y", vec![rows, n])])
        };
        vec![
            one(5, 24, 16, &[]),
            one(1, 8, 40, &["bias"]),
            one(67, 40, 24, &["bias", "residual"]),
            one(3, 16, 8, &["residual"]),
        ]
    }
}

impl Operation for LinearBackward {
    const NAME: &'static str = "linear_backward";
    const NARROW: &'static [&'static str] = &["d_y", "x", "weight"];

    fn cost(&self, io: &Io) -> Cost {
        let products = f64::from(u8::from(io.has("d_x")) + u8::from(io.has("d_weight")));
        let work = io.buffer("d_y").len() as f64 * io.columns("x") as f64;
        let bias = if io.has("d_bias") { io.buffer("d_y").len() as f64 } else { 0.0 };
        Cost { tensor_flops: products * 2.0 * work, vector_flops: bias, bytes: io.bytes() }
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let operand =
            |slot, transposed| io.id(slot).map(|buffer| Operand { transposed, ..Operand::plain(buffer) });
        let (rows, n, k) = (io.rows("d_y"), io.columns("d_y"), io.columns("x"));
        let product = |a, b, slot, (m, n, k)| {
            let d = io.id(slot)?;
            let c = (io.mode(slot) != Some(Mode::Overwrite)).then_some(d);
            Some(Launch::Gemm(Gemm { a: a?, b: b?, c, bias: None, d, row: 0, batches: Vec::new(), m, n, k }))
        };
        let d_x = product(operand("d_y", false), operand("weight", false), "d_x", (rows, k, n));
        let d_weight = product(operand("d_y", true), operand("x", false), "d_weight", (n, k, rows));
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
        Ok(vec![("d_x", d_x), ("d_weight", d_weight), ("d_bias", d_bias)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        Vec::new()
    }
}
