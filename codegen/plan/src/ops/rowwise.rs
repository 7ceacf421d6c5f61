//! What the elementwise and row-wise kernels share: threads per block, blocks, arguments.
//!
//! In: sizes and a step's slots. Out: parts of a `Launch`. Everything compile-time here depends on columns only, so
//! that one kernel serves every batch and length.

use crate::launch::{Argument, Launch, Lowered};
use crate::plan::{Io, Mode};
use crate::spec::KernelSpec;

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
