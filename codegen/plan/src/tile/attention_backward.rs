//! Tiles of attention's gradient: how many keys and queries a block works on at once, and how its warps share them.
//!
//! In: head_dim and a GPU's limits. Out: a row that was measured, else the first of a rule's that fits, by preference. Registers of
//! those were counted by compiling every one for every GPU; a test in `tests/cuda` repeats it.

use super::rounds::Owned;
use super::{Axis, Op, Tile};
use crate::arch::{Arch, RESERVED_SHARED_MEMORY};

/// Bytes of an element of the operands, all of 2-byte types.
const ELEMENT: usize = 2;

/// Columns of a tile: whole depths of an mma.
const DEPTH: usize = 16;

/// A block of the kernel that walks queries, with a tile of keys of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBlock {
    /// Keys it owns.
    pub keys: usize,
    /// Queries of a step.
    pub queries: usize,
    /// Parts of the keys, a warp for each of them and each part of the queries.
    pub key_warps: usize,
    /// Parts of the queries, and of the columns of d_k and d_v.
    pub query_warps: usize,
    /// Query tiles there is room for.
    pub stages: usize,
    /// Does it keep v in registers rather than in shared memory?
    pub v_in_registers: bool,
}

/// A block of the kernel that walks keys, with a tile of queries of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryBlock {
    /// Queries it owns.
    pub queries: usize,
    /// Keys of a step.
    pub keys: usize,
    /// Its warps, each with as many of the queries.
    pub warps: usize,
}

/// Rows of the tables: which numbers of columns a block is for.
struct Row<B> {
    /// Most columns.
    most: usize,
    /// The number of columns is a multiple of this.
    multiple: usize,
    block: B,
}

const fn keys(
    most: usize,
    multiple: usize,
    [keys, queries]: [usize; 2],
    [key_warps, query_warps]: [usize; 2],
    stages: usize,
    v_in_registers: bool,
) -> Row<KeyBlock> {
    let block = KeyBlock { keys, queries, key_warps, query_warps, stages, v_in_registers };
    Row { most, multiple, block }
}

/// Wide tiles of keys first, since a query's gradient is added up once for each of them; then what has room for the
/// next query tile. A warp never holds more than 32 x 32 scores of either kind and 128 sums for each lane.
const KEY_BLOCKS: &[Row<KeyBlock>] = &[
    keys(64, 16, [128, 64], [4, 2], 2, true),
    keys(80, 16, [128, 64], [4, 2], 2, false),
    keys(128, 32, [128, 64], [4, 2], 2, false),
    keys(96, 32, [128, 32], [4, 2], 2, false),
    keys(128, 16, [64, 64], [4, 2], 2, true),
    keys(192, 16, [64, 64], [4, 2], 2, false),
    keys(256, 32, [64, 32], [4, 2], 2, false),
    keys(192, 32, [64, 32], [4, 2], 2, true),
    keys(256, 16, [32, 32], [2, 2], 2, false),
    keys(256, 16, [32, 32], [2, 2], 1, false),
];

const fn queries(most: usize, queries: usize, keys: usize, warps: usize) -> Row<QueryBlock> {
    Row { most, multiple: DEPTH, block: QueryBlock { queries, keys, warps } }
}

/// Blocks of which a multiprocessor should run two: their warps own 32 queries, so that each load of a key's fragment serves
/// twice.
const QUERY_BLOCKS_IN_PAIRS: &[Row<QueryBlock>] = &[queries(128, 128, 32, 4)];

/// The others, by preference.
const QUERY_BLOCKS: &[Row<QueryBlock>] = &[
    queries(128, 128, 64, 8),
    queries(128, 128, 32, 8),
    queries(192, 64, 64, 4),
    queries(192, 64, 32, 4),
    queries(256, 128, 32, 8),
    queries(256, 64, 32, 4),
    queries(256, 64, 16, 4),
];

/// Columns of a tile for heads of that size.
#[must_use]
pub fn columns(head_dim: usize) -> usize {
    head_dim.next_multiple_of(DEPTH)
}

impl KeyBlock {
    /// Keys that a block owns and queries of its steps, where shared memory sets no limit.
    #[must_use]
    pub fn roomiest(head_dim: usize) -> Option<(usize, usize)> {
        first(KEY_BLOCKS, head_dim, |_| true).map(|block| (block.keys, block.queries))
    }

