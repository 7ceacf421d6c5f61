//! Tiles of attention's gradient on Hopper: what a block of warpgroups works on at once.
//!
//! In: head_dim and a GPU. Out: a row that was measured, else the first of a rule's that fits; `None` where two passes are needed
//! (`attention_backward_wide`). Which row is best was
//! measured; what spills or makes the compiler put products one after another was left out, and a test in `tests/cuda`
//! repeats it.

use super::attention_backward::columns;
use super::{Axis, Op, Tile};
use crate::arch::Arch;
use std::ops::RangeInclusive;

/// The family whose instructions the kernel is made of.
const FAMILY: &str = "hopper";

/// Threads of a warpgroup, and rows of its products.
pub(super) const WARPGROUP: usize = 128;
pub(super) const ROWS: usize = 64;

/// Bytes of a row of a tile in shared memory, and columns of a 2-byte type in it.
const ROW_BYTES: usize = 128;
const ROW_COLUMNS: usize = 64;

/// Warpgroups that work; as many as there are registers for.
const WORKERS: usize = 2;

/// Registers of a thread of a working warpgroup, of which there are two: what the serving one leaves when it keeps 24.
const REGISTERS: usize = 240;
/// The same when it keeps 40, which is enough for whatever it does.
const FEWER_REGISTERS: usize = 232;
/// So many sums and operands are held beside what a loop needs, and so many with fewer registers, too.
const HELD: usize = 216;
const HELD_WITH_FEWER: usize = 200;

/// A block that walks queries, with a tile of keys of its own: a warpgroup that serves and others that work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarpgroupBlock {
    /// Keys it owns, 64 for each warpgroup that works.
    pub keys: usize,
    /// Queries of a step.
    pub queries: usize,
    /// Tiles of q, and of d_out, there is room for.
    pub stages: usize,
    /// Tiles of dS there is room for.
    pub score_stages: usize,
    /// Does the product of P begin before dS is computed?
    pub is_early: bool,
}

/// Sizes of heads that a block is for, by preference. Wide tiles of queries leave no registers for heads that are not whole.
const BLOCKS: &[(RangeInclusive<usize>, WarpgroupBlock)] = &[
    (8..=32, block(128, 128, false)),
    (64..=64, block(128, 128, false)),
    (8..=64, block(128, 64, true)),
    (8..=128, block(128, 64, false)),
];

const fn block(keys: usize, queries: usize, is_early: bool) -> WarpgroupBlock {
    WarpgroupBlock { keys, queries, stages: 2, score_stages: 2, is_early }
}

/// Does this GPU add up the queries' gradient tile by tile, in one order where that is asked for?
#[must_use]
pub fn takes_turns(arch: &Arch) -> bool {
    arch.families.contains(&FAMILY)
}

/// Has such a GPU a block for those heads, with a softcap or without, that adds up the queries' gradient in its pass over keys?
#[must_use]
pub fn is_in_one_pass(head_dim: usize, is_capped: bool) -> bool {
    BLOCKS
        .iter()
        .any(|(sizes, block)| sizes.contains(&head_dim) && block.registers(head_dim, is_capped) <= HELD)
}

/// Bytes of a tile of rows in shared memory.
pub(super) fn tile_bytes(rows: usize, columns: usize) -> usize {
    columns.div_ceil(ROW_COLUMNS) * rows * ROW_BYTES
}

impl WarpgroupBlock {
    /// Warpgroups that work.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.keys / ROWS
    }

    /// Threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        WARPGROUP * (1 + self.workers())
    }

    /// Registers that a thread of a working warpgroup may have.
    #[must_use]
    pub fn working_registers(&self, head_dim: usize) -> usize {
        if self.registers(head_dim, false) <= HELD_WITH_FEWER { FEWER_REGISTERS } else { REGISTERS }
    }

    /// Columns of a warpgroup's part of d_q: all of them where its queries are its own, else half, from a row of shared
    /// memory on.
    #[must_use]
    pub fn d_q_columns(&self, head_dim: usize) -> usize {
        let columns = columns(head_dim);
        if self.queries == ROWS * self.workers() {
            columns
        } else if columns <= ROW_COLUMNS {
            columns / self.workers()
        } else {
            ROW_COLUMNS
        }
    }

    /// The columns of all its products.
    #[must_use]
    pub fn product_widths(&self, head_dim: usize) -> Vec<u64> {
        let mut widths =
            [self.queries, columns(head_dim), self.d_q_columns(head_dim)].map(|width| width as u64).to_vec();
        widths.sort_unstable();
        widths.dedup();
        widths
    }

    /// Registers of a thread that hold sums and operands when there are most of them: S and dP, both gradients, P where it is in
    /// use meanwhile, what a softcap makes of large tiles, a few more.
    fn registers(&self, head_dim: usize, is_capped: bool) -> usize {
        let beside = usize::from(self.is_early) + usize::from(is_capped && self.queries > ROWS);
        self.queries + beside * self.queries / 4 + columns(head_dim) + 24
    }

    /// Bytes of shared memory; as the template counts them.
    #[must_use]
    pub fn shared_memory(&self, head_dim: usize) -> usize {
        let columns = columns(head_dim);
        let tiles = 2 * tile_bytes(self.keys, columns)
            + 2 * self.stages * tile_bytes(self.queries, columns)
            + self.score_stages * tile_bytes(self.queries, self.keys);
        let sums = 4 * self.queries * head_dim;
        let statistics = 4 * 2 * self.stages * self.queries;
        let barriers = 8 * (4 + 4 * self.stages);
        tiles + sums + statistics + barriers
    }
}

