//! Batches of sequences drawn from a corpus without replacement.
//!
//! In: a [`Section`], a seed, a [`Position`]. Out: the batch there and the next position, a pure function, so that a
//! run resumes exactly. In each epoch the section is cut into windows of `length` tokens from a random first token
//! on, and the windows come in a random order.

mod cover;
mod loader;

use serde::{Deserialize, Serialize};

pub use cover::Cover;
pub use loader::{Loader, LoaderError};

use crate::corpus::CorpusError;
use crate::permutation::Permutation;
use crate::random::Random;
use crate::split::Section;

/// The target that counts for nothing: no loss and no gradient.
pub use kernwright_plan::ops::head_loss::IGNORED;

/// The input of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// `batch` rows of `length` tokens.
    pub tokens: Vec<i32>,
    /// The token that follows each, or [`IGNORED`].
    pub targets: Vec<i32>,
    /// The indices of `tokens`, sorted by token, then by index: the order in which gradients of one embedding add up.
    pub token_order: Vec<i32>,
    /// Targets that are not [`IGNORED`].
    pub n_counted: usize,
}

/// A place in the order of training: window `index` of an epoch. It means the same only for the same corpus, seed and
/// length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Times the corpus has been gone through.
    pub epoch: u64,
    /// Windows of this epoch already taken.
    pub index: u64,
}

/// Which of several processes, each with its own share of every step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// This process, from 0.
    pub rank: usize,
    /// Processes.
    pub n_ranks: usize,
}

impl Share {
    /// The only process.
    pub const WHOLE: Self = Self { rank: 0, n_ranks: 1 };
}

/// Draws training batches.
#[derive(Debug, Clone)]
pub struct Sampler {
    section: Section,
    seed: u64,
    batch: usize,
    length: usize,
    share: Share,
}

impl Sampler {
    /// Draws batches of `batch` sequences of `length` tokens out of `section`. With several ranks, one step takes
    /// `batch` windows for each of them in turn, so that the order of windows does not depend on how many there are.
    pub fn new(
        section: Section,
        seed: u64,
        batch: usize,
        length: usize,
        share: Share,
    ) -> Result<Self, CorpusError> {
        assert!(batch > 0 && length > 0, "a batch of {batch} x {length} tokens");
        assert!(share.rank < share.n_ranks, "rank {} of {}", share.rank, share.n_ranks);
        let (needed, found) = (length.saturating_add(1), section.len());
        if found < needed {
            return Err(CorpusError::TooShort {
                needed,
                found,
                reason: "to train on one sequence".to_owned(),
            });
        }
        Ok(Self { section, seed, batch, length, share })
    }

    /// The batch of this rank at `position`, and the position of the next step.
    pub fn read(&self, position: Position) -> Result<(Batch, Position), CorpusError> {
        let mut batch = Batch::empty(self.batch, self.length);
        let before = self.share.rank * self.batch;
        let after = (self.share.n_ranks - self.share.rank - 1) * self.batch;
        let mut at = self.skip(position, before);
        let mut epoch = Epoch::new(self, at.epoch);
        let mut window = vec![0; self.length + 1];
        for _ in 0..self.batch {
            if epoch.number != at.epoch {
                epoch = Epoch::new(self, at.epoch);
            }
            let start = epoch.start(at.index, self.length);
            self.section.fill(start..start + window.len(), &mut window)?;
            batch.tokens.extend(&window[..self.length]);
            batch.targets.extend(&window[1..]);
            at = self.skip(at, 1);
        }
        Ok((batch.finish(), self.skip(at, after)))
    }

    /// Windows in epoch `epoch`.
    #[must_use]
    pub fn n_windows(&self, epoch: u64) -> u64 {
        Epoch::new(self, epoch).n_windows
    }

    /// Whether `position` is one that [`Sampler::read`] can have returned.
    #[must_use]
    pub fn can_resume(&self, position: Position) -> bool {
        position.index < self.n_windows(position.epoch)
    }

    /// The position `n` windows later.
    fn skip(&self, position: Position, n: usize) -> Position {
        let Position { mut epoch, mut index } = position;
        index = index.saturating_add(n as u64);
        loop {
            let n_windows = self.n_windows(epoch);
            if index < n_windows {
                return Position { epoch, index };
            }
            (epoch, index) = (epoch.wrapping_add(1), index - n_windows);
        }
    }
}

/// How one epoch cuts and orders the corpus.
struct Epoch {
    number: u64,
    /// Tokens before the first window.
    phase: usize,
    n_windows: u64,
    order: Permutation,
}

impl Epoch {
    fn new(sampler: &Sampler, number: u64) -> Self {
        let key = Random::stream(sampler.seed, "epochs").at(number);
        let mut random = Random::stream(key, "epoch");
        let n_targets = sampler.section.len() - 1;
        // At least one window must be left.
        let largest_phase = (sampler.length - 1).min(n_targets - sampler.length);
        let phase = random.below(largest_phase as u64 + 1) as usize;
        let n_windows = ((n_targets - phase) / sampler.length) as u64;
        Self { number, phase, n_windows, order: Permutation::new(n_windows, &mut random) }
    }

    fn start(&self, index: u64, length: usize) -> usize {
        self.phase + self.order.at(index) as usize * length
    }
}

impl Batch {
    fn empty(batch: usize, length: usize) -> Self {
        let n = batch * length;
        let (tokens, targets) = (Vec::with_capacity(n), Vec::with_capacity(n));
        Self { tokens, targets, token_order: Vec::new(), n_counted: 0 }
    }

