//! The fixed batches that a validation loss is measured on.
//!
//! In: the held-out [`Section`], the most batches to read. Out: the same batches each time. They cover every target of
//! the section once or, where that takes too many, windows spread evenly over it.

use super::{Batch, IGNORED};
use crate::corpus::CorpusError;
use crate::split::Section;

/// A fixed choice of windows of a section.
#[derive(Debug, Clone)]
pub struct Cover {
    section: Section,
    batch: usize,
    length: usize,
    /// Windows that would cover the section.
    n_all: usize,
    /// Windows that are read.
    n_windows: usize,
}

impl Cover {
    /// Covers `section` by at most `n_batches` batches of `batch` sequences of `length` tokens.
    pub fn new(section: Section, batch: usize, length: usize, n_batches: usize) -> Result<Self, CorpusError> {
        assert!(batch > 0 && length > 0 && n_batches > 0, "{n_batches} batches of {batch} x {length} tokens");
        let found = section.len();
        if found < 2 {
            return Err(CorpusError::TooShort { needed: 2, found, reason: "to validate on".to_owned() });
        }
        let n_all = (found - 1).div_ceil(length);
        let n_windows = n_all.min(batch.saturating_mul(n_batches));
        Ok(Self { section, batch, length, n_all, n_windows })
    }

    /// Batches in the cover.
    #[must_use]
    pub fn n_batches(&self) -> usize {
        self.n_windows.div_ceil(self.batch)
    }

    /// Targets in the cover: what a mean loss is a mean over. The batches' `n_counted` add up to it.
    #[must_use]
    pub fn n_targets(&self) -> usize {
        (0..self.n_windows).map(|window| self.window(window).1).sum()
    }

    /// Batch `index`. A window at the end of the section may be short, and the last batch may lack windows: there the
    /// tokens are 0 and the targets [`IGNORED`].
    pub fn read(&self, index: usize) -> Result<Batch, CorpusError> {
        assert!(index < self.n_batches(), "batch {index} of {}", self.n_batches());
        let mut batch = Batch::empty(self.batch, self.length);
        let mut tokens = vec![0; self.length + 1];
        for row in 0..self.batch {
            let window = index * self.batch + row;
            if window < self.n_windows {
                let (start, n) = self.window(window);
                self.section.fill(start..start + n + 1, &mut tokens[..n + 1])?;
                batch.tokens.extend(&tokens[..n]);
                batch.targets.extend(&tokens[1..n + 1]);
            }
            batch.tokens.resize((row + 1) * self.length, 0);
            batch.targets.resize((row + 1) * self.length, IGNORED);
        }
        Ok(batch.finish())
    }

    /// Hands each target of the cover, and the token before it, to `pair` as (token, target).
    pub fn for_each_pair(&self, mut pair: impl FnMut(i32, i32)) -> Result<(), CorpusError> {
        for window in 0..self.n_windows {
            let (start, n) = self.window(window);
            self.section.for_each_piece(start..start + n + 1, |tokens| {
                tokens.windows(2).for_each(|two| pair(two[0], two[1]));
            })?;
        }
        Ok(())
    }

    /// Where window `window` starts and its targets.
    fn window(&self, window: usize) -> (usize, usize) {
        // Wide, since the product of two window counts may pass 2^64.
        let chosen = (window as u128 * self.n_all as u128 / self.n_windows as u128) as usize;
        let start = chosen * self.length;
        (start, self.length.min(self.section.len() - 1 - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::tests::section;

    /// The (token, target) pairs of every batch, padding left out.
    fn pairs(cover: &Cover) -> Vec<(i32, i32)> {
        let mut pairs = Vec::new();
        for index in 0..cover.n_batches() {
            let batch = cover.read(index).unwrap();
            assert_eq!(batch.tokens.len(), cover.batch * cover.length);
            let all = batch.tokens.iter().copied().zip(batch.targets.iter().copied());
            let counted: Vec<_> = all.filter(|pair| pair.1 != IGNORED).collect();
            assert_eq!(counted.len(), batch.n_counted);
            pairs.extend(counted);
        }
        pairs
    }

    #[test]
    fn every_target_is_covered_exactly_once() {
        for n in [2, 3, 8, 9, 10, 17, 100, 251] {
            for (batch, length) in [(1, 1), (3, 8), (2, 7), (5, 300)] {
                let cover = Cover::new(section(n), batch, length, usize::MAX).unwrap();
                let expected: Vec<_> = (0..n as i32 - 1).map(|token| (token, token + 1)).collect();
                assert_eq!(pairs(&cover), expected, "{n} tokens, {batch} x {length}");
                assert_eq!(cover.n_targets(), n - 1);
            }
        }
    }

    #[test]
    fn a_limited_cover_is_spread_over_the_section() {
        let cover = Cover::new(section(251), 2, 5, 3).unwrap();
        assert_eq!((cover.n_batches(), cover.n_targets()), (3, 30));
        let starts: Vec<i32> = pairs(&cover).iter().step_by(5).map(|pair| pair.0).collect();
        assert_eq!(starts, [0, 40, 80, 125, 165, 205]);
    }

    #[test]
    fn the_pairs_are_those_of_the_batches() {
        for (n, batch, length, n_batches) in [(100, 3, 8, 99), (251, 2, 5, 3), (9, 1, 8, 1), (12, 2, 5, 1)] {
            let cover = Cover::new(section(n), batch, length, n_batches).unwrap();
            let mut found = Vec::new();
            cover.for_each_pair(|token, target| found.push((token, target))).unwrap();
            assert_eq!(found, pairs(&cover), "{n} tokens, {n_batches} batches of {batch} x {length}");
        }
    }
}
