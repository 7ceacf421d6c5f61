//! Tiles of attention's gradient on Hopper where heads are too wide for one pass: what warpgroups work on at once in the pass
//! over keys, and in the one over queries.
//!
//! In: head_dim and a GPU. Out: a row that was measured, else the first of a rule's that fits; `None` where the kernels for all GPUs
//! are taken. Which of the rule's is best was measured; a test in `tests/cuda` repeats that nothing spills.

use super::attention_backward::columns;
use super::attention_backward_hopper::{ROWS, WARPGROUP, takes_turns, tile_bytes};
use super::{Axis, Op, Tile};
use crate::arch::Arch;
use std::ops::RangeInclusive;

/// Sums and operands that a thread can hold in registers beside what a loop needs.
const HELD: usize = 208;

/// Blocks of both passes: a warpgroup that serves and two that work. In the pass over keys both work on the same 64, and each
/// has one gradient of them; in the one over queries each has 64 of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideBlocks {
    /// Queries of a step of the pass over keys.
    pub queries: usize,
    /// Tiles of q, and of d_out, there is room for.
    pub query_stages: usize,
    /// Keys of a step of the pass over queries.
    pub keys: usize,
    /// Tiles of k there is room for.
    pub k_stages: usize,
    /// Tiles of v.
    pub v_stages: usize,
}

/// Sizes of heads that blocks are for, by preference.
const BLOCKS: &[(RangeInclusive<usize>, WideBlocks)] = &[
    (8..=192, WideBlocks { queries: 64, query_stages: 3, keys: 80, k_stages: 2, v_stages: 2 }),
    (8..=256, WideBlocks { queries: 64, query_stages: 2, keys: 64, k_stages: 2, v_stages: 1 }),
];

impl WideBlocks {
    /// Keys that a block of the pass over keys owns.
    pub const OWN_KEYS: usize = ROWS;
    /// Queries that a block of the other pass owns.
    pub const OWN_QUERIES: usize = 2 * ROWS;
    /// Threads of either.
    pub const THREADS: usize = 3 * WARPGROUP;

    /// Keys that a block of the pass over keys owns and queries of its steps, where shared memory sets no limit.
    #[must_use]
    pub fn roomiest(head_dim: usize) -> Option<(usize, usize)> {
        let row = BLOCKS.iter().find(|(sizes, _)| sizes.contains(&head_dim));
        row.map(|(_, blocks)| (Self::OWN_KEYS, blocks.queries))
    }

    /// Columns of the products of either pass: of rows with the tile of a step, and with all columns of a head.
    #[must_use]
    pub fn product_widths(step: usize, head_dim: usize) -> Vec<u64> {
        let mut widths = vec![step as u64, columns(head_dim) as u64];
        widths.sort_unstable();
        widths.dedup();
        widths
    }

    /// Registers of a thread that hold sums and operands in the pass over queries, which needs more: d_q, S and dP, dS.
    fn registers(&self, head_dim: usize) -> usize {
        columns(head_dim) / 2 + self.keys + self.keys / 4
    }

    /// Bytes of shared memory of the pass over keys; as the template counts them.
    #[must_use]
    pub fn keys_memory(&self, head_dim: usize) -> usize {
        let columns = columns(head_dim);
        let tiles = 2 * tile_bytes(Self::OWN_KEYS, columns)
            + 2 * self.query_stages * tile_bytes(self.queries, columns);
        let probabilities = 4 * Self::OWN_KEYS * self.queries;
        let statistics = 4 * 2 * self.query_stages * self.queries;
        let barriers = 8 * (4 + 4 * self.query_stages);
        tiles + probabilities + statistics + barriers
    }

