//! Tiles of the kernels that hold parts of matrices in shared memory.
//!
//! In: dimensions, an element type and a GPU's limits. Out: how much of what one block works on. A rule, not a measurement;
//! must not know templates or steps.

pub mod attention_backward;
pub mod attention_backward_hopper;
pub mod attention_backward_wide;
pub mod attention_forward_hopper;

use crate::arch::{Arch, RESERVED_SHARED_MEMORY};
use crate::dtype::Dtype;

const WARP: usize = 32;
/// Depth, rows and twice the columns of one tensor core instruction.
const FRAGMENT: usize = 16;

/// How a block of attention's forward works.
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
    /// Threads of a block.
    pub threads: usize,
    /// Blocks that a multiprocessor is to run at a time, which bounds the registers of a thread.
    pub blocks: usize,
    /// Bytes of shared memory.
    pub shared_memory: usize,
}

/// Widest head whose queries stay in registers, beside its sums.
const HELD: usize = 64;
/// Widest head of which a warp takes 32 queries: each key that it loads is used twice, and the sums still fit registers.
const TWO_ROW_TILES: usize = 128;
/// Widths whose sums and addresses leave no registers for the scores of 64 keys; 128 has simpler addresses.
const FEW_KEYS: std::ops::Range<usize> = 97..128;

/// The tile of attention's forward; `None` where none fits the GPU.
///
/// Up to 128 wide, 4 warps of 32 queries each, and 2 blocks so that one multiplies while the other takes exponentials.
/// Wider, 8 warps of 16 queries in 1 block. Then as many keys, and as many tiles on their way, as shared memory holds.
#[must_use]
pub fn attention_forward(head_dim: usize, dtype: Dtype, arch: &Arch) -> Option<AttentionForward> {
    let columns = head_dim.next_multiple_of(FRAGMENT);
    let (warps, blocks) = if head_dim <= TWO_ROW_TILES { (4, 2) } else { (8, 1) };
    let tile = |queries: usize, keys: usize, ring: usize, warps: usize, blocks: usize| AttentionForward {
        queries,
        keys,
        ring,
        held: head_dim <= HELD,
        threads: warps * WARP,
        blocks,
        shared_memory: (queries + ring * keys) * columns * dtype.bytes(),
    };
    let fits = |tile: &AttentionForward| {
        let reserved = RESERVED_SHARED_MEMORY as usize;
        tile.shared_memory <= arch.shared_memory as usize
            && tile.blocks * (tile.shared_memory + reserved) <= arch.shared_memory_multiprocessor as usize
    };
    let most = if FEW_KEYS.contains(&head_dim) { 48 } else { 64 };
    let sizes = [(most, 3), (most, 2), (32, 3), (32, 2)];
    let mut tiles = sizes.map(|(keys, ring)| tile(128, keys, ring, warps, blocks)).to_vec();
    // Small shared memory, such as that of a GPU declared with less.
    for (queries, keys) in [(128, 32), (64, 32), (64, 16)] {
        tiles.push(tile(queries, keys, 2, queries / FRAGMENT, 1));
    }
    tiles.into_iter().find(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{arch, dtype};

    #[test]
    fn every_width_has_a_tile_that_fits_every_gpu() {
        for arch in arch::ALL {
            for row in dtype::ALL.iter().filter(|row| row.bytes == 2) {
                for head_dim in (8..=256).step_by(8) {
                    let tile = attention_forward(head_dim, row.dtype, arch);
                    let tile = tile.unwrap_or_else(|| panic!("{head_dim} for {}", arch.name));
                    let place = format!("{head_dim} {} for {}: {tile:?}", row.name, arch.name);
                    assert!(tile.shared_memory <= arch.shared_memory as usize, "{place}");
                    let all = tile.blocks * (tile.shared_memory + RESERVED_SHARED_MEMORY as usize);
                    assert!(all <= arch.shared_memory_multiprocessor as usize, "{place}");
                    assert_eq!(tile.queries % (FRAGMENT * tile.threads / WARP), 0, "{place}");
                    let most = arch.registers_multiprocessor as usize / (tile.blocks * tile.threads);
                    assert!(most >= 255, "{place}: {most} registers");
                }
            }
        }
    }

    #[test]
    fn more_shared_memory_makes_a_tile_no_smaller() {
        let small = arch::find("sm_86").expect("it is a row");
        let large = arch::find("sm_90a").expect("it is a row");
        for head_dim in (8..=256).step_by(8) {
            let [small, large] =
                [small, large].map(|arch| attention_forward(head_dim, Dtype::Bf16, arch).expect("one fits"));
            assert!(large.keys * large.ring >= small.keys * small.ring, "{head_dim}");
        }
        let tile = attention_forward(128, Dtype::Fp16, small).expect("one fits");
        assert_eq!((tile.keys, tile.ring, tile.blocks), (32, 2, 2));
    }

    #[test]
    fn a_gpu_with_little_shared_memory_gets_a_small_tile_or_none() {
        let with = |shared_memory: u32| Arch {
            shared_memory,
            shared_memory_multiprocessor: shared_memory + RESERVED_SHARED_MEMORY,
            ..arch::ALL[0].clone()
        };
        let tile = attention_forward(256, Dtype::Bf16, &with(48 << 10)).expect("one fits");
        assert_eq!((tile.queries, tile.keys, tile.threads), (64, 16, 128));
        assert_eq!(attention_forward(256, Dtype::Bf16, &with(40 << 10)), None);
    }
}
