//! Learned positions: `y[b, t] = x[b, t] + table[t]`.

use super::Operation;
use super::rowwise::{BLOCK, UNEVEN, VIEW, WIDTH, accumulate, any_view, count, elementwise, pointer};
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::Lowered;
use crate::plan::{Io, Step};
use crate::spec::{KernelSpec, SpecValue, field};
use crate::tape::Tape;

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, case},
    float::Float,
    reference::{Inputs, Outputs},
};

/// Reads x [batch * length, d], table [context, d] with context >= length. Writes y like x.
#[derive(Clone, Debug, PartialEq)]
pub struct Positions {
    /// Rows per sequence.
    pub length: usize,
}

/// Reads d_y. Writes d_table: the sum over sequences; 0 past `length`.
#[derive(Clone, Debug, PartialEq)]
pub struct PositionsBackward {
    /// Rows per sequence.
    pub length: usize,
}

impl Operation for Positions {
    const NAME: &'static str = "positions";
    const STREAM: &'static [&'static str] = &["x", "y"];

    fn cost(&self, io: &Io) -> Cost {
        let (x, y) = (io.buffer("x"), io.buffer("y"));
        let table = self.length * io.columns("table") * io.dtype("table").bytes();
        let bytes = (x.bytes() + y.bytes() + table) as f64;
        Cost { vector_flops: y.len() as f64, bytes, ..Cost::default() }
    }

    fn backward(&self, step: &Step, index: usize, tape: &mut Tape) {
        let Some(d_y) = tape.gradient(step, "y", "d_y") else { return };
        let writes = tape.into(step, "table", "d_table").into_iter().collect();
        tape.emit(PositionsBackward { length: self.length }, vec![d_y], writes);
        tape.pass_on(step, index, "y", &["x"]);
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let columns = io.columns("y");
        if !columns.is_multiple_of(WIDTH) {
            return UNEVEN;
        }
        if any_view(io, &["y", "x", "table"]) {
            return VIEW;
        }
        let spec = KernelSpec {
            template: "positions/forward",
            block: BLOCK,
            shared_memory: 0,
            fields: vec![
                field("x_type", "", SpecValue::Type(io.dtype("x"))),
                field("table_type", "", SpecValue::Type(io.dtype("table"))),
                field("y_type", "", SpecValue::Type(io.dtype("y"))),
                field("columns", "d", SpecValue::Int(columns as i64)),
            ],
        };
        let slots = ["y", "x", "table"].map(|slot| pointer(io, slot));
        let rows = io.rows("y");
        elementwise(spec, rows * columns, [&slots[..], &[count(rows), count(self.length)]].concat())
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (x, table) = (inputs.get("x"), inputs.get("table"));
        let (_, d) = inputs.dims("x");
        let y = x.iter().enumerate().map(|(i, x)| *x + table[i / d % self.length * d + i % d]);
        Ok(vec![("y", y.collect())])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |batch: usize, length: usize, context: usize, d: usize| {
            let reads = [
                ("x", vec![batch * length, d], Fill::Normal(1.0)),
                ("table", vec![context, d], Fill::Normal(0.5)),
            ];
            let label = format!("{batch}x{length} of {context}x{d}");
            case(&label, Positions { length }, &reads, &[("y", vec![batch * length, d])])
        };
        vec![one(3, 5, 9, 24), one(1, 1, 1, 8), one(4, 7, 7, 16)]
    }
}

impl Operation for PositionsBackward {
    const NAME: &'static str = "positions_backward";
    const STREAM: &'static [&'static str] = &["d_y"];

    fn cost(&self, io: &Io) -> Cost {
        Cost { vector_flops: io.buffer("d_y").len() as f64, bytes: io.bytes(), ..Cost::default() }
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let columns = io.columns("d_y");
        if !columns.is_multiple_of(WIDTH) {
            return UNEVEN;
        }
        if any_view(io, &["d_y", "d_table"]) {
            return VIEW;
        }
        let spec = KernelSpec {
            template: "positions/backward",
            block: BLOCK,
            shared_memory: 0,
            fields: vec![
                field("dy_type", "", SpecValue::Type(io.dtype("d_y"))),
                field("d_table_type", "", SpecValue::Type(io.dtype("d_table"))),
                field("columns", "d", SpecValue::Int(columns as i64)),
            ],
        };
        let context = io.rows("d_table");
        let arguments = vec![
            pointer(io, "d_table"),
            pointer(io, "d_y"),
            count(io.rows("d_y") / self.length),
            count(self.length),
            count(context),
            accumulate(io, "d_table"),
        ];
        elementwise(spec, context * columns, arguments)
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let d_y = inputs.get("d_y");
        let (context, d) = inputs.output_dims("d_table");
        let mut d_table = vec![F::default(); context * d];
        for (i, d_y) in d_y.iter().enumerate() {
            d_table[i / d % self.length * d + i % d] += *d_y;
        }
        Ok(vec![("d_table", d_table)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        Vec::new()
    }
}
