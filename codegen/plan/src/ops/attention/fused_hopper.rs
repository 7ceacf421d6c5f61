//! The launch of the fused forward on Hopper: blocks that stay, each with pieces of the work.
//!
//! In: the op and its buffers. Out: one kernel, with tensor maps of its operands.

use super::Attention;
use super::fused::{NO_ROOM, fields};
use crate::arch::Arch;
use crate::card;
use crate::launch::{Argument, Lowered};
use crate::ops::rowwise::{TOO_LARGE, count, kernel, launches, pointer};
use crate::plan::Io;
use crate::spec::{KernelSpec, SpecValue, field};
use crate::tensor_map::{Dimension, Swizzle, TensorLayout, TensorMap};
use crate::tile::Tile;
use crate::tile::attention_forward_hopper::HopperForward;

/// Name of the template's family.
const FAMILY: &str = "hopper";

/// Columns and rows of boxes: those of a panel, of a warp's output, of a warpgroup's queries.
const PANEL: u32 = 64;
const OUT_ROWS: u32 = 16;
const QUERY_ROWS: u32 = 64;

/// Multiprocessors of a GPU of which nothing is known.
const MULTIPROCESSORS: usize = 128;

/// Bytes of keys and values that are worked on at a time: a part of the L2 cache, of which others take some too.
const SECTION: usize = 16 << 20;

/// Is there such a kernel for the GPU?
pub(super) fn is_for(arch: &Arch) -> bool {
    arch.families.contains(&FAMILY)
}

/// A slot's heads of every sequence: columns, rows, heads, sequences.
fn map(op: &Attention, io: &Io, slot: &str, rows: u32) -> Option<Argument> {
    let ((heads, length), strides) = (op.extent(slot), op.strides(io, slot));
    let dimension =
        |size: usize, stride: usize, extent| Dimension { size: size as u64, stride: stride as u64, extent };
    let dimensions = [
        dimension(op.head_dim, 1, PANEL),
        dimension(length, strides.row, rows),
        dimension(heads, strides.head, 1),
        dimension(op.sequences(io), strides.sequence, 1),
    ];
    let layout = TensorLayout::new(io.dtype(slot), Swizzle::Bytes128, &dimensions);
    layout.check().ok()?;
    Some(Argument::TensorMap(TensorMap { buffer: io.id(slot)?, first: 0, layout }))
}

/// Units of HEADS heads that are worked on at a time: as many as the cache holds keys and values of, and so many that blocks
/// get several pieces of them each.
fn section(op: &Attention, tile: &HopperForward, (tiles, blocks): (usize, usize)) -> usize {
    let keys_and_values = 2 * op.key_length * op.head_dim * size_of::<u16>();
    let units_of_keys = op.heads / op.kv_heads / tile.heads;
    let cached = (SECTION / keys_and_values).max(1) * units_of_keys;
    cached.max((2 * blocks).div_ceil(tiles))
}

pub(super) fn lower(op: &Attention, io: &Io, arch: &Arch) -> Lowered {
    let group = op.heads / op.kv_heads;
    let Some(tile) = HopperForward::of(&op.for_tiles(true), arch) else { return NO_ROOM };
    let mut fields = fields(op, io);
    let mut widths = vec![tile.keys as u64, op.head_dim as u64];
    widths.dedup();
    fields.extend([
        field("queries", "q", SpecValue::Int(tile.queries() as i64)),
        field("keys", "k", SpecValue::Int(tile.keys as i64)),
        field("ring", "r", SpecValue::Int(tile.ring as i64)),
        field("heads", "h", SpecValue::Int(tile.heads as i64)),
        field("turns", "turns", SpecValue::Bool(tile.turns)),
        field("staged", "staged", SpecValue::Bool(tile.staged)),
        field("wgmma_widths", "", SpecValue::List(widths)),
    ]);
    let spec = KernelSpec {
        template: "attention/forward",
        block: tile.threads() as u32,
        shared_memory: tile.shared_memory(op.head_dim) as u32,
        fields,
    };
    let sequences = op.sequences(io);
    let tiles = op.length.div_ceil(tile.queries());
    let pieces = tiles * (op.heads / tile.heads) * sequences;
    let card = card::ALL.iter().find(|card| card.name == arch.card);
    let multiprocessors = card.and_then(|card| card.multiprocessors).map_or(MULTIPROCESSORS, |n| n as usize);
    let blocks = pieces.min(multiprocessors);
    let section = section(op, &tile, (tiles, blocks)).min(op.heads / tile.heads * sequences);
    // Pieces are counted in 32 bits, by every block until there are no more.
    if i32::try_from(pieces + 2 * blocks).is_err() {
        return TOO_LARGE;
    }
    let maps = [
        map(op, io, "out", OUT_ROWS),
        map(op, io, "q", QUERY_ROWS),
        map(op, io, "k", tile.keys as u32),
        map(op, io, "v", tile.keys as u32),
    ];
    let [Some(out), Some(q), Some(k), Some(v)] = maps else { return TOO_LARGE };
    let arguments = vec![
        out,
        pointer(io, "lse"),
        q,
        k,
        v,
        count(op.length),
        count(op.key_length),
        count(op.heads),
        count(group),
        count(sequences),
        count(section),
    ];
    launches([kernel(spec, [blocks, 1, 1], arguments)])
}