    /// Derives the order and the count from the tokens and targets.
    fn finish(mut self) -> Self {
        self.n_counted = self.targets.iter().filter(|target| **target != IGNORED).count();
        let mut keys: Vec<u64> =
            self.tokens.iter().zip(0u64..).map(|(token, index)| (*token as u64) << 32 | index).collect();
        keys.sort_unstable();
        self.token_order = keys.into_iter().map(|key| (key as u32).cast_signed()).collect();
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::corpus::Tokens;

    /// A corpus of `n` tokens that differ within any 251 in a row.
    pub(super) fn section(n: usize) -> Section {
        let text: Vec<u8> = (0..n).map(|i| (i % 251) as u8).collect();
        Section::whole(Arc::new(Tokens::embedded("numbers", text.leak(), 256).unwrap()))
    }

    pub(super) fn sampler(n: usize, batch: usize, length: usize) -> Sampler {
        Sampler::new(section(n), 7, batch, length, Share::WHOLE).unwrap()
    }

    #[test]
    fn an_epoch_takes_each_window_once_and_leaves_few_tokens_out() {
        for (n, length) in [(250, 7), (250, 1), (251, 100), (250, 249), (249, 31), (200, 101)] {
            let sampler = sampler(n, 1, length);
            for epoch in 0..4 {
                let n_windows = sampler.n_windows(epoch);
                let mut seen = vec![false; n];
                for index in 0..n_windows {
                    let (batch, next) = sampler.read(Position { epoch, index }).unwrap();
                    let last = index + 1 == n_windows;
                    let expected =
                        Position { epoch: epoch + u64::from(last), index: (index + 1) % n_windows };
                    assert_eq!(next, expected);
                    for (token, target) in batch.tokens.iter().zip(&batch.targets) {
                        assert_eq!(token + 1, *target);
                        assert!(
                            !std::mem::replace(&mut seen[*token as usize], true),
                            "token {token} came twice"
                        );
                    }
                }
                let left_out = seen.iter().filter(|seen| !**seen).count();
                assert!(left_out < 2 * length, "{left_out} of {n} left out with length {length}");
            }
        }
    }

    #[test]
    fn epochs_and_seeds_differ_in_order_and_phase() {
        let first = |seed: u64, epoch: u64| {
            let sampler = Sampler::new(section(251), seed, 4, 10, Share::WHOLE).unwrap();
            sampler.read(Position { epoch, index: 0 }).unwrap().0.tokens
        };
        let mut batches = vec![first(1, 0), first(1, 1), first(1, 2), first(2, 0), first(3, 0)];
        let mut phases: Vec<i32> = batches.iter().map(|tokens| tokens[0] % 10).collect();
        batches.sort();
        batches.dedup();
        assert_eq!(batches.len(), 5);
        phases.sort_unstable();
        phases.dedup();
        assert!(phases.len() > 1, "every epoch starts at phase {phases:?}");
        assert_eq!(first(1, 1), first(1, 1));
    }

    #[test]
    fn a_batch_larger_than_an_epoch_runs_on_into_the_next_ones() {
        let one = sampler(30, 1, 8);
        let many = sampler(30, 11, 8);
        let mut position = Position::default();
        let mut expected = Vec::new();
        for _ in 0..11 {
            let (batch, next) = one.read(position).unwrap();
            expected.extend(batch.tokens);
            position = next;
        }
        assert_eq!(many.read(Position::default()).unwrap(), {
            let targets = expected.iter().map(|token| token + 1).collect();
            (Batch { tokens: expected, targets, token_order: vec![], n_counted: 0 }.finish(), position)
        });
    }

    #[test]
    fn the_ranks_of_a_step_together_take_what_one_process_would() {
        let whole = sampler(240, 6, 9);
        let ranks: Vec<Sampler> = (0..3)
            .map(|rank| Sampler::new(section(240), 7, 2, 9, Share { rank, n_ranks: 3 }).unwrap())
            .collect();
        let mut position = Position::default();
        for _ in 0..20 {
            let (expected, next) = whole.read(position).unwrap();
            let parts: Vec<_> = ranks.iter().map(|rank| rank.read(position).unwrap()).collect();
            let joined: Vec<i32> = parts.iter().flat_map(|(batch, _)| batch.tokens.clone()).collect();
            assert_eq!(joined, expected.tokens);
            assert!(parts.iter().all(|part| part.1 == next));
            position = next;
        }
    }

    #[test]
    fn the_token_order_is_a_stable_sort() {
        let tokens = vec![5, 3, 5, 0, 3, 5, 65_536];
        let targets = vec![1, IGNORED, 2, 3, IGNORED, 0, 1];
        let batch = Batch { tokens, targets, token_order: vec![], n_counted: 0 }.finish();
        assert_eq!(batch.token_order, [3, 1, 4, 0, 2, 5, 6]);
        assert_eq!(batch.n_counted, 5);
    }

    #[test]
    fn a_section_without_a_whole_sequence_is_refused() {
        assert!(Sampler::new(section(9), 1, 1, 8, Share::WHOLE).is_ok());
        let error = Sampler::new(section(8), 1, 1, 8, Share::WHOLE).unwrap_err().to_string();
        assert_eq!(error, "a corpus must have at least `9` tokens to train on one sequence, found `8`");
    }
}
