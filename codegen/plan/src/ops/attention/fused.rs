//! Launches of the fused forward.

use super::{Attention, LONGEST, fused_hopper, mask_and_scale, strides};
use crate::arch::Arch;
use crate::launch::Lowered;
use crate::ops::rowwise::{TOO_LARGE, UNEVEN, aligned, count, kernel, launches, pointer};
use crate::plan::Io;
use crate::spec::{KernelSpec, SpecField, SpecValue, field};
use crate::tile::Tile;
use crate::tile::attention_forward::AttentionForward;

/// What the kernels of attention say of a head too wide for their tiles.
pub(super) const TOO_WIDE: Lowered =
    Lowered::NoKernel("`head_dim` must be a multiple of 8 up to 256 for attention in one kernel");

/// What they say of operands that tensor cores do not take as they are.
pub(super) const NOT_NARROW: Lowered =
    Lowered::NoKernel("attention in one kernel takes queries, keys and values of one 2-byte type");

/// What they say of a GPU whose shared memory holds no tile.
pub(super) const NO_ROOM: Lowered =
    Lowered::NoKernel("shared memory of this GPU is too small for attention in one kernel");

/// Widest head.
const WIDEST: usize = 256;

/// Why the kernels of attention cannot take these slots, if they cannot.
pub(super) fn obstacle(op: &Attention, io: &Io, slots: &[&str]) -> Option<Lowered> {
    let dtype = io.dtype("q");
    // By its size: what is narrow and real is what tensor cores multiply.
    if dtype.bytes() != 2 || slots.iter().any(|slot| io.dtype(slot) != dtype) {
        return Some(NOT_NARROW);
    }
    if op.head_dim > WIDEST || !op.head_dim.is_multiple_of(8) {
        return Some(TOO_WIDE);
    }
    if !aligned(io, slots) {
        return Some(UNEVEN);
    }
    (op.length.max(op.key_length) > LONGEST || !strides::fit(op, io, slots)).then_some(TOO_LARGE)
}

/// What the templates of attention are told of the op itself.
pub(super) fn fields(op: &Attention, io: &Io) -> Vec<SpecField> {
    let mut fields = vec![
        field("type", "", SpecValue::Type(io.dtype("q"))),
        field("head_dim", "d", SpecValue::Int(op.head_dim as i64)),
    ];
    fields.extend(mask_and_scale(op));
    fields
}

pub(super) fn lower(op: &Attention, io: &Io, arch: &Arch) -> Lowered {
    let slots = ["out", "q", "k", "v"];
    if let Some(why) = obstacle(op, io, &slots) {
        return why;
    }
    if fused_hopper::is_for(arch) {
        return fused_hopper::lower(op, io, arch);
    }
    let Some(tile) = AttentionForward::of(&op.for_tiles(io.dtype("q"), op.sequences(io), true), arch) else {
        return NO_ROOM;
    };
    let mut fields = fields(op, io);
    fields.extend([
        field("queries", "q", SpecValue::Int(tile.queries as i64)),
        field("keys", "k", SpecValue::Int(tile.keys as i64)),
        field("ring", "r", SpecValue::Int(tile.ring as i64)),
        field("held", "held", SpecValue::Bool(tile.held)),
        field("blocks", "b", SpecValue::Int(tile.blocks as i64)),
    ]);
    let spec = KernelSpec {
        template: "attention/forward",
        block: tile.threads() as u32,
        shared_memory: tile.shared_memory(op.head_dim) as u32,
        fields,
    };
    let grid = [op.length.div_ceil(tile.queries), op.heads, op.sequences(io)];
    let mut arguments = ["out", "lse", "q", "k", "v"].map(|slot| pointer(io, slot)).to_vec();
    arguments.extend([op.length, op.key_length, op.heads / op.kv_heads].map(count));
    arguments.extend(strides::arguments(op, io, slots));
    launches([kernel(spec, grid, arguments)])
}
