//! The kernels of norms: who walks which vector, and the launches.
//!
//! In: a norm and its step. Out: launches. A team of threads holds a vector in registers, if it fits there; else a block
//! walks it several times.

use super::{Norm, NormBackward, NormKind, NormWeight};
use crate::launch::{Launch, Lowered};
use crate::ops::rowwise::{
    BLOCK, MISSING, UNEVEN, WARP, WIDTH, accumulate, aligned, column_totals, count, elements, kernel,
    launches, pointer,
};
use crate::plan::Io;
use crate::spec::{KernelSpec, SpecField, SpecValue, field};

/// Multiprocessors of a GPU whose number is not known.
pub const MULTIPROCESSORS: usize = 128;

/// Most sets of rows over which weight gradients of so many columns are summed before the second stage: a block adds each,
/// and as many blocks as a GPU runs at a time leave no multiprocessor idle. Each costs room.
#[must_use]
pub fn most_partials(columns: usize, multiprocessors: usize) -> usize {
    if columns <= WARP_COLUMNS {
        multiprocessors
    } else if columns <= BACKWARD_COLUMNS {
        4 * multiprocessors
    } else {
        multiprocessors.div_ceil(2)
    }
}

/// Widest row that the forward kernel holds in registers.
const FORWARD_COLUMNS: usize = 16384;

/// Widest row that the backward kernel holds in registers, with its sums.
const BACKWARD_COLUMNS: usize = 8192;

/// Widest row that one warp walks alone.
const WARP_COLUMNS: usize = 1024;

/// Most threads that share a row.
const ROW_THREADS: usize = 512;

/// How the threads of a block are dealt out to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Threads {
    row: usize,
    block: usize,
}

/// Part of a warp for short rows, a warp for longer ones, the block for the longest.
fn forward_threads(columns: usize) -> Threads {
    let parts = columns / WIDTH;
    if columns <= WARP_COLUMNS {
        return Threads { row: parts.next_power_of_two().min(WARP), block: 128 };
    }
    let row = parts.div_ceil(parts.div_ceil(ROW_THREADS)).next_multiple_of(WARP);
    Threads { row, block: row }
}

/// As forward, but in teams within a warp with as many threads per block as their registers allow: there are few blocks,
/// since each leaves a partial sum. A thread holds 8 columns of x, d_y and the old d_x, together `bytes` per column, and of
/// `sums` sums in fp32; what it has besides fits the registers of these blocks on every GPU, which a test compiles.
fn backward_threads(columns: usize, sums: usize, bytes: usize) -> Threads {
    let Threads { row, block } = forward_threads(columns);
    if row > WARP {
        return Threads { row, block };
    }
    let held = (columns / WIDTH).div_ceil(row) * (8 * sums + 2 * bytes);
    let block = match held {
        0..=40 => 768,
        41..=64 => 640,
        65..=95 => 512,
        96..=112 => 384,
        _ => 256,
    };
    Threads { row, block }
}

/// Threads of a block that walks vectors too wide for its registers.
const WIDE_BLOCK: usize = 512;

impl Norm {
    /// Columns of one vector, if kernels can walk it.
    fn columns(&self, io: &Io) -> Result<usize, Lowered> {
        let columns = io.columns("x") / self.groups;
        if !columns.is_multiple_of(WIDTH) || !aligned(io, &["x", "y", "copy", "d_x", "narrow", "d_y"]) {
            return Err(UNEVEN);
        }
        if self.kind == NormKind::Layer && self.count != columns {
            return Err(Lowered::NoKernel("a layer norm cannot have padding"));
        }
        Ok(columns)
    }

    /// What the kernels have in common, in the order of their names.
    fn fields(&self, io: &Io, slots: &[(&'static str, &'static str)], columns: usize) -> Vec<SpecField> {
        let mut fields = vec![field("kind", "", SpecValue::Word(self.kind.name()))];
        fields.extend(slots.iter().map(|(slot, name)| field(name, "", SpecValue::Type(io.dtype(slot)))));
        fields.extend([
            field("groups", "g", SpecValue::Int(self.groups as i64)),
            field("columns", "d", SpecValue::Int(columns as i64)),
        ]);
        fields
    }

    /// What those that make y or d_x add to it.
    fn factor_fields(&self) -> [SpecField; 2] {
        [
            field("weight", "", SpecValue::Word(self.weight.name())),
            field("count", "n", SpecValue::Int(self.count as i64)),
        ]
    }

