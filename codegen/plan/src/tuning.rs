//! Tables of tiles that were measured: which one is fastest for what, on one GPU.
//!
//! In: TOML that `kernwright tune` wrote ([`read`]). Out: [`find`], which every choice of a tile asks first. A row says for which ops
//! it is and gives a kernel's tile; the first row that is for an op, and whose tile is legal on the GPU, is taken. Rows never make
//! anything wrong: what a tile may be is `tile`'s.

mod read;
mod write;

pub use read::read;
pub use write::write;

use crate::arch::Arch;
use crate::tile::attention_backward::{KeyBlock, QueryBlock};
use crate::tile::attention_backward_hopper::WarpgroupBlock;
use crate::tile::attention_backward_wide::WideBlocks;
use crate::tile::attention_forward::AttentionForward;
use crate::tile::attention_forward_hopper::HopperForward;
use crate::tile::{Mask, Op, Tile};
use std::cmp::Reverse;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// What a target's own table is called in the flat text form.
pub const TILES: &str = "tiles";

/// Stands for the end of a line there.
const LINE_END: char = '|';

/// A table on one line, for the flat text form.
#[must_use]
pub fn in_one_line(table: &Table) -> String {
    write(table, &[]).replace('\n', &LINE_END.to_string())
}

/// The table of such a line.
///
/// # Errors
/// As [`read`].
pub fn of_one_line(text: &str) -> Result<Table, Vec<String>> {
    read(TILES, &text.replace(LINE_END, "\n"))
}

/// What was measured on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The target whose kernels were measured: `sm_90a`.
    pub arch: String,
    /// The card on which they were.
    pub card: String,
    /// By preference.
    pub rows: Vec<Row>,
}

/// The fastest tile of a kernel for some ops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is for.
    pub when: When,
    /// The kernel, a name in [`KERNELS`].
    pub kernel: &'static str,
    /// Its tile, in the order of the kernel's axes.
    pub values: Vec<usize>,
    /// What was measured.
    pub measured: Option<Measured>,
}

/// What a pass took, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// With the tile of a row.
    pub now: u64,
    /// With the tile of before.
    pub before: u64,
    /// On how much, where that is known: with fewer blocks another tile may be faster.
    pub on: Option<Sizes>,
}

/// How much was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Query heads of all sequences.
    pub heads: usize,
    /// Queries of each.
    pub length: usize,
}

/// Which ops a row is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct When {
    /// Widths of heads.
    pub head_dim: RangeInclusive<usize>,
    /// The number of query heads of a head of keys is a multiple of this.
    pub group: usize,
    /// A kind of lengths, a name in [`LENGTHS`]; all where there is none.
    pub length: Option<&'static str>,
    /// What queries see; anything where there is none.
    pub mask: Option<Mask>,
    /// Are scores bounded?
    pub softcap: bool,
    /// Of gradients: have sums one order? Either where there is none.
    pub ordered: Option<bool>,
}

/// Kinds of lengths, of each its name and the longest; kernels may differ between them, and for batches and lengths nowhere else.
pub const LENGTHS: &[(&str, usize)] = &[("short", 1024), ("medium", 4096), ("long", usize::MAX)];

/// The kind of a length.
#[must_use]
pub fn kind_of(length: usize) -> &'static str {
    LENGTHS.iter().find(|(_, longest)| length <= *longest).map_or("", |(name, _)| name)
}

