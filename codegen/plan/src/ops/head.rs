//! Logits for the asked rows, `logits[i] = f(x[positions[i]] weight^T (+ bias))` where f scales and caps. For generation;
//! it has no gradient.

use super::Operation;
use super::embedding::{rows_of_table, token_index};
use super::rowwise::{BLOCK, MISSING, elements, kernel, launches, pointer};
use super::softcap::softcap;
use crate::arch::Arch;
use crate::cost::Cost;
use crate::float::Float;
use crate::launch::{Epilogue, Gemm, Launch, Lowered, Operand};
use crate::plan::Io;
use crate::spec::{KernelSpec, SpecField, SpecValue, field};

#[cfg(feature = "reference")]
use crate::{
    buffer::Role,
    case::{Case, Fill, case},
    dtype::Dtype,
    passes::memory::place,
    reference::{Inputs, Outputs},
    tape::write,
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
    /// Its compile-time values in kernels; a cap of 0 is none.
    pub(super) fn fields(&self) -> [SpecField; 2] {
        [
            field("scale", "s", SpecValue::Float(self.scale)),
            field("cap", "c", SpecValue::Float(self.softcap.unwrap_or(0.0))),
        ]
    }

    /// The logit of a product, and its derivative by that product.
    pub fn value_and_slope<F: Float>(&self, product: F) -> (F, F) {
        let scale = F::of(self.scale);
        let (value, slope) = softcap(product * scale, self.softcap);
        (value, slope * scale)
    }
}

/// Logits that a thread of the kernel owns.
const THREAD_LOGITS: usize = 4;

/// Reads x [rows, d], weight [vocab or more, d], positions [n], and where there is one bias [vocab or more]. Writes
/// logits [n, vocab]; gathered [n, d], of x's type, is scratch.
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

    /// The asked rows are gathered, multiplied, then scaled and capped where that is asked for.
    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let id = |slot| io.id(slot);
        let (Some(gathered), Some(weight), Some(logits)) = (id("gathered"), id("weight"), id("logits"))
        else {
            return MISSING;
        };
        let mut all = match rows_of_table(io, ["gathered", "x", "positions"], 1.0) {
            Lowered::Launches(launches) => launches,
            other => return other,
        };
        all.push(Launch::Gemm(Gemm {
            a: Operand::plain(gathered),
            b: Operand::turned(weight),
            c: None,
            bias: io.id("bias"),
            d: logits,
            epilogue: Epilogue::None,
            row: 0,
            batches: Vec::new(),
            m: io.rows("logits"),
            n: io.columns("logits"),
            k: io.columns("x"),
        }));
        let mut all: Vec<_> = all.into_iter().map(Some).collect();
        if self.logits.scale != 1.0 || self.logits.softcap.is_some() {
            let spec = KernelSpec {
                template: "head/logits",
                block: BLOCK,
                shared_memory: 0,
                fields: self.logits.fields().to_vec(),
            };
            let n = io.buffer("logits").len();
            let blocks = n.div_ceil(THREAD_LOGITS).div_ceil(BLOCK as usize);
            all.push(kernel(spec, [blocks, 1, 1], vec![pointer(io, "logits"), elements(n)]));
        }
        launches(all)
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
            let mut case = case(&label, Head { logits }, &reads, &[("logits", vec![4, logits.vocab])]);
            let gathered = case.plan.add("gathered", vec![4, 24], Dtype::Fp32, Role::Scratch);
            case.plan.steps[0].writes.push(write("gathered", gathered));
            case.plan = place(case.plan);
            case
        };
        vec![
            one(Logits { vocab: 13, scale: 1.0, softcap: None }, 13, false),
            one(Logits { vocab: 11, scale: 0.4, softcap: Some(3.0) }, 16, true),
        ]
    }
}
