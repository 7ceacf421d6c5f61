//! Rows of a table, chosen by token: `y[t] = scale table[tokens[t]]`.
//!
//! The gradient of the table is summed in the order of `token_order`, the positions sorted by token (stably), which
//! the loader's thread prepares: the sum has one order, whatever runs it.

use super::Operation;
use super::rowwise::{
    BLOCK, MISSING, UNEVEN, VIEW, WARP, WIDTH, accumulate, any_view, count, elementwise, kernel, launches,
    pointer,
};
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::{Launch, Lowered};
use crate::plan::{Io, Mode, Step};
use crate::spec::{KernelSpec, SpecValue, field};
use crate::tape::{Tape, read};

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, case},
    float::Float,
    reference::{Inputs, Outputs},
};

/// Reads tokens [rows], table [vocab, d], token_order [rows] (used by the gradient). Writes y [rows, d].
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// Number of tokens; rows of the table beyond it are padding.
    pub vocab: usize,
    /// What the rows are multiplied by.
    pub scale: f64,
}

/// Reads d_y [rows, d], tokens, token_order. Writes d_table.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingBackward(pub Embedding);

impl Operation for Embedding {
    const NAME: &'static str = "embedding";
    const STREAM: &'static [&'static str] = &["y"];

    fn cost(&self, io: &Io) -> Cost {
        let y = io.buffer("y");
        let row = (io.dtype("table").bytes() + y.dtype.bytes()) as f64;
        Cost { bytes: y.len() as f64 * row + io.buffer("tokens").bytes() as f64, ..Cost::default() }
    }

    fn backward(&self, step: &Step, _index: usize, tape: &mut Tape) {
        let Some(d_y) = tape.gradient(step, "y", "d_y") else { return };
        let id = |slot| Tape::id(step, slot).map(|buffer| read(slot, buffer));
        let reads = [Some(d_y), id("tokens"), id("token_order")].into_iter().flatten().collect();
        let writes = tape.into(step, "table", "d_table").into_iter().collect();
        tape.emit(EmbeddingBackward(self.clone()), reads, writes);
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        rows_of_table(io, ["y", "table", "tokens"], self.scale)
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let table = inputs.get("table");
        let (_, d) = inputs.dims("table");
        let mut y = Vec::new();
        for (position, token) in inputs.integers("tokens").into_iter().enumerate() {
            let token = token_index(token, self.vocab, position)?;
            y.extend(table[token * d..][..d].iter().map(|value| *value * F::of(self.scale)));
        }
        Ok(vec![("y", y)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |tokens: Vec<i32>, (vocab, rows): (usize, usize), d: usize, scale: f64| {
            let n = tokens.len();
            let mut order: Vec<i32> = (0..n as i32).collect();
            order.sort_by_key(|position| tokens[*position as usize]);
            let reads = [
                ("tokens", vec![n], Fill::Ints(tokens)),
                ("table", vec![rows, d], Fill::Normal(1.0)),
                ("token_order", vec![n], Fill::Ints(order)),
            ];
            let op = Embedding { vocab, scale };
            case(&format!("{n} of {vocab}x{d}"), op, &reads, &[("y", vec![n, d])])
        };
        vec![one(vec![3, 0, 3, 10, 3, 7, 0], (11, 16), 24, 1.0), one(vec![0], (2, 2), 8, 2.5)]
    }
}

/// The kernel of `y[t] = scale table[token[t]]`, for these slots.
pub(super) fn rows_of_table(io: &Io, [y, table, token]: [&str; 3], scale: f64) -> Lowered {
    let columns = io.columns(y);
    if !columns.is_multiple_of(WIDTH) {
        return UNEVEN;
    }
    if any_view(io, &[y, table]) {
        return VIEW;
    }
    let spec = KernelSpec {
        template: "embedding/forward",
        block: BLOCK,
        shared_memory: 0,
        fields: vec![
            field("table_type", "", SpecValue::Type(io.dtype(table))),
            field("y_type", "", SpecValue::Type(io.dtype(y))),
            field("columns", "d", SpecValue::Int(columns as i64)),
            field("scale", "s", SpecValue::Float(scale)),
        ],
    };
    let slots = [y, table, token].map(|slot| pointer(io, slot));
    let rows = io.rows(y);
    elementwise(spec, rows * columns, [&slots[..], &[count(rows)]].concat())
}

/// A token as an index, or what is wrong with it.
///
/// # Errors
/// When it is not below `vocab`.
pub fn token_index(token: i64, vocab: usize, position: usize) -> Result<usize, String> {
    usize::try_from(token).ok().filter(|token| *token < vocab).ok_or_else(|| {
        format!("token at position {position} must be from 0 to {}, found `{token}`", vocab - 1)
    })
}

impl Operation for EmbeddingBackward {
    const NAME: &'static str = "embedding_backward";
    const STREAM: &'static [&'static str] = &["d_y"];

    fn cost(&self, io: &Io) -> Cost {
        let d_y = io.buffer("d_y");
        let row = d_y.columns() * io.dtype("d_table").bytes();
        let touched = (io.rows("d_table").min(d_y.rows()) * row) as f64;
        let bytes = d_y.bytes() as f64 + 2.0 * io.buffer("tokens").bytes() as f64 + 2.0 * touched;
        Cost { vector_flops: d_y.len() as f64, bytes, ..Cost::default() }
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let (Some(d_table), Some(_)) = (io.id("d_table"), io.id("token_order")) else { return MISSING };
        let columns = io.columns("d_y");
        if !columns.is_multiple_of(WIDTH) {
            return UNEVEN;
        }
        if any_view(io, &["d_y", "d_table"]) {
            return VIEW;
        }
        let warps = BLOCK as usize / WARP;
        let slice = WARP * WIDTH;
        let spec = KernelSpec {
            template: "embedding/backward",
            block: BLOCK,
            // A record of 16 bytes and a slice of sums for each warp.
            shared_memory: (warps * (16 + slice * 4)) as u32,
            fields: vec![
                field("dy_type", "", SpecValue::Type(io.dtype("d_y"))),
                field("d_table_type", "", SpecValue::Type(io.dtype("d_table"))),
                field("columns", "d", SpecValue::Int(columns as i64)),
                field("scale", "s", SpecValue::Float(self.0.scale)),
            ],
        };
        let rows = io.rows("d_y");
        let blocks = [rows.div_ceil(warps), columns.div_ceil(slice), 1];
        let slots = ["d_table", "d_y", "tokens", "token_order"].map(|slot| pointer(io, slot));
        let arguments = [&slots[..], &[count(rows), accumulate(io, "d_table")]].concat();
        let sum = kernel(spec, blocks, arguments);
        // The kernel visits only the rows that some token names.
        match io.mode("d_table") {
            Some(Mode::Overwrite) => launches([Some(Launch::Zero { buffer: d_table }), sum]),
            _ => launches([sum]),
        }
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (d_y, tokens) = (inputs.get("d_y"), inputs.integers("tokens"));
        let (rows, d) = inputs.output_dims("d_table");
        let mut d_table = vec![F::default(); rows * d];
        for position in inputs.integers("token_order") {
            let position = token_index(position, tokens.len(), 0)?;
            let token = token_index(tokens[position], self.0.vocab, position)?;
            for i in 0..d {
                d_table[token * d + i] += d_y[position * d + i] * F::of(self.0.scale);
            }
        }
        Ok(vec![("d_table", d_table)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        Vec::new()
    }
}
