//! The launch of the fused forward on Hopper: blocks that stay, each with pieces of the work.
//!
//! In: the op and its buffers. Out: one kernel, with tensor maps of its operands.

use super::Attention;
use super::fused::{NO_ROOM, fields};
use super::strides::tensor_map;
use crate::arch::Arch;
use crate::launch::Lowered;
use crate::ops::rowwise::{TOO_LARGE, count, kernel, launches, pointer};
use crate::plan::Io;
use crate::spec::{KernelSpec, SpecValue, field};
use crate::tile::Tile;
use crate::tile::attention_forward_hopper::HopperForward;

/// Name of the template's family.
const FAMILY: &str = "hopper";

/// Rows of boxes: those of a warp's output, of a warpgroup's queries.
const OUT_ROWS: usize = 16;
const QUERY_ROWS: usize = 64;

/// Bytes of keys and values that are worked on at a time: a part of the L2 cache, of which others take some too.
const SECTION: usize = 16 << 20;

/// What a piece costs beside its tiles of keys, in such tiles: its beginning and end, where nothing overlaps.
const PIECE: usize = 2;
/// Of more pieces than so many times the blocks it does not matter who gets one more.
const MANY: usize = 64;
/// A larger section must bring the most work below this fraction.
const MUCH: (usize, usize) = (98, 100);

/// Is there such a kernel for the GPU?
pub(super) fn is_for(arch: &Arch) -> bool {
    arch.families.contains(&FAMILY)
}

/// How the blocks of a launch share its pieces, as the template's `Pieces` have it: `tiles` of queries of each of `units`, which are
/// neighbouring heads that share keys.
struct Shares {
    tiles: usize,
    units: usize,
    blocks: usize,
    /// Do late queries see more keys than early ones?
    more_later: bool,
}

impl Shares {
    /// Units that are worked on at a time: as many as the cache holds keys and values of, and so many that blocks get several pieces
    /// of them each; more where the blocks with the most work would else have much more than others, as those that get none of the
    /// short pieces at the beginning of a window.
    fn section(&self, op: &Attention, tile: &HopperForward) -> usize {
        let keys_and_values = 2 * op.key_length * op.head_dim * size_of::<u16>();
        let cached = (SECTION / keys_and_values).max(1) * (op.heads / op.kv_heads / tile.heads);
        let least = cached.max((2 * self.blocks).div_ceil(self.tiles)).min(self.units);
        if self.tiles * self.units > MANY * self.blocks {
            return least;
        }
        let work: Vec<usize> = (0..self.tiles).map(|at| PIECE + keys_tiles(op, tile, at)).collect();
        let candidates =
            std::iter::successors(Some(least), |n| (*n < self.units).then(|| (2 * n).min(self.units)));
        let with_most = candidates.map(|section| (self.most(section, &work), section));
        let best = with_most.reduce(|best, next| if next.0 * MUCH.1 < best.0 * MUCH.0 { next } else { best });
        best.map_or(least, |(_, section)| section)
    }

    /// Work of the block that has most of it, with so many units in a section, given the work of each tile.
    fn most(&self, section: usize, work: &[usize]) -> usize {
        let mut of_block = vec![0; self.blocks];
        for piece in 0..self.tiles * self.units {
            let (round, at) = (piece / self.blocks, piece % self.blocks);
            let block = if round % 2 == 0 { at } else { self.blocks - 1 - at };
            let own_section = piece / (section * self.tiles);
            let first_unit = own_section * section;
            let units = section.min(self.units - first_unit);
            let tile = (piece - first_unit * self.tiles) / units;
            let few_last = ((self.units - 1) / section - own_section).is_multiple_of(2);
            of_block[block] += work[if self.more_later && few_last { self.tiles - 1 - tile } else { tile }];
        }
        of_block.into_iter().max().unwrap_or(0)
    }
}

