//! Rounds of blocks: how much work the multiprocessor has that has most of it.
//!
//! In: the tiles that come into question for an op. Out: the one to take. What is fastest where each multiprocessor has many blocks may
//! lose where it has few: 192 blocks on 132 multiprocessors take as long as 264 of that size, or as 396 of two thirds of it. Must not
//! know kernels.

use super::{Mask, Op, Tile};
use crate::arch::Arch;
use crate::tuning::{self, Measured};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a block owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Rows of each head.
    pub rows: usize,
    /// Neighbouring heads.
    pub heads: usize,
}

/// Most tiles that come into question for an op: of a row, and of a rule that knows two.
pub const MOST: usize = 3;

/// A tile that is preferred where there are many blocks must have more work than another by this factor to lose its place: it may be
/// faster by a tenth, and multiprocessors that have nothing left to do leave memory and power to the others.
const LOSS: f64 = 1.1;

/// Of more blocks than so many for each multiprocessor it does not matter who gets one more.
const MANY: usize = 16;

/// Keys during which a block might work instead of beginning and ending.
const ENDS: usize = 256;

/// A tile, and the op that it was measured on where it is a row's.
struct Candidate<T> {
    tile: T,
    measured: Option<Op>,
}

/// The tile for an op; `None` where none fits the GPU. Where the number of heads is not known, the preferred one.
pub(super) fn choose<T: Tile>(op: &Op, arch: &Arch) -> Option<T> {
    let all = candidates::<T>(op, arch);
    if let Some(n) = arch.nth_tile {
        return all.get(n).or(all.last()).map(|candidate| candidate.tile);
    }
    let best =
        all.into_iter().reduce(|best, next| if gives_way(&best, &next, op, arch) { next } else { best });
    best.map(|candidate| candidate.tile)
}

/// The tiles that may be taken for an op, whatever the number of heads, by preference; of those whose blocks own as much, one. A row of
/// which nobody knows where it was measured was asked for, and is alone.
fn candidates<T: Tile>(op: &Op, arch: &Arch) -> Vec<Candidate<T>> {
    let mut all: Vec<Candidate<T>> = Vec::new();
    if let Some((tile, measured)) = tuning::find::<T>(op, arch) {
        let on = measured.and_then(|Measured { on, .. }| on);
        let on = on.map(|on| Op { heads: on.heads, length: on.length, ..*op });
        let is_alone = on.is_none();
        all.push(Candidate { tile, measured: on });
        if is_alone {
            return all;
        }
    }
    for tile in T::by_rules(op, arch) {
        if all.iter().all(|other| other.tile.owned() != tile.owned()) {
            all.push(Candidate { tile, measured: None });
        }
    }
    all
}

/// Has the preferred tile so much more work than the other, beside what it had where it won, that it is to lose?
fn gives_way<T: Tile>(best: &Candidate<T>, next: &Candidate<T>, op: &Op, arch: &Arch) -> bool {
    let (Some(one), Some(other)) = (best.tile.owned(), next.tile.owned()) else { return false };
    let n = arch.multiprocessors();
    let ratio = |op: &Op| most(one, op, n) / most(other, op, n);
    op.heads > 0 && ratio(op) > LOSS * best.measured.as_ref().map_or(1.0, ratio)
}

/// Work of the multiprocessor that has most of it, in pairs of rows and what they see, when the longest blocks begin first.
#[allow(clippy::cast_precision_loss)]
fn most(owned: Owned, op: &Op, multiprocessors: usize) -> f64 {
    let Owned { rows, heads } = owned;
    let (tiles, units) = (op.length.div_ceil(rows.max(1)), op.heads.div_ceil(heads.max(1)));
    // How far a window reaches does not matter: all blocks see as much.
    let work = |tile: usize| {
        (heads * rows) as u64
            * match op.mask {
                Mask::Causal => ((2 * tile + 1) * rows + 2 * ENDS) as u64,
                Mask::Full | Mask::Window => 2 * (op.length + ENDS) as u64,
            }
    };
    let all = (0..tiles).rev().flat_map(|tile| std::iter::repeat_n(work(tile), units));
    if tiles * units > MANY * multiprocessors {
        let of_unit: u64 = (0..tiles).map(work).sum();
        return of_unit as f64 * units as f64 / multiprocessors as f64;
    }
    end(all, multiprocessors) as f64
}

