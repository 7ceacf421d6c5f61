//! What the elementwise and row-wise kernels share: threads per block, blocks, arguments.
//!
//! In: sizes and a step's slots. Out: parts of a `Launch`. Everything compile-time here depends on columns only, so
//! that one kernel serves every batch and length.

use crate::launch::{Argument, Launch, Lowered};
use crate::plan::{Io, Mode};
use crate::spec::{KernelSpec, SpecField, SpecValue, field};

/// Neighbouring elements that a thread moves at once.
pub(super) const WIDTH: usize = 8;

/// Threads per block where threads do not talk to each other.
pub(super) const BLOCK: u32 = 256;

/// Lanes of a warp.
pub(super) const WARP: usize = 32;

/// What `lower` says of a step that lacks a buffer its kernel needs.
pub(super) const MISSING: Lowered = Lowered::NoKernel("the step lacks a buffer that its kernel needs");

/// What `lower` says of columns that 16-byte accesses cannot walk.
pub(super) const UNEVEN: Lowered = Lowered::NoKernel("rows must be a multiple of 8 columns wide");

/// What `lower` says of a view where the kernel walks whole buffers.
pub(super) const VIEW: Lowered = Lowered::NoKernel("no kernel yet for columns of a wider buffer");

/// What `lower` says of a batch whose rows or blocks outgrow the numbers they are counted in.
pub(super) const TOO_LARGE: Lowered =
    Lowered::NoKernel("more rows or blocks than one launch can have: make the batch smaller");

/// Most blocks along x, y and z, on every GPU so far.
const GRID: [usize; 3] = [i32::MAX as usize, 65_535, 65_535];

/// Most rows: kernels and the vendor's library count them in 32 bits.
pub(super) const ROWS: usize = i32::MAX as usize;

/// One kernel; `None` when that is more blocks than a grid has room for.
#[must_use]
pub(super) fn kernel(spec: KernelSpec, blocks: [usize; 3], arguments: Vec<Argument>) -> Option<Launch> {
    let fits = blocks.iter().zip(GRID).all(|(n, most)| *n <= most);
    let grid = blocks.map(|n| n.max(1) as u32);
    fits.then_some(Launch::Kernel { spec, grid, arguments })
}

/// All of these, or none if one of them cannot be launched.
#[must_use]
pub(super) fn launches(all: impl IntoIterator<Item = Option<Launch>>) -> Lowered {
    all.into_iter().collect::<Option<_>>().map_or(TOO_LARGE, Lowered::Launches)
}

/// One block per `BLOCK` threads, each owning `WIDTH` of `n` elements.
#[must_use]
pub(super) fn elementwise(spec: KernelSpec, n: usize, arguments: Vec<Argument>) -> Lowered {
    let blocks = n.div_ceil(WIDTH).div_ceil(BLOCK as usize);
    launches([kernel(spec, [blocks, 1, 1], arguments)])
}

/// A slot's buffer; null when the step lacks it.
#[must_use]
pub(super) fn pointer(io: &Io, slot: &str) -> Argument {
    Argument::Buffer(io.id(slot))
}

/// A number of rows, tokens or sequences: `Op::lower` lets no more than `ROWS` through.
#[must_use]
pub(super) fn count(n: usize) -> Argument {
    Argument::I32(i32::try_from(n).expect("at most `ROWS`"))
}

/// A number of elements, or the distance between two rows in elements.
#[must_use]
pub(super) fn elements(n: usize) -> Argument {
    Argument::I64(i64::try_from(n).expect("fewer than 2^63 elements"))
}

/// 1 where the slot's result is added to what is there, 0 where it replaces it.
#[must_use]
pub(super) fn accumulate(io: &Io, slot: &str) -> Argument {
    Argument::I32(i32::from(io.mode(slot).is_some_and(|mode| mode != Mode::Overwrite)))
}

/// Does one of the slots name columns of a wider buffer?
#[must_use]
pub(super) fn any_view(io: &Io, slots: &[&str]) -> bool {
    slots.iter().any(|slot| io.has(slot) && io.buffer(slot).view.is_some())
}

/// Do 16-byte accesses fit each slot: its columns, the first of them, and the distance between its rows?
#[must_use]
pub(super) fn aligned(io: &Io, slots: &[&str]) -> bool {
    slots.iter().filter_map(|slot| io.id(slot)).all(|id| {
        let numbers = [io.plan.buffer(id).columns(), io.plan.base(id).1, io.plan.row_stride(id)];
        numbers.iter().all(|n| n.is_multiple_of(WIDTH))
    })
}