impl Tile for WarpgroupBlock {
    const KERNEL: &'static str = "attention_backward_hopper";
    const AXES: &'static [Axis<Self>] = &[
        Axis::count("keys", &[128], |block| block.keys, |block, n| block.keys = n),
        Axis::count("queries", &[64, 128], |block| block.queries, |block, n| block.queries = n),
        Axis::count("stages", &[2, 3], |block| block.stages, |block, n| block.stages = n),
        Axis::count("score_stages", &[1, 2], |block| block.score_stages, |block, n| block.score_stages = n),
        Axis::flag("early", |block| block.is_early, |block, is| block.is_early = is),
    ];
    const BLANK: Self = Self { keys: 0, queries: 0, stages: 0, score_stages: 0, is_early: false };

    fn is_legal(&self, op: &Op, arch: &Arch) -> bool {
        let Self { keys, queries, stages, score_stages, is_early: _ } = *self;
        arch.families.contains(&FAMILY)
            && keys == WORKERS * ROWS
            && (queries == ROWS || queries == WORKERS * ROWS)
            // With one the next tile is waited for before this one is given back, for ever.
            && (2..=4).contains(&stages)
            && (1..=2).contains(&score_stages)
            && self.product_widths(op.head_dim).iter().all(|n| n.is_multiple_of(8) && *n <= 256)
            && self.workers() * self.d_q_columns(op.head_dim) >= columns(op.head_dim)
            && self.registers(op.head_dim, op.capped) <= HELD
            && self.shared_memory(op.head_dim) <= arch.shared_memory as usize
    }

    fn by_rule(op: &Op, arch: &Arch) -> Option<Self> {
        let meant = BLOCKS.iter().filter(|(sizes, _)| sizes.contains(&op.head_dim));
        meant.map(|(_, block)| *block).find(|block| block.is_legal(op, arch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;

    fn of(head_dim: usize, capped: bool, arch: &Arch) -> Option<WarpgroupBlock> {
        WarpgroupBlock::by_rule(&Op { head_dim, capped, ..Op::default() }, arch)
    }

    #[test]
    fn only_hopper_has_blocks_of_warpgroups() {
        for arch in arch::ALL {
            for head_dim in (8..=256).step_by(8) {
                let found = of(head_dim, false, arch);
                assert_eq!(
                    found.is_some(),
                    arch.name == "sm_90a" && head_dim <= 128,
                    "{head_dim} on {}",
                    arch.name
                );
                assert_eq!(takes_turns(arch), arch.name == "sm_90a");
            }
        }
    }

    #[test]
    fn products_have_the_sizes_that_instructions_take() {
        let hopper = arch::find("sm_90a").expect("it is a row");
        for head_dim in (8..=128).step_by(8) {
            let block = of(head_dim, false, hopper).expect("the test above");
            let place = format!("{head_dim}: {block:?}");
            assert!(
                block.product_widths(head_dim).iter().all(|n| n.is_multiple_of(8) && *n <= 256),
                "{place}"
            );
            assert!(block.workers() * block.d_q_columns(head_dim) >= columns(head_dim), "{place}");
            assert!(block.queries == ROWS || block.queries == ROWS * block.workers(), "{place}");
            assert!(block.shared_memory(head_dim) <= hopper.shared_memory as usize, "{place}");
        }
    }

    #[test]
    fn with_one_stage_a_block_would_wait_for_itself() {
        let hopper = arch::find("sm_90a").expect("it is a row");
        for head_dim in (8..=128).step_by(8) {
            let op = Op { head_dim, ..Op::default() };
            let block = of(head_dim, false, hopper).expect("the first test");
            assert!(!WarpgroupBlock { stages: 1, ..block }.is_legal(&op, hopper), "{head_dim}");
            assert!(
                WarpgroupBlock::candidates(&op, hopper).iter().all(|block| block.stages > 1),
                "{head_dim}"
            );
        }
    }

    #[test]
    fn a_softcap_takes_registers() {
        let hopper = arch::find("sm_90a").expect("it is a row");
        let queries = |head_dim, is_capped| of(head_dim, is_capped, hopper).map(|block| block.queries);
        assert_eq!([false, true].map(|is_capped| queries(64, is_capped)), [Some(128), Some(64)]);
        for is_capped in [false, true] {
            assert_eq!([128, 136].map(|head_dim| queries(head_dim, is_capped)), [Some(64), None]);
            assert_eq!([128, 136].map(|head_dim| is_in_one_pass(head_dim, is_capped)), [true, false]);
        }
    }

    #[test]
    fn a_gpu_with_less_shared_memory_gets_smaller_tiles_or_none() {
        let with =
            |shared_memory: u32| Arch { shared_memory, ..arch::find("sm_90a").expect("it is a row").clone() };
        let queries = |bytes: u32| of(64, false, &with(bytes)).map(|block| block.queries);
        assert_eq!([227 << 10, 150 << 10, 99 << 10].map(queries), [Some(128), Some(64), None]);
    }
}