    /// Threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        32 * self.key_warps * self.query_warps
    }

    /// Parts that warps make of the columns of d_q, of 16 or more queries each: four where they are pairs of fragments, or where
    /// there are too few queries for more warps.
    #[must_use]
    pub fn column_warps(&self, head_dim: usize) -> usize {
        let warps = self.key_warps * self.query_warps;
        let is_even = columns(head_dim).is_multiple_of(64) && warps > 4;
        if is_even || self.queries < 8 * warps { 4 } else { 2 }
    }

    /// Bytes of shared memory; as the template counts them. `with_d_q` for the pass that adds to d_q.
    #[must_use]
    pub fn shared_memory(&self, head_dim: usize, with_d_q: bool) -> usize {
        let columns = columns(head_dim);
        let query_tiles = 2 * self.stages * self.queries * columns;
        let key_tiles = (if self.v_in_registers { 1 } else { 2 }) * self.keys * columns;
        let exchanged = usize::from(self.query_warps > 1);
        let scores = (usize::from(with_d_q).max(exchanged) + exchanged) * self.keys * self.queries;
        let tiles = ELEMENT * (query_tiles + key_tiles + scores) + 4 * 2 * self.queries;
        tiles.max(gradient(self.keys, columns))
    }
}

impl QueryBlock {
    /// Threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        32 * self.warps
    }

    /// Bytes of shared memory; as the template counts them.
    #[must_use]
    pub fn shared_memory(&self, head_dim: usize) -> usize {
        let columns = columns(head_dim);
        let tiles = ELEMENT * columns * (2 * self.queries + 2 * 2 * self.keys);
        tiles.max(gradient(self.queries, columns))
    }
}

/// Most registers of a thread, and those that hold neither sums nor products.
const REGISTERS: usize = 255;
const OTHERS: usize = 40;

/// Do these registers suffice for so many sums and products of each lane?
fn suffice(registers: usize, threads: usize, arch: &Arch) -> bool {
    threads > 0 && registers + OTHERS <= (arch.registers_multiprocessor as usize / threads).min(REGISTERS)
}

impl Tile for KeyBlock {
    const KERNEL: &'static str = "attention_backward_keys";
    const AXES: &'static [Axis<Self>] = &[
        Axis::count("keys", &[32, 64, 128], |block| block.keys, |block, n| block.keys = n),
        Axis::count("queries", &[32, 64, 128], |block| block.queries, |block, n| block.queries = n),
        Axis::count("key_warps", &[2, 4, 8], |block| block.key_warps, |block, n| block.key_warps = n),
        Axis::count("query_warps", &[1, 2, 4], |block| block.query_warps, |block, n| block.query_warps = n),
        Axis::count("stages", &[1, 2], |block| block.stages, |block, n| block.stages = n),
        Axis::flag("v_in_registers", |block| block.v_in_registers, |block, is| block.v_in_registers = is),
    ];
    const BLANK: Self =
        Self { keys: 0, queries: 0, key_warps: 0, query_warps: 0, stages: 0, v_in_registers: false };

    fn is_legal(&self, op: &Op, arch: &Arch) -> bool {
        let Self { keys, queries, key_warps, query_warps, stages, v_in_registers } = *self;
        let numbers = [keys, queries, key_warps, query_warps, stages];
        let columns = columns(op.head_dim);
        if numbers.iter().any(|n| *n == 0 || *n > 256)
            || !keys.is_multiple_of(DEPTH * key_warps)
            || !queries.is_multiple_of(DEPTH * query_warps)
            || !columns.is_multiple_of(8 * query_warps)
        {
            return false;
        }
        let (warps, column_warps) = (key_warps * query_warps, self.column_warps(op.head_dim));
        let (own_keys, own_queries) = (keys / key_warps, queries / query_warps);
        let (sums, scores) = (own_keys * columns / query_warps / 16, own_keys * own_queries / 16);
        let values = if v_in_registers { own_keys * columns / 64 } else { 0 };
        self.threads() <= 1024
            && self.threads() >= 2 * queries
            && stages <= 2
            && (!v_in_registers || (stages == 2 && 2 * queries >= keys))
            && (queries * column_warps).is_multiple_of(DEPTH * warps)
            && columns.is_multiple_of(8 * column_warps)
            && own_keys <= 2 * DEPTH
            && own_queries <= 2 * DEPTH
            && suffice(sums + scores + values, self.threads(), arch)
            && self.shared_memory(op.head_dim, true) <= room(arch)
    }

    fn owned(&self) -> Option<Owned> {
        Some(Owned { rows: self.keys, heads: 1 })
    }

    fn by_rule(op: &Op, arch: &Arch) -> Option<Self> {
        first(KEY_BLOCKS, op.head_dim, |block| block.shared_memory(op.head_dim, true) <= room(arch))
    }
}

