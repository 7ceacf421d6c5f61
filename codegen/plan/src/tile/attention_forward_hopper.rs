//! Tiles of attention's forward on Hopper: how many warpgroups multiply, how many keys they take at a time, what shared
//! memory holds.
//!
//! In: what the op is and a GPU's limits. Out: a row that was measured, else the first candidate of a rule that fits, by what was
//! faster on an H200 (docs/performance.md). Must not know templates or steps.

use super::rounds::Owned;
use super::{Axis, Op, Tile};
use crate::arch::Arch;

/// The family whose instructions the kernel is made of.
const FAMILY: &str = "hopper";

/// Bytes of an element of the operands, all of 2-byte types.
const ELEMENT: usize = 2;
/// Queries of a warpgroup: rows of its products.
const ROWS: usize = 64;
/// Columns that lie together in shared memory, and are all there where some are.
const PANEL: usize = 64;
/// Bytes of a barrier and of what is noted of a place for queries, at the end of shared memory.
const BARRIER: usize = 8;
const PLACE: usize = 16;
const WARPGROUP: usize = 128;
/// Depth of a product: keys of one that makes the output.
const DEPTH: usize = 16;
/// Widest head, and most keys of a product.
const WIDEST: usize = 256;
/// Keys at a time that are worth trying.
const KEYS: &[usize] = &[48, 64, 80, 96, 112, 128, 144, 160, 176, 192];
/// Registers of a thread that hold neither sums nor operands, and those that a softcap takes where greatest scores are followed.
const OTHERS: usize = 30;
const OF_CAP: usize = 10;
/// Beyond this length blocks are large where that pays.
const LONG: usize = 1024;

/// How a block works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopperForward {
    /// Warpgroups that multiply; one more copies.
    pub consumers: usize,
    /// Neighbouring query heads of a block, which share keys.
    pub heads: usize,
    /// Keys that are worked on at a time.
    pub keys: usize,
    /// Tiles of keys, and as many of values, that shared memory holds.
    pub ring: usize,
    /// Do warpgroups begin their products one after the other?
    pub turns: bool,
    /// Has the output shared memory of its own, rather than that of the queries?
    pub staged: bool,
}

impl HopperForward {
    /// Queries of a block, of each of its heads.
    #[must_use]
    pub fn queries(&self) -> usize {
        ROWS * self.consumers / self.heads
    }

    /// Threads of a block.
    #[must_use]
    pub fn threads(&self) -> usize {
        WARPGROUP * (self.consumers + 1)
    }

    /// Keys of a tile at an edge of which a warpgroup sees no more than half, if tiles are so long that this is often so.
    #[must_use]
    pub fn half(&self) -> Option<usize> {
        (self.keys >= 2 * ROWS).then_some(self.keys / 2 / DEPTH * DEPTH)
    }

    /// Places for queries of a warpgroup: two where there is room for the next ones, while the output has its own.
    #[must_use]
    pub fn query_ring(&self, head_dim: usize, arch: &Arch) -> usize {
        let fits = self.shared_memory(head_dim, 2) <= arch.shared_memory as usize;
        if self.staged && fits { 2 } else { 1 }
    }

    /// Bytes of shared memory for heads so wide and so many places for queries.
    #[must_use]
    pub fn shared_memory(&self, head_dim: usize, query_ring: usize) -> usize {
        let row = head_dim.next_multiple_of(PANEL) * ELEMENT;
        let own = query_ring + usize::from(self.staged);
        let rows = 2 * self.ring * self.keys + own * self.consumers * ROWS;
        let places = query_ring * self.consumers;
        rows * row + places * PLACE + (4 * self.ring + 2 * places) * BARRIER
    }
}