    /// The same of the pass over queries.
    #[must_use]
    pub fn queries_memory(&self, head_dim: usize) -> usize {
        let columns = columns(head_dim);
        let tiles = 2 * tile_bytes(Self::OWN_QUERIES, columns)
            + (self.k_stages + self.v_stages) * tile_bytes(self.keys, columns);
        let statistics = 4 * 2 * Self::OWN_QUERIES;
        let barriers = 8 * (2 + 2 * self.k_stages + 2 * self.v_stages);
        tiles + statistics + barriers
    }
}

impl Tile for WideBlocks {
    const KERNEL: &'static str = "attention_backward_wide";
    const AXES: &'static [Axis<Self>] = &[
        Axis::count("queries", &[64], |blocks| blocks.queries, |blocks, n| blocks.queries = n),
        Axis::count(
            "query_stages",
            &[2, 3, 4],
            |blocks| blocks.query_stages,
            |blocks, n| blocks.query_stages = n,
        ),
        Axis::count("keys", &[48, 64, 80, 96, 112], |blocks| blocks.keys, |blocks, n| blocks.keys = n),
        Axis::count("k_stages", &[2, 3], |blocks| blocks.k_stages, |blocks, n| blocks.k_stages = n),
        Axis::count("v_stages", &[1, 2, 3], |blocks| blocks.v_stages, |blocks, n| blocks.v_stages = n),
    ];
    const BLANK: Self = Self { queries: 0, query_stages: 0, keys: 0, k_stages: 0, v_stages: 0 };

    fn is_legal(&self, op: &Op, arch: &Arch) -> bool {
        let Self { queries, query_stages, keys, k_stages, v_stages } = *self;
        let memory = self.keys_memory(op.head_dim).max(self.queries_memory(op.head_dim));
        takes_turns(arch)
            && op.head_dim <= 256
            && queries == ROWS
            && keys > 0
            && keys.is_multiple_of(16)
            && (2..=4).contains(&query_stages)
            && (2..=4).contains(&k_stages)
            && (1..=4).contains(&v_stages)
            && self.registers(op.head_dim) <= HELD
            && memory <= arch.shared_memory as usize
    }

    fn by_rule(op: &Op, arch: &Arch) -> Option<Self> {
        let meant = BLOCKS.iter().filter(|(sizes, _)| sizes.contains(&op.head_dim));
        meant.map(|(_, blocks)| *blocks).find(|blocks| blocks.is_legal(op, arch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;

    fn of(head_dim: usize, arch: &Arch) -> Option<WideBlocks> {
        WideBlocks::by_rule(&Op { head_dim, ..Op::default() }, arch)
    }

    #[test]
    fn only_hopper_has_blocks_for_heads_of_every_size() {
        for arch in arch::ALL {
            for head_dim in (8..=256).step_by(8) {
                let found = of(head_dim, arch);
                assert_eq!(found.is_some(), arch.name == "sm_90a", "{head_dim} on {}", arch.name);
            }
        }
    }

    #[test]
    fn tiles_have_the_sizes_that_instructions_and_copies_take() {
        for (sizes, blocks) in BLOCKS {
            assert!(blocks.queries.is_multiple_of(32) && blocks.keys.is_multiple_of(16), "{blocks:?}");
            for head_dim in sizes.clone().step_by(8) {
                for step in [blocks.queries, blocks.keys] {
                    let widths = WideBlocks::product_widths(step, head_dim);
                    assert!(widths.iter().all(|n| n.is_multiple_of(8) && *n <= 256), "{widths:?}");
                }
            }
        }
    }

    #[test]
    fn wide_heads_leave_room_for_smaller_tiles() {
        let hopper = arch::find("sm_90a").expect("it is a row");
        let keys = |head_dim, arch| of(head_dim, arch).map(|blocks| blocks.keys);
        assert_eq!([128, 192, 200, 256].map(|head_dim| keys(head_dim, hopper)), [80, 80, 64, 64].map(Some));
        let small = Arch { shared_memory: 200 << 10, ..hopper.clone() };
        assert_eq!([128, 192, 256].map(|head_dim| keys(head_dim, &small)), [Some(80), Some(64), None]);
    }
}