/// Tiles of keys that a tile of queries sees.
fn keys_tiles(op: &Attention, tile: &HopperForward, at: usize) -> usize {
    let first = at * tile.queries();
    let last = (first + tile.queries()).min(op.length) - 1;
    op.seen(last).end.div_ceil(tile.keys).saturating_sub(op.seen(first).start / tile.keys).max(1)
}

pub(super) fn lower(op: &Attention, io: &Io, arch: &Arch) -> Lowered {
    let group = op.heads / op.kv_heads;
    let Some(tile) = HopperForward::of(&op.for_tiles(io.dtype("q"), op.sequences(io), true), arch) else {
        return NO_ROOM;
    };
    let query_ring = tile.query_ring(op.head_dim, arch);
    let mut fields = fields(op, io);
    let mut widths = vec![tile.keys as u64, op.head_dim as u64];
    if op.window.right.is_some() {
        widths.extend(tile.half().map(|half| half as u64));
    }
    widths.sort_unstable();
    widths.dedup();
    fields.extend([
        field("queries", "q", SpecValue::Int(tile.queries() as i64)),
        field("keys", "k", SpecValue::Int(tile.keys as i64)),
        field("ring", "r", SpecValue::Int(tile.ring as i64)),
        field("q_ring", "qr", SpecValue::Int(query_ring as i64)),
        field("heads", "h", SpecValue::Int(tile.heads as i64)),
        field("turns", "turns", SpecValue::Bool(tile.turns)),
        field("staged", "staged", SpecValue::Bool(tile.staged)),
        field("fixed", "fixed", SpecValue::Bool(op.is_fixed(io.dtype("q")))),
        field("wgmma_widths", "", SpecValue::List(widths)),
    ]);
    let spec = KernelSpec {
        template: "attention/forward",
        block: tile.threads() as u32,
        shared_memory: tile.shared_memory(op.head_dim, query_ring) as u32,
        fields,
    };
    let sequences = op.sequences(io);
    let tiles = op.length.div_ceil(tile.queries());
    let units = op.heads / tile.heads * sequences;
    let pieces = tiles * units;
    let blocks = pieces.min(arch.multiprocessors());
    // Pieces are counted in 32 bits, by every block until there are no more.
    if i32::try_from(pieces + 2 * blocks).is_err() {
        return TOO_LARGE;
    }
    let section = Shares { tiles, units, blocks, more_later: op.window.right.is_some() }.section(op, &tile);
    let maps = [
        tensor_map(op, io, "out", OUT_ROWS),
        tensor_map(op, io, "q", QUERY_ROWS),
        tensor_map(op, io, "k", tile.keys),
        tensor_map(op, io, "v", tile.keys),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::{Form, Window};

    const BLOCKS: usize = 132;

    /// Most work of a block over what each would have of equal shares.
    fn most(heads: usize, length: usize, window: Window) -> f64 {
        let tile = HopperForward { consumers: 2, heads: 1, keys: 128, ring: 2, turns: true, staged: true };
        let op = Attention {
            heads,
            kv_heads: heads,
            head_dim: 128,
            length,
            key_length: length,
            window,
            softcap: None,
            scale: 1.0,
            form: Form::Fused,
        };
        let shares = Shares {
            tiles: length.div_ceil(tile.queries()),
            units: heads,
            blocks: BLOCKS,
            more_later: window.right.is_some(),
        };
        let work: Vec<usize> = (0..shares.tiles).map(|at| PIECE + keys_tiles(&op, &tile, at)).collect();
        let section = shares.section(&op, &tile);
        let equal = (heads * work.iter().sum::<usize>()) as f64 / BLOCKS as f64;
        shares.most(section, &work) as f64 / equal
    }

    #[test]
    fn blocks_get_nearly_equal_shares() {
        for (window, bound) in [
            (Window::nearer(1025).causal(), 1.07),
            (Window::nearer(4097).causal(), 1.05),
            (Window::CAUSAL, 1.02),
        ] {
            let most = most(16, 16_384, window);
            assert!(most < bound, "{window}: {most}");
        }
    }
}
