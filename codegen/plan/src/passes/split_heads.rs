//! Decides who owns keys in attention's gradient: a block for all query heads of a head of keys, or a block for each.
//!
//! In: attention's sizes and a GPU's multiprocessors. Out: does it pay to split? Few blocks leave multiprocessors waiting for
//! the longest; split, there are more of them and shorter ones, but shares of the gradients pass through memory.

use super::{ALWAYS_SPLIT_HEADS, SPLIT_HEADS};
use crate::ops::attention::Attention;
use crate::options::Options;
use crate::tile::attention_backward::KeyBlock;
use crate::tile::attention_backward_hopper::is_in_one_pass;
use crate::tile::attention_backward_wide::WideBlocks;
use crate::tile::rounds::end;

/// Multiprocessors of a GPU of which nothing is known: as many as large ones have.
const MULTIPROCESSORS: usize = 128;

/// Of this many blocks for each multiprocessor the longest no longer counts.
const MANY: usize = 4;

/// What a block takes, by a GPU's time for a tile of queries: half of one is 1.
const TILE: u64 = 2;
/// To begin with its keys and to end with its gradients.
const ENDS: u64 = 3;
/// To write shares in fp32, and its part of adding them up.
const SHARES: u64 = 3;

/// The same by Hopper's pass for wide heads, whose steps are shorter.
const WIDE_SHARES: u64 = 16;

/// Is a block to own the keys of one query head, in the gradient over so many sequences?
#[must_use]
pub fn pays(op: &Attention, sequences: usize, options: &Options) -> bool {
    let group = op.heads / op.kv_heads;
    if group < 2 || !options.runs(SPLIT_HEADS) {
        return false;
    }
    if options.asks_for(ALWAYS_SPLIT_HEADS) {
        return true;
    }
    let multiprocessors = options.multiprocessors.unwrap_or(MULTIPROCESSORS);
    let is_wide = options.in_turns && !is_in_one_pass(op.head_dim, op.softcap.is_some());
    let (sizes, shares) = if is_wide {
        (WideBlocks::roomiest(op.head_dim), WIDE_SHARES)
    } else {
        (KeyBlock::roomiest(op.head_dim), SHARES)
    };
    let Some((keys, queries)) = sizes else { return false };
    let (tiles, heads) = (op.key_length.div_ceil(keys), sequences * op.kv_heads);
    if heads * tiles > MANY * multiprocessors {
        return false;
    }
    let steps: Vec<u64> = (0..tiles).map(|tile| steps(op, tile * keys, keys, queries)).collect();
    // In the order in which the kernel's blocks begin.
    let together = steps.iter().map(|steps| TILE * steps * group as u64 + ENDS);
    let together = (0..heads).flat_map(|_| together.clone());
    let split = steps.iter().map(|steps| TILE * steps + ENDS + shares);
    let split = split.flat_map(|one| std::iter::repeat_n(one, heads * group));
    // A tenth sooner, or the memory is not worth it.
    10 * end(split, multiprocessors) < 9 * end(together, multiprocessors)
}

/// These options with heads split wherever they can be, then with heads split nowhere: whatever is chosen for some batch and
/// length, it is one of these.
#[must_use]
pub fn both(options: &Options) -> [Options; 2] {
    let mut bare = options.clone();
    bare.with.retain(|name| name != ALWAYS_SPLIT_HEADS);
    bare.without.retain(|name| name != SPLIT_HEADS);
    let [mut split, mut together] = [bare.clone(), bare];
    split.with.push(ALWAYS_SPLIT_HEADS.to_owned());
    together.without.push(SPLIT_HEADS.to_owned());
    [split, together]
}

/// Tiles of queries of one head that see some of the keys from `first` on.
fn steps(op: &Attention, first: usize, keys: usize, queries: usize) -> u64 {
    let last = (first + keys).min(op.key_length) - 1;
    let (begin, end) = (op.seen_by(first).start, op.seen_by(last).end);
    end.div_ceil(queries).saturating_sub(begin / queries) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::{Form, Window};

    fn op(heads: usize, kv_heads: usize, head_dim: usize, length: usize) -> Attention {
        Attention {
            heads,
            kv_heads,
            head_dim,
            length,
            key_length: length,
            window: Window::CAUSAL,
            softcap: None,
            scale: 1.0,
            form: Form::Fused,
        }
    }

    fn of(multiprocessors: Option<usize>) -> Options {
        Options { multiprocessors, ..Options::default() }
    }

    #[test]
    fn few_blocks_are_split_and_many_are_not() {
        let seed = op(12, 4, 64, 1024);
        let split: Vec<bool> = [1, 2, 4, 8, 16, 32].map(|batch| pays(&seed, batch, &of(Some(132)))).into();
        assert_eq!(split, [true, true, true, true, false, false]);
        // A small GPU is busy earlier.
        assert_eq!([1, 4].map(|batch| pays(&seed, batch, &of(Some(28)))), [true, false]);
        assert!(pays(&op(32, 8, 128, 4096), 1, &of(Some(132))));
        // Wide heads' shares are large beside what their blocks multiply.
        let hopper = Options { in_turns: true, ..of(Some(132)) };
        assert_eq!([16, 2].map(|group| pays(&op(16, 16 / group, 256, 1024), 1, &hopper)), [true, false]);
        // Blocks that all end at once leave nobody waiting.
        let full = Attention { window: Window::FULL, ..seed };
        assert_eq!([2, 4].map(|batch| pays(&full, batch, &of(Some(128)))), [true, false]);
    }

    #[test]
    fn an_unknown_gpu_has_128_multiprocessors() {
        for batch in 1..40 {
            let seed = op(12, 4, 64, 1024);
            assert_eq!(pays(&seed, batch, &of(None)), pays(&seed, batch, &of(Some(128))), "{batch}");
        }
        assert!(pays(&op(12, 4, 64, 1024), 4, &of(None)));
    }

    #[test]
    fn heads_with_keys_of_their_own_and_switches_decide_first() {
        let [always, never] = both(&of(Some(132)));
        assert!(!pays(&op(12, 12, 64, 1024), 1, &always), "there is nothing to split");
        assert!(pays(&op(12, 4, 64, 1024), 1000, &always));
        assert!(!pays(&op(12, 4, 64, 1024), 1, &never));
        assert_eq!(both(&never), both(&both(&always)[1]));
        assert!(pays(&op(12, 4, 64, 1024), 1000, &both(&never)[0]), "asked for last");
    }

    #[test]
    fn steps_are_the_tiles_of_queries_that_see_a_key() {
        for (window, length, key_length) in [
            (Window::CAUSAL, 333, 333),
            (Window::nearer(70).causal(), 500, 500),
            (Window::FULL, 129, 129),
            (Window::nearer(33), 300, 300),
            (Window::nearer(1).causal(), 64, 64),
            (Window::CAUSAL, 70, 400),
            (Window::CAUSAL, 400, 70),
            (Window::nearer(33), 70, 600),
            (Window { left: None, right: Some(3) }, 257, 130),
        ] {
            let op = Attention { window, key_length, ..op(2, 1, 8, length) };
            for tile in 0..key_length.div_ceil(128) {
                let sees = |query: usize| op.seen(query).any(|key| key / 128 == tile);
                let found: std::collections::BTreeSet<_> =
                    (0..length).filter(|query| sees(*query)).map(|query| query / 64).collect();
                assert_eq!(steps(&op, tile * 128, 128, 64), found.len() as u64, "{op:?}, {tile}");
            }
        }
    }
}
