//! Tiles of attention's forward on every GPU: how many queries a block owns, how many keys it takes at a time, what shared
//! memory holds.
//!
//! In: what the op is and a GPU's limits. Out: a row that was measured, else the first candidate of a rule that fits.

use super::rounds::Owned;
use super::{Axis, Op, Tile};
use crate::arch::{Arch, RESERVED_SHARED_MEMORY};

const WARP: usize = 32;
/// Depth, rows and twice the columns of one tensor core instruction.
const FRAGMENT: usize = 16;
/// Bytes of an element of the operands, all of 2-byte types.
const ELEMENT: usize = 2;

/// How a block works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionForward {
    /// Queries of a block.
    pub queries: usize,
    /// Keys that are worked on at a time.
    pub keys: usize,
    /// Tiles of keys and values that shared memory holds; they come in turns.
    pub ring: usize,
    /// Do the queries stay in registers?
    pub held: bool,
    /// Its warps, each with as many of the queries.
    pub warps: usize,
    /// Blocks that a multiprocessor is to run at a time, which bounds the registers of a thread.
    pub blocks: usize,
}

/// Widest head whose queries stay in registers, beside its sums.
const HELD: usize = 64;
/// Widest head of which a warp takes 32 queries: each key that it loads is used twice, and the sums still fit registers.
const TWO_ROW_TILES: usize = 128;
/// Widths whose sums and addresses leave no registers for the scores of 64 keys; 128 has simpler addresses.
const FEW_KEYS: std::ops::Range<usize> = 97..128;
/// Registers of a thread that hold neither sums nor scores.
const OTHERS: usize = 24;
/// Most threads of a block.
const MOST_THREADS: usize = 1024;

impl AttentionForward {
    /// Threads of a block.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.warps * WARP
    }

    /// Bytes of shared memory for heads so wide.
    #[must_use]
    pub fn shared_memory(&self, head_dim: usize) -> usize {
        (self.queries + self.ring * self.keys) * head_dim.next_multiple_of(FRAGMENT) * ELEMENT
    }

    fn fits(&self, head_dim: usize, arch: &Arch) -> bool {
        let (bytes, reserved) = (self.shared_memory(head_dim), RESERVED_SHARED_MEMORY as usize);
        bytes <= arch.shared_memory as usize
            && self.blocks * (bytes + reserved) <= arch.shared_memory_multiprocessor as usize
    }
}