impl Tile for QueryBlock {
    const KERNEL: &'static str = "attention_backward_queries";
    const AXES: &'static [Axis<Self>] = &[
        Axis::count("queries", &[64, 128, 256], |block| block.queries, |block, n| block.queries = n),
        Axis::count("keys", &[16, 32, 64, 128], |block| block.keys, |block, n| block.keys = n),
        Axis::count("warps", &[4, 8], |block| block.warps, |block, n| block.warps = n),
    ];
    const BLANK: Self = Self { queries: 0, keys: 0, warps: 0 };

    fn is_legal(&self, op: &Op, arch: &Arch) -> bool {
        let Self { queries, keys, warps } = *self;
        if [queries, keys, warps].contains(&0) || !queries.is_multiple_of(DEPTH * warps) {
            return false;
        }
        let own = queries / warps;
        let (sums, scores) = (own * columns(op.head_dim) / 32, own * keys / 16);
        keys.is_multiple_of(DEPTH)
            && own <= 2 * DEPTH
            && self.threads() <= 1024
            && suffice(sums + scores, self.threads(), arch)
            && self.shared_memory(op.head_dim) <= room(arch)
    }

    fn owned(&self) -> Option<Owned> {
        Some(Owned { rows: self.queries, heads: 1 })
    }

    fn by_rule(op: &Op, arch: &Arch) -> Option<Self> {
        let head_dim = op.head_dim;
        let twice = |block: &Self| {
            2 * (block.shared_memory(head_dim) + RESERVED_SHARED_MEMORY as usize)
                <= arch.shared_memory_multiprocessor as usize
        };
        first(QUERY_BLOCKS_IN_PAIRS, head_dim, twice)
            .or_else(|| first(QUERY_BLOCKS, head_dim, |block| block.shared_memory(head_dim) <= room(arch)))
    }
}

/// Bytes through which a gradient of that size passes on its way to memory.
fn gradient(rows: usize, columns: usize) -> usize {
    4 * rows * (columns + 8)
}

fn room(arch: &Arch) -> usize {
    arch.shared_memory as usize
}

fn first<B: Copy>(rows: &[Row<B>], head_dim: usize, fits: impl Fn(&B) -> bool) -> Option<B> {
    let columns = columns(head_dim);
    let meant = |row: &&Row<B>| columns <= row.most && columns.is_multiple_of(row.multiple);
    rows.iter().filter(meant).map(|row| row.block).find(|block| fits(block))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;

    fn op(head_dim: usize) -> Op {
        Op { head_dim, ..Op::default() }
    }

    #[test]
    fn every_head_has_blocks_that_fit_on_every_gpu() {
        for arch in arch::ALL {
            for head_dim in (8..=256).step_by(8) {
                let (place, op) = (format!("head_dim {head_dim} on {}", arch.name), op(head_dim));
                let keys = KeyBlock::by_rule(&op, arch).unwrap_or_else(|| panic!("{place}"));
                assert!(keys.is_legal(&op, arch), "{place}: {keys:?}");
                assert!(keys.shared_memory(head_dim, false) <= keys.shared_memory(head_dim, true), "{place}");
                let queries = QueryBlock::by_rule(&op, arch).unwrap_or_else(|| panic!("{place}"));
                assert!(queries.is_legal(&op, arch), "{place}: {queries:?}");
            }
        }
    }

    #[test]
    fn roomy_gpus_get_wide_tiles() {
        let of = |head_dim, name| {
            let arch = arch::find(name).expect("it is a row");
            KeyBlock::by_rule(&op(head_dim), arch).map(|block| (block.keys, block.queries))
        };
        assert_eq!(of(128, "sm_90a"), Some((128, 64)));
        assert_eq!(of(128, "sm_80"), Some((128, 64)));
        assert_eq!(of(128, "sm_86"), Some((64, 64)));
        assert_eq!(of(64, "sm_86"), Some((128, 64)));
        assert_eq!(of(256, "sm_120a"), Some((32, 32)));
    }
}