impl Tile for HopperForward {
    const KERNEL: &'static str = "attention_forward_hopper";
    const AXES: &'static [Axis<Self>] = &[
        Axis::count("consumers", &[1, 2, 3], |tile| tile.consumers, |tile, n| tile.consumers = n),
        Axis::count("heads", &[1, 2, 3], |tile| tile.heads, |tile, n| tile.heads = n),
        Axis::count("keys", KEYS, |tile| tile.keys, |tile, n| tile.keys = n),
        Axis::count("ring", &[2, 3, 4], |tile| tile.ring, |tile, n| tile.ring = n),
        Axis::flag("turns", |tile| tile.turns, |tile, is| tile.turns = is),
        Axis::flag("staged", |tile| tile.staged, |tile, is| tile.staged = is),
    ];
    const BLANK: Self = Self { consumers: 0, heads: 0, keys: 0, ring: 0, turns: false, staged: false };

    fn is_legal(&self, op: &Op, arch: &Arch) -> bool {
        let Self { consumers, heads, keys, ring, turns, staged: _ } = *self;
        let most = match consumers {
            1 => 255,
            2 => 240,
            3 => 160,
            _ => return false,
        };
        // Scores, what is rounded of those before, and the output.
        let held = keys / 2 + keys / 4 + op.head_dim.next_multiple_of(8) / 2;
        arch.families.contains(&FAMILY)
            && op.head_dim <= WIDEST
            && heads > 0
            && consumers.is_multiple_of(heads)
            && op.group.is_multiple_of(heads)
            && keys > 0
            && keys.is_multiple_of(DEPTH)
            && keys <= WIDEST
            && ring >= 2
            && (consumers > 1 || !turns)
            && held + OTHERS + if op.capped && !op.fixed { OF_CAP } else { 0 } <= most
            && self.shared_memory(op.head_dim, 1) <= arch.shared_memory as usize
    }

    fn owned(&self) -> Option<Owned> {
        Some(Owned { rows: self.queries(), heads: self.heads })
    }

    /// Few long sequences may make as few blocks as short ones.
    fn by_rules(op: &Op, arch: &Arch) -> Vec<Self> {
        let short = Op { length: op.length.min(LONG), ..*op };
        [op, &short].into_iter().filter_map(|op| Self::by_rule(op, arch)).collect()
    }

    fn by_rule(op: &Op, arch: &Arch) -> Option<Self> {
        let tile = |consumers, heads, keys| Self {
            consumers,
            heads,
            keys,
            ring: 2,
            // Wider heads multiply longer than they take exponentials: nobody need wait.
            turns: consumers > 1 && op.head_dim <= 2 * PANEL,
            staged: true,
        };
        let mut all = Vec::new();
        if op.head_dim <= 96 && (!op.capped || op.fixed) {
            let keys = if op.head_dim <= PANEL { 128 } else { 96 };
            if op.group.is_multiple_of(3) {
                all.push(tile(3, 3, keys));
            } else if op.length > LONG {
                // Faster by a tenth, and of so many queries it works on no more than a tenth too many.
                all.push(tile(3, 1, keys));
            }
        }
        let keys = match op.head_dim {
            ..=128 => 128,
            // The cap's arithmetic leaves no registers for more.
            129..=192 if op.capped => 96,
            129..=192 => 112,
            _ if op.capped => 64,
            _ => 80,
        };
        // Small shared memory, such as that of a GPU declared with less, is left to the last ones.
        all.extend([tile(2, 1, keys), tile(2, 1, 64), tile(1, 1, 64), tile(1, 1, 32), tile(1, 1, 16)]);
        let both = all.into_iter().flat_map(|tile| [tile, Self { staged: false, ..tile }]);
        both.into_iter().find(|tile| tile.is_legal(op, arch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;

    fn of(head_dim: usize, group: usize, length: usize) -> HopperForward {
        let arch = arch::find("sm_90a").expect("it is a row");
        HopperForward::by_rule(&Op { head_dim, group, length, ..Op::default() }, arch).expect("one fits")
    }

    #[test]
    fn every_width_has_a_tile_whose_accumulators_fit_registers() {
        let arch = arch::find("sm_90a").expect("it is a row");
        for head_dim in (8..=256).step_by(8) {
            for (group, length, capped) in
                [(1, 1, false), (1, 1 << 20, false), (3, 64, false), (4, 4096, true), (6, 4096, true)]
            {
                let op = Op { head_dim, group, length, capped, ..Op::default() };
                let tile = HopperForward::by_rule(&op, arch).unwrap_or_else(|| panic!("{op:?}"));
                assert!(tile.is_legal(&op, arch), "{op:?}: {tile:?}");
            }
        }
    }

    #[test]
    fn beyond_the_short_lengths_three_warpgroups_work_on_few_queries_too_many() {
        let rounded = |length: usize, warpgroups: usize| length.next_multiple_of(warpgroups * ROWS);
        for length in LONG + 1..20_000 {
            assert!(rounded(length, 3) * 10 <= rounded(length, 2) * 11, "{length}");
        }
    }

    #[test]
    fn three_heads_share_keys_where_groups_allow_it() {
        assert_eq!((of(64, 3, 1024).heads, of(64, 3, 1024).queries()), (3, 64));
        assert_eq!((of(64, 4, 1024).queries(), of(64, 4, 2048).queries()), (128, 192));
        assert_eq!((of(128, 3, 2048).heads, of(128, 3, 2048).keys), (1, 128));
        assert_eq!((of(256, 1, 2048).keys, of(256, 1, 2048).staged), (80, false));
    }

    #[test]
    fn the_next_queries_have_a_place_where_there_is_room() {
        let hopper = arch::find("sm_90a").expect("it is a row");
        let small = Arch { shared_memory: 100 << 10, ..hopper.clone() };
        let narrow = of(64, 4, 2048);
        assert_eq!((narrow.query_ring(64, hopper), narrow.query_ring(64, &small)), (2, 1));
        assert_eq!(of(256, 1, 2048).query_ring(256, hopper), 1, "its output takes the place of queries");
        for head_dim in (8..=256).step_by(8) {
            let tile = of(head_dim, 1, 2048);
            let bytes = tile.shared_memory(head_dim, tile.query_ring(head_dim, hopper));
            assert!(bytes <= hopper.shared_memory as usize, "{head_dim}: {bytes}");
        }
    }

    #[test]
    fn a_gpu_with_little_shared_memory_gets_a_small_tile_or_none() {
        let with =
            |shared_memory: u32| Arch { shared_memory, ..arch::find("sm_90a").expect("it is a row").clone() };
        let op = Op { head_dim: 256, length: 1024, ..Op::default() };
        let tile = HopperForward::by_rule(&op, &with(100 << 10)).expect("one fits");
        assert_eq!((tile.consumers, tile.keys, tile.staged), (1, 32, false));
        assert_eq!(HopperForward::by_rule(&op, &with(48 << 10)), None);
    }
}