    fn bias_field(&self) -> SpecField {
        field("bias", "bias", SpecValue::Bool(self.has_bias()))
    }
}

/// The launches of a norm.
pub(super) fn forward(norm: &Norm, io: &Io) -> Lowered {
    let columns = match norm.columns(io) {
        Ok(columns) => columns,
        Err(why) => return why,
    };
    let is_wide = columns > FORWARD_COLUMNS;
    let threads =
        if is_wide { Threads { row: WIDE_BLOCK, block: WIDE_BLOCK } } else { forward_threads(columns) };
    let mut fields = norm.fields(io, &[("y", "y_type"), ("x", "x_type")], columns);
    fields.extend(norm.factor_fields());
    fields.extend([norm.bias_field(), field("epsilon", "eps", SpecValue::Float(norm.epsilon))]);
    let copy = io.id("copy").map(|id| io.plan.buffer(id).dtype);
    if copy.is_some_and(|dtype| dtype != io.dtype("x")) {
        return Lowered::NoKernel("a copy of what a norm reads is of the same type");
    }
    fields.push(field("copy", "copy", SpecValue::Bool(copy.is_some())));
    if !is_wide {
        fields.push(field("row_threads", "rt", SpecValue::Int(threads.row as i64)));
    }
    let shared_memory = if threads.row > WARP { 4 * threads.block / WARP } else { 0 };
    let spec = KernelSpec {
        template: if is_wide { "norm/forward_wide" } else { "norm/forward" },
        block: threads.block as u32,
        shared_memory: shared_memory as u32,
        fields,
    };
    let rows = io.rows("x");
    let blocks = (rows * norm.groups).div_ceil(threads.block / threads.row);
    let slots = ["y", "copy", "mean", "rstd", "x", "weight", "bias"];
    let mut arguments = slots.map(|slot| pointer(io, slot)).to_vec();
    arguments.push(count(rows));
    arguments.extend(["y", "copy", "x"].map(|slot| elements(io.row_stride(slot))));
    launches([kernel(spec, [blocks, 1, 1], arguments)])
}

/// The launches of its gradient.
pub(super) fn backward(norm: &NormBackward, io: &Io) -> Lowered {
    let learned = norm.sums() > 0;
    if !io.has("d_x") || (learned && ["d_weight", "partials"].iter().any(|slot| !io.has(slot))) {
        return MISSING;
    }
    let columns = match norm.0.columns(io) {
        Ok(columns) => columns,
        Err(why) => return why,
    };
    let mut all = Vec::new();
    if columns > BACKWARD_COLUMNS {
        let [sums, d_x] = norm.wide_launches(io, columns);
        all.extend(learned.then_some(sums));
        all.push(d_x);
    } else {
        all.push(norm.rows_launch(io, columns));
    }
    all.extend(learned.then(|| norm.weight_launch(io, columns)));
    launches(all)
}

/// The types of the backward kernels.
const BACKWARD_TYPES: [(&str, &str); 3] = [("d_x", "dx_type"), ("d_y", "dy_type"), ("x", "x_type")];

/// What says whether they write a copy of d_x, and of which type.
fn narrow_fields(io: &Io) -> [SpecField; 2] {
    let narrow = io.id("narrow").map(|id| io.plan.buffer(id).dtype);
    let of_type = narrow.map_or(SpecValue::UnusedType(io.dtype("d_x")), SpecValue::Type);
    [field("narrow", "narrow", SpecValue::Bool(narrow.is_some())), field("narrow_type", "", of_type)]
}