/// A kernel whose tile rows may choose.
pub struct Kernel {
    /// Its name.
    pub name: &'static str,
    /// Names of its axes, and which of them are flags.
    pub axes: fn() -> Vec<(&'static str, bool)>,
    /// Its tile for an op without any table, and with those there are.
    pub by_rule: fn(&Op, &Arch) -> Option<Vec<usize>>,
    /// See there.
    pub of: fn(&Op, &Arch) -> Option<Vec<usize>>,
    /// All tiles worth trying.
    pub candidates: fn(&Op, &Arch) -> Vec<Vec<usize>>,
    /// Is it a tile for that op on that GPU?
    pub is_legal: fn(&[usize], &Op, &Arch) -> bool,
}

/// All of them.
pub const KERNELS: &[Kernel] = &[
    kernel::<AttentionForward>(),
    kernel::<HopperForward>(),
    kernel::<KeyBlock>(),
    kernel::<QueryBlock>(),
    kernel::<WarpgroupBlock>(),
    kernel::<WideBlocks>(),
];

const fn kernel<T: Tile>() -> Kernel {
    Kernel {
        name: T::KERNEL,
        axes: || T::AXES.iter().map(|axis| (axis.name, axis.is_flag)).collect(),
        by_rule: |op, arch| T::by_rule(op, arch).map(|tile| tile.values()),
        of: |op, arch| T::of(op, arch).map(|tile| tile.values()),
        candidates: |op, arch| T::candidates(op, arch).iter().map(Tile::values).collect(),
        is_legal: |values, op, arch| values.len() == T::AXES.len() && T::with(values).is_legal(op, arch),
    }
}

/// The tables that Kernwright has, by file.
pub const SHIPPED: &[(&str, &str)] = &[
    ("h200-sxm.toml", include_str!("../tuning/h200-sxm.toml")),
    ("sm_80.toml", include_str!("../tuning/sm_80.toml")),
    ("sm_86.toml", include_str!("../tuning/sm_86.toml")),
];

/// They, read once; a test reads each.
static TABLES: LazyLock<Vec<Table>> =
    LazyLock::new(|| SHIPPED.iter().filter_map(|(file, text)| read(file, text).ok()).collect());

impl When {
    fn is_for(&self, op: &Op) -> bool {
        let Self { head_dim, group, length, mask, softcap, ordered } = self;
        head_dim.contains(&op.head_dim)
            && op.group.is_multiple_of(*group)
            && length.is_none_or(|name| name == kind_of(op.length))
            && mask.is_none_or(|mask| mask == op.mask)
            && *softcap == op.capped
            && ordered.is_none_or(|ordered| ordered == op.ordered)
    }
}

/// The tile that tables have for an op: the GPU's own, else Kernwright's of that target, else those of the targets that resemble it
/// most; and what was measured of it. What one of them says a smaller GPU may not be able to do: its next row, or the next table, then
/// has it.
pub(crate) fn find<T: Tile>(op: &Op, arch: &Arch) -> Option<(T, Option<Measured>)> {
    let of = |table: &Table| {
        let rows = table.rows.iter().filter(|row| row.kernel == T::KERNEL && row.when.is_for(op));
        rows.map(|row| (T::with(&row.values), row.measured)).find(|(tile, _)| tile.is_legal(op, arch))
    };
    arch.tuned.as_deref().and_then(of).or_else(|| nearest(arch).into_iter().find_map(of))
}

/// Kernwright's tables, those of targets that resemble it first: by name, by the one it was declared by, by shared memory. One of a
/// target with more of that is of no use: of what is fastest there fewer blocks would run at a time. Nor is one of other families: for
/// them the compiler has other registers to spare.
fn nearest(arch: &Arch) -> Vec<&'static Table> {
    let has_its_name = |table: &Table| *arch.name == *table.arch;
    let is_like = |table: &Table| arch.like.as_deref() == Some(table.arch.as_str());
    let other = |table: &Table| crate::arch::find(&table.arch);
    let has_no_more = |table: &Table| {
        let room = arch.shared_memory_multiprocessor;
        other(table).is_some_and(|other| {
            other.families == arch.families && other.shared_memory_multiprocessor <= room
        })
    };
    let fits = |table: &&Table| has_its_name(table) || is_like(table) || has_no_more(table);
    let mut all: Vec<&Table> = TABLES.iter().filter(fits).collect();
    all.sort_by_key(|table| {
        let room = other(table).map_or(0, |other| other.shared_memory);
        (Reverse((has_its_name(table), is_like(table))), room.abs_diff(arch.shared_memory))
    });
    all
}

#[cfg(test)]
mod tests;