/// When the last of some blocks ends, each of which the first free multiprocessor takes in their order.
pub(crate) fn end(blocks: impl Iterator<Item = u64>, multiprocessors: usize) -> u64 {
    let mut free: BinaryHeap<_> = std::iter::repeat_n(Reverse(0), multiprocessors.max(1)).collect();
    let mut last = 0;
    for block in blocks {
        let Some(Reverse(start)) = free.pop() else { break };
        last = last.max(start + block);
        free.push(Reverse(start + block));
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;
    use crate::tile::attention_forward_hopper::HopperForward;
    use crate::tuning::Table;
    use std::sync::Arc;

    /// A row for full masks that was best by a little where it was measured: 192 queries of 256 heads of 1024.
    const ROW: &str = "arch = \"sm_90a\"\n[[attention_forward_hopper]]\nhead_dim = 64\nmask = \"full\"\nconsumers = 3\nheads = 1\n\
                       keys = 128\nring = 2\nturns = true\nstaged = true\nmicroseconds = 9.0\nbefore = 9.1\n";

    fn with(text: &str) -> Arch {
        let table: Table = tuning::read("x", text).unwrap_or_else(|problems| panic!("{problems:?}"));
        Arch { tuned: Some(Arc::new(table)), ..arch::find("sm_90a").expect("it is a row").clone() }
    }

    fn queries(heads: usize, length: usize, arch: &Arch) -> Option<usize> {
        let op = Op { heads, length, mask: Mask::Full, ..Op::default() };
        HopperForward::of(&op, arch).map(|tile| tile.queries())
    }

    #[test]
    fn a_row_gives_way_where_its_blocks_would_take_a_round_of_their_own() {
        let arch = with(&format!("{ROW}measured_on = [256, 1024]"));
        assert_eq!(queries(256, 1024, &arch), Some(192), "it was measured there");
        // 3 blocks of each of 64 heads are more than a round, and so are 4 blocks of two thirds of the work.
        assert_eq!(queries(64, 512, &arch), Some(128));
        assert_eq!(queries(0, 512, &arch), Some(192), "nobody knows how many there are");
        assert_eq!(queries(4096, 960, &arch), Some(192), "many, and whole ones");
        assert_eq!(queries(44, 576, &arch), Some(192), "all in one round, where 128 queries take two");
    }

    #[test]
    fn a_row_that_was_measured_where_it_is_asked_stays() {
        for (heads, length) in [(64, 512), (1, 1), (44, 320), (133, 64), (7, 900)] {
            let arch = with(&format!("{ROW}measured_on = [{heads}, {length}]"));
            assert_eq!(queries(heads, length, &arch), Some(192), "{heads} heads of {length}");
            assert_eq!(queries(heads, length, &with(ROW)), Some(192), "asked for");
        }
    }

    #[test]
    fn every_candidate_can_be_asked_for() {
        let arch = with(&format!("{ROW}measured_on = [256, 1024]"));
        let nth = |n| queries(64, 512, &Arch { nth_tile: Some(n), ..arch.clone() });
        assert_eq!([nth(0), nth(1), nth(MOST)], [Some(192), Some(128), Some(128)]);
    }

    #[test]
    fn blocks_come_in_rounds() {
        let full = |rows, heads| {
            most(Owned { rows, heads: 1 }, &Op { heads, length: 384, mask: Mask::Full, ..Op::default() }, 132)
        };
        let pair = |rows: usize| (rows * 2 * (384 + ENDS)) as f64;
        assert_eq!(full(192, 66), pair(192));
        assert_eq!(full(192, 67), 2.0 * pair(192));
        assert_eq!(full(128, 67), 2.0 * pair(128));
        // Early queries of a causal mask see less, and what is short comes last: here to the third multiprocessor.
        let causal = most(Owned { rows: 64, heads: 2 }, &Op { heads: 4, length: 128, ..Op::default() }, 3);
        assert_eq!(causal, (2 * 64 * 2 * (64 + 2 * ENDS)) as f64);
    }

    #[test]
    fn the_end_is_that_of_the_last_block() {
        assert_eq!(end([5, 4, 3, 3].into_iter(), 2), 8);
        assert_eq!(end([3, 3, 4, 5].into_iter(), 2), 8);
        assert_eq!(end([1, 1, 1, 9].into_iter(), 3), 10);
        assert_eq!(end([7].into_iter(), 100), 7);
        assert_eq!(end(std::iter::empty(), 3), 0);
    }
}