impl NormBackward {
    /// `d_x`, and a sum of `d_weight` and `d_bias` per block.
    fn rows_launch(&self, io: &Io, columns: usize) -> Option<Launch> {
        let bytes = ["x", "d_y", "d_x"].map(|slot| io.dtype(slot).bytes()).iter().sum();
        let threads = backward_threads(columns, self.sums(), bytes);
        let mut fields = self.0.fields(io, &BACKWARD_TYPES, columns);
        fields.extend(self.0.factor_fields());
        fields.extend(narrow_fields(io));
        fields.extend([self.0.bias_field(), field("row_threads", "rt", SpecValue::Int(threads.row as i64))]);
        let warps = threads.block / WARP;
        // Two sums over the block for a row; or, where teams are added, 8 columns of each thread.
        let floats = match (threads.row > WARP, self.sums() > 0) {
            (true, _) => 2 * warps,
            (false, true) => WIDTH * threads.block,
            (false, false) => 0,
        };
        let spec = KernelSpec {
            template: "norm/backward",
            block: threads.block as u32,
            shared_memory: 4 * floats as u32,
            fields,
        };
        let slots = ["d_x", "narrow", "partials", "d_y", "x", "weight", "mean", "rstd"];
        let mut arguments: Vec<_> = slots.iter().map(|slot| pointer(io, slot)).collect();
        arguments.push(count(io.rows("x")));
        arguments.extend(["d_x", "narrow", "d_y", "x"].map(|slot| elements(io.row_stride(slot))));
        arguments.push(accumulate(io, "d_x"));
        // Without partial sums there may be a team for every vector.
        let teams = (io.rows("x") * self.0.groups).div_ceil(threads.block / threads.row);
        let blocks = if self.sums() > 0 { self.partials(io) } else { teams };
        kernel(spec, [blocks, 1, 1], arguments)
    }

    /// The same for vectors too wide for a block's registers, in two kernels.
    fn wide_launches(&self, io: &Io, columns: usize) -> [Option<Launch>; 2] {
        let units = io.rows("x") * self.0.groups;
        let mut fields = self.0.fields(io, &BACKWARD_TYPES, columns);
        fields.extend(self.0.factor_fields());
        fields.extend(narrow_fields(io));
        let spec = KernelSpec {
            template: "norm/backward_wide",
            block: WIDE_BLOCK as u32,
            shared_memory: (2 * 4 * WIDE_BLOCK / WARP) as u32,
            fields,
        };
        let mut arguments =
            ["d_x", "narrow", "d_y", "x", "weight", "mean", "rstd"].map(|slot| pointer(io, slot)).to_vec();
        arguments.push(count(io.rows("x")));
        arguments.extend(["d_x", "narrow", "d_y", "x"].map(|slot| elements(io.row_stride(slot))));
        arguments.push(accumulate(io, "d_x"));
        let d_x = kernel(spec, [units, 1, 1], arguments);

        let mut fields = self.0.fields(io, &BACKWARD_TYPES[1..], columns);
        fields.push(self.0.bias_field());
        let spec = KernelSpec { template: "norm/backward_wide_sums", block: BLOCK, shared_memory: 0, fields };
        let mut arguments = ["partials", "d_y", "x", "mean", "rstd"].map(|slot| pointer(io, slot)).to_vec();
        arguments.push(count(io.rows("x")));
        arguments.extend(["d_y", "x"].map(|slot| elements(io.row_stride(slot))));
        let slices = (columns / WIDTH).div_ceil(BLOCK as usize);
        let sets = if self.sums() > 0 { self.partials(io) } else { 0 };
        [kernel(spec, [slices, sets, 1], arguments), d_x]
    }

    /// The blocks' sums, added up.
    fn weight_launch(&self, io: &Io, columns: usize) -> Option<Launch> {
        let bias = self.0.has_bias().then_some("d_bias");
        column_totals(io, [Some("d_weight"), bias], "partials", columns, accumulate(io, "d_weight"))
    }

    fn partials(&self, io: &Io) -> usize {
        io.buffer("partials").shape[0]
    }

    /// Learned vectors that take a gradient.
    fn sums(&self) -> usize {
        usize::from(self.0.weight != NormWeight::None) + usize::from(self.0.has_bias())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_cover_every_row_and_few_stay_idle() {
        for columns in (8..=FORWARD_COLUMNS).step_by(8) {
            let backward = |sums, bytes| backward_threads(columns.min(BACKWARD_COLUMNS), sums, bytes);
            for threads in [forward_threads(columns), backward(1, 6), backward(1, 10), backward(2, 12)] {
                assert_eq!(threads.block % WARP, 0, "{columns}");
                let within_warp = threads.row.is_power_of_two() && threads.row <= WARP;
                assert!(threads.row == threads.block || within_warp, "{columns}: {threads:?}");
            }
            let row = forward_threads(columns).row;
            let each = (columns / WIDTH).div_ceil(row);
            assert!(each <= 4, "{columns}: {each} parts per thread");
            assert!(row * each < 2 * columns / WIDTH + WARP, "{columns}: {row} threads");
        }
    }
}