/// The kernel of an op that makes each element of its first slot from those at the same place of the others; each slot
/// comes with the name of its type in the template. Tensors without gaps are walked as one row, whatever their shape;
/// columns of wider buffers row by row.
#[must_use]
pub(super) fn pointwise(
    io: &Io,
    template: &'static str,
    slots: &[(&'static str, &'static str)],
    own: Vec<SpecField>,
) -> Lowered {
    let names: Vec<&str> = slots.iter().map(|(slot, _)| *slot).collect();
    let views = any_view(io, &names);
    if views && !aligned(io, &names) {
        return UNEVEN;
    }
    let columns = if views { io.columns(names[0]) } else { 0 };
    let mut fields: Vec<_> =
        slots.iter().map(|(slot, name)| field(name, "", SpecValue::Type(io.dtype(slot)))).collect();
    fields.extend(own);
    fields.push(field("columns", "d", SpecValue::Int(columns as i64)));
    let spec = KernelSpec { template, block: BLOCK, shared_memory: 0, fields };
    let n = io.buffer(names[0]).len();
    let mut arguments: Vec<_> = names.iter().map(|slot| pointer(io, slot)).collect();
    arguments.push(elements(n));
    arguments.extend(names.iter().map(|slot| elements(io.row_stride(slot))));
    arguments.push(accumulate(io, names[0]));
    elementwise(spec, n, arguments)
}

/// Most sets of rows over which `column_sums` adds before its second stage; fixed, so that the order of the sum does
/// not depend on the GPU.
const SETS: usize = 128;

/// Fewest rows worth a set of their own.
const SET_ROWS: usize = 64;

/// Columns of a block of the first stage.
const SLICE: usize = WARP * WIDTH;

/// Shape of the scratch that `column_sums` needs.
#[must_use]
pub(super) fn partials_shape(rows: usize, columns: usize) -> Vec<usize> {
    vec![rows.div_ceil(SET_ROWS).clamp(1, SETS), columns]
}

/// First stage of a sum over rows: `partials` gets the sums over fixed sets of the first `rows` rows of `x`.
#[must_use]
pub(super) fn column_sums(io: &Io, partials: &str, x: &str, rows: usize) -> Option<Launch> {
    let columns = io.columns(x);
    let spec = KernelSpec {
        template: "column_sums/rows",
        block: BLOCK,
        shared_memory: 4 * BLOCK * (WIDTH as u32),
        fields: vec![
            field("x_type", "", SpecValue::Type(io.dtype(x))),
            field("columns", "d", SpecValue::Int(columns as i64)),
        ],
    };
    let arguments = vec![pointer(io, partials), pointer(io, x), count(rows), elements(io.row_stride(x))];
    kernel(spec, [columns.div_ceil(SLICE), io.buffer(partials).shape[0], 1], arguments)
}

/// Second stage: the partial sums are added up into one output of `columns`, or two that lie behind each other in each
/// partial sum.
#[must_use]
pub(super) fn column_totals(
    io: &Io,
    outputs: [Option<&str>; 2],
    partials: &str,
    columns: usize,
    accumulate: Argument,
) -> Option<Launch> {
    let n = outputs.iter().flatten().count();
    let mut types = outputs.iter().flatten().map(|slot| SpecValue::Type(io.dtype(slot)));
    let first = types.next()?;
    let second = types.next().unwrap_or_else(|| first.clone());
    let spec = KernelSpec {
        template: "column_sums/total",
        block: BLOCK,
        shared_memory: 4 * BLOCK,
        fields: vec![
            field("first_type", "", first),
            field("second_type", "", second),
            field("outputs", "n", SpecValue::Int(n as i64)),
            field("columns", "d", SpecValue::Int(columns as i64)),
        ],
    };
    let mut arguments: Vec<_> =
        outputs.map(|slot| Argument::Buffer(slot.and_then(|slot| io.id(slot)))).to_vec();
    arguments.extend([pointer(io, partials), count(io.buffer(partials).shape[0]), accumulate]);
    kernel(spec, [(n * columns).div_ceil(WARP), 1, 1], arguments)
}
