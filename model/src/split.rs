//! Which part of a corpus is trained on and which is held out.
//!
//! In: tokens, and the share to hold out, or a second corpus. Out: two [`Section`]s that do not overlap.

use std::ops::Range;
use std::sync::Arc;

use crate::corpus::{CorpusError, Tokens};

/// A contiguous stretch of a corpus, counted from its own start. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Section {
    tokens: Arc<Tokens>,
    range: Range<usize>,
}

impl Section {
    /// The whole of `tokens`.
    #[must_use]
    pub fn whole(tokens: Arc<Tokens>) -> Self {
        let range = 0..tokens.len();
        Self { tokens, range }
    }

    /// Tokens in the section.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// The number that every token is below.
    #[must_use]
    pub fn vocab(&self) -> usize {
        self.tokens.vocab()
    }

    /// Writes the tokens of `range` to `out`. Panics when the range leaves the section or `out` has another length.
    pub fn fill(&self, range: Range<usize>, out: &mut [i32]) -> Result<(), CorpusError> {
        assert!(range.end <= self.len(), "range {range:?} of a section of {} tokens", self.len());
        self.tokens.fill(self.range.start + range.start..self.range.start + range.end, out)
    }

    /// Reads tokens `range` in pieces; each piece also holds the last token of the one before.
    pub(crate) fn for_each_piece(
        &self,
        range: Range<usize>,
        mut piece: impl FnMut(&[i32]),
    ) -> Result<(), CorpusError> {
        const N: usize = if cfg!(test) { 16 } else { 1 << 12 };
        let mut tokens = [0; N];
        let mut start = range.start;
        while start + 1 < range.end {
            let n = N.min(range.end - start);
            self.fill(start..start + n, &mut tokens[..n])?;
            piece(&tokens[..n]);
            start += n - 1;
        }
        Ok(())
    }
}

/// A corpus in two: what is trained on and what is held out.
#[derive(Debug, Clone)]
pub struct Split {
    /// What is trained on.
    pub training: Section,
    /// What is held out to validate.
    pub validation: Section,
}

/// Why a corpus cannot be split.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum SplitError {
    #[error("the share held out for validation must be above 0 and below 1, found `{0}`")]
    Fraction(f64),
    #[error(
        "the {part} part must have at least `{needed}` tokens, one sequence and its last target, found `{found}` \
         of a corpus of `{corpus}`"
    )]
    TooShort { part: &'static str, needed: usize, found: usize, corpus: usize },
}

impl Split {
    /// The share held out unless asked otherwise.
    pub const FRACTION: f64 = 0.1;

    /// Holds out the last `fraction` of `tokens`, rounded to the nearest token. Each part must have room for a
    /// sequence of `length` tokens and its last target.
    pub fn last(tokens: Arc<Tokens>, fraction: f64, length: usize) -> Result<Self, SplitError> {
        if !(fraction > 0.0 && fraction < 1.0) {
            return Err(SplitError::Fraction(fraction));
        }
        let n = tokens.len();
        let middle = n - (n as f64 * fraction).round() as usize;
        let training = Section { tokens: Arc::clone(&tokens), range: 0..middle };
        Self { training, validation: Section { tokens, range: middle..n } }.check(length)
    }

    /// Trains on the whole of one corpus and validates on the whole of another.
    pub fn given(training: Arc<Tokens>, validation: Arc<Tokens>, length: usize) -> Result<Self, SplitError> {
        Self { training: Section::whole(training), validation: Section::whole(validation) }.check(length)
    }

    fn check(self, length: usize) -> Result<Self, SplitError> {
        for (part, section) in [("training", &self.training), ("validation", &self.validation)] {
            let (needed, found) = (length.saturating_add(1), section.len());
            if found < needed {
                return Err(SplitError::TooShort { part, needed, found, corpus: section.tokens.len() });
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(n: usize) -> Arc<Tokens> {
        let text: Vec<u8> = (0..n).map(|i| i as u8).collect();
        Arc::new(Tokens::embedded("numbers", text.leak(), 256).unwrap())
    }

    #[test]
    fn the_parts_are_contiguous_and_cover_the_corpus() {
        for (n, fraction, held_out) in [(100, 0.1, 10), (101, 0.1, 10), (6, 0.5, 3), (205, 0.9, 185)] {
            let split = Split::last(tokens(n), fraction, 2).unwrap();
            assert_eq!(split.validation.len(), held_out, "{n} {fraction}");
            let mut joined = vec![0; n];
            let (first, second) = joined.split_at_mut(n - held_out);
            split.training.fill(0..first.len(), first).unwrap();
            split.validation.fill(0..held_out, second).unwrap();
            assert!(joined.iter().enumerate().all(|(i, token)| *token == i as i32), "{joined:?}");
        }
    }

    #[test]
    fn pieces_hold_every_pair_of_neighbours_once() {
        let section = Section::whole(tokens(200));
        for (start, end) in [(0, 0), (3, 4), (3, 5), (0, 16), (1, 17), (0, 17), (5, 36), (0, 200)] {
            let mut firsts: Vec<i32> = Vec::new();
            section.for_each_piece(start..end, |piece| firsts.extend(&piece[..piece.len() - 1])).unwrap();
            assert!(
                firsts.into_iter().eq(start as i32..(end as i32 - 1).max(start as i32)),
                "{start}..{end}"
            );
        }
    }

    #[test]
    fn a_part_shorter_than_a_sequence_and_its_target_is_refused() {
        assert!(Split::last(tokens(100), 0.1, 9).is_ok());
        let error = Split::last(tokens(100), 0.1, 10).unwrap_err().to_string();
        assert_eq!(
            error,
            "the validation part must have at least `11` tokens, one sequence and its last target, found `10` of a \
             corpus of `100`"
        );
        let error = Split::last(tokens(100), 0.9, 10).unwrap_err().to_string();
        assert!(error.starts_with("the training part must have at least `11` tokens"), "{error}");
        assert!(Split::given(tokens(5), tokens(4), 4).is_err());
        assert!(Split::given(tokens(5), tokens(5), 4).is_ok());
    }

    #[test]
    fn fractions_that_leave_a_part_empty_are_refused() {
        for fraction in [0.0, 1.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(
                matches!(Split::last(tokens(9), fraction, 1), Err(SplitError::Fraction(_))),
                "{fraction}"
            );
        }
    }
}