impl Tile for AttentionForward {
    const KERNEL: &'static str = "attention_forward";
    const AXES: &'static [Axis<Self>] = &[
        Axis::count("queries", &[64, 128], |tile| tile.queries, |tile, n| tile.queries = n),
        Axis::count("keys", &[16, 32, 48, 64, 96, 128], |tile| tile.keys, |tile, n| tile.keys = n),
        Axis::count("ring", &[2, 3, 4], |tile| tile.ring, |tile, n| tile.ring = n),
        Axis::flag("held", |tile| tile.held, |tile, is| tile.held = is),
        Axis::count("warps", &[4, 8], |tile| tile.warps, |tile, n| tile.warps = n),
        Axis::count("blocks", &[1, 2], |tile| tile.blocks, |tile, n| tile.blocks = n),
    ];
    const BLANK: Self = Self { queries: 0, keys: 0, ring: 0, held: false, warps: 0, blocks: 0 };

    fn is_legal(&self, op: &Op, arch: &Arch) -> bool {
        let Self { queries, keys, ring, held, warps, blocks } = *self;
        if [queries, keys, warps, blocks].contains(&0) || !queries.is_multiple_of(FRAGMENT * warps) {
            return false;
        }
        let (own, columns) = (queries / warps, op.head_dim.next_multiple_of(FRAGMENT));
        let operands = if held { own * columns / 64 } else { 0 };
        let registers = own * (columns + keys) / WARP + operands + OTHERS;
        let most = (arch.registers_multiprocessor as usize / (blocks * self.threads())).min(255);
        keys.is_multiple_of(FRAGMENT)
            && ring >= 2
            && own <= 2 * FRAGMENT
            && self.threads() <= MOST_THREADS
            && blocks * self.threads() <= arch.threads_multiprocessor as usize
            && registers <= most
            && self.fits(op.head_dim, arch)
    }

    fn owned(&self) -> Option<Owned> {
        Some(Owned { rows: self.queries, heads: 1 })
    }

    /// Up to 128 wide, 4 warps of 32 queries each, and 2 blocks so that one multiplies while the other takes exponentials.
    /// Wider, 8 warps of 16 queries in 1 block. Then as many keys, and as many tiles on their way, as shared memory holds.
    fn by_rule(op: &Op, arch: &Arch) -> Option<Self> {
        let head_dim = op.head_dim;
        let (warps, blocks) = if head_dim <= TWO_ROW_TILES { (4, 2) } else { (8, 1) };
        let tile = |queries: usize, keys: usize, ring: usize, warps: usize, blocks: usize| Self {
            queries,
            keys,
            ring,
            held: head_dim <= HELD,
            warps,
            blocks,
        };
        let most = if FEW_KEYS.contains(&head_dim) { 48 } else { 64 };
        let sizes = [(most, 3), (most, 2), (32, 3), (32, 2)];
        let mut tiles = sizes.map(|(keys, ring)| tile(128, keys, ring, warps, blocks)).to_vec();
        // Small shared memory, such as that of a GPU declared with less.
        for (queries, keys) in [(128, 32), (64, 32), (64, 16)] {
            tiles.push(tile(queries, keys, 2, queries / FRAGMENT, 1));
        }
        tiles.into_iter().find(|tile| tile.fits(head_dim, arch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;

    fn of(head_dim: usize, arch: &Arch) -> Option<AttentionForward> {
        AttentionForward::by_rule(&Op { head_dim, ..Op::default() }, arch)
    }

    #[test]
    fn a_block_has_no_more_threads_than_can_be_launched() {
        let arch = arch::find("sm_80").expect("it is a row");
        let tile = |warps: usize| AttentionForward {
            queries: 16 * warps,
            keys: 16,
            ring: 2,
            held: false,
            warps,
            blocks: 1,
        };
        let is_legal = |warps| tile(warps).is_legal(&Op { head_dim: 8, ..Op::default() }, arch);
        assert!(is_legal(32) && !is_legal(48));
    }

    #[test]
    fn every_width_has_a_tile_that_fits_every_gpu() {
        for arch in arch::ALL {
            for head_dim in (8..=256).step_by(8) {
                let tile = of(head_dim, arch).unwrap_or_else(|| panic!("{head_dim} for {}", arch.name));
                let place = format!("{head_dim} for {}: {tile:?}", arch.name);
                assert!(tile.is_legal(&Op { head_dim, ..Op::default() }, arch), "{place}");
                let most = arch.registers_multiprocessor as usize / (tile.blocks * tile.threads());
                assert!(most >= 255, "{place}: {most} registers");
            }
        }
    }

    #[test]
    fn more_shared_memory_makes_a_tile_no_smaller() {
        let small = arch::find("sm_86").expect("it is a row");
        let large = arch::find("sm_90a").expect("it is a row");
        for head_dim in (8..=256).step_by(8) {
            let [small, large] = [small, large].map(|arch| of(head_dim, arch).expect("one fits"));
            assert!(large.keys * large.ring >= small.keys * small.ring, "{head_dim}");
        }
        let tile = of(128, small).expect("one fits");
        assert_eq!((tile.keys, tile.ring, tile.blocks), (32, 2, 2));
    }

    #[test]
    fn a_gpu_with_little_shared_memory_gets_a_small_tile_or_none() {
        let with = |shared_memory: u32| Arch {
            shared_memory,
            shared_memory_multiprocessor: shared_memory + RESERVED_SHARED_MEMORY,
            ..arch::ALL[0].clone()
        };
        let tile = of(256, &with(48 << 10)).expect("one fits");
        assert_eq!((tile.queries, tile.keys, tile.threads()), (64, 16, 128));
        assert_eq!(of(256, &with(40 << 10)), None);
    }
}
