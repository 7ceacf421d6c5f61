//! The baseline: how well the token before predicts the next one, by counting alone. A model that learns anything
//! beyond pairs is below its loss.
//!
//! In: the training section; then the [`Cover`] that the model is validated on. Out: mean nats per token over exactly
//! those targets. Probabilities are interpolated by Witten and Bell's rule (1991: "The zero-frequency problem",
//! method C; as in Chen and Goodman 1998, section 2.5), pairs with single tokens and those with the uniform
//! distribution:
//!
//! ```text
//! p(b | a) = (count(a b) + kinds(a) p(b)) / (count(a) + kinds(a)),  kinds(a) = distinct tokens seen after a
//! p(b)     = (count(b) + kinds / vocab) / (count + kinds),          kinds    = distinct tokens seen
//! ```

use crate::batches::Cover;
use crate::corpus::CorpusError;
use crate::split::Section;

/// Pairs that are gathered before they are sorted into the counts.
const N_GATHERED: usize = 1 << 22;

/// The counted pairs of a training section.
#[derive(Debug, Clone)]
pub struct Bigram {
    vocab: usize,
    /// How often each token is a target, and their sum.
    singles: Vec<u64>,
    n_singles: u64,
    /// Distinct targets.
    n_kinds: u64,
    /// Seen pairs, `first << 32 | second`, ascending, and how often.
    pairs: Vec<(u64, u64)>,
    /// For each first token, where its pairs start in `pairs`; one more entry for the end.
    rows: Vec<usize>,
    /// For each first token, how often it is followed.
    row_counts: Vec<u64>,
}

impl Bigram {
    /// Tokens that are counted unless asked otherwise: a few seconds of work.
    pub const N_TOKENS: usize = 1 << 25;

    /// The mean loss on `cover` of the model that `section` gives, in nats per token.
    pub fn loss(section: &Section, cover: &Cover) -> Result<f64, CorpusError> {
        Self::count(section, Self::N_TOKENS)?.mean_nats(cover)
    }

    /// Counts the pairs among the first `n_tokens` tokens of `section`.
    pub fn count(section: &Section, n_tokens: usize) -> Result<Self, CorpusError> {
        let vocab = section.vocab();
        let mut singles = vec![0u64; vocab];
        let mut gathered: Vec<u64> = Vec::new();
        let mut pairs: Vec<(u64, u64)> = Vec::new();
        section.for_each_piece(0..section.len().min(n_tokens), |tokens| {
            for two in tokens.windows(2) {
                singles[two[1] as usize] += 1;
                gathered.push((two[0] as u64) << 32 | two[1] as u64);
            }
            if gathered.len() >= N_GATHERED {
                pairs = merge(&pairs, &mut gathered);
            }
        })?;
        pairs = merge(&pairs, &mut gathered);

        let mut rows = vec![0; vocab + 1];
        let mut row_counts = vec![0u64; vocab];
        for (pair, count) in &pairs {
            let first = (pair >> 32) as usize;
            rows[first + 1] += 1;
            row_counts[first] += count;
        }
        for token in 0..vocab {
            rows[token + 1] += rows[token];
        }
        let n_singles = singles.iter().sum();
        let n_kinds = singles.iter().filter(|count| **count > 0).count() as u64;
        Ok(Self { vocab, singles, n_singles, n_kinds, pairs, rows, row_counts })
    }

    /// The probability that `second` follows `first`; above 0, and a sum of 1 over all `second`.
    #[must_use]
    pub fn probability(&self, first: i32, second: i32) -> f64 {
        let (first, second) = (first as usize, second as usize);
        let row = &self.pairs[self.rows[first]..self.rows[first + 1]];
        let key = (first as u64) << 32 | second as u64;
        let count = row.binary_search_by_key(&key, |pair| pair.0).map_or(0, |at| row[at].1);
        let single = interpolate(self.singles[second], self.n_singles, self.n_kinds, 1.0 / self.vocab as f64);
        interpolate(count, self.row_counts[first], row.len() as u64, single)
    }

    /// The mean of -ln p over the targets of `cover`, in nats per token.
    pub fn mean_nats(&self, cover: &Cover) -> Result<f64, CorpusError> {
        let mut sum = 0.0;
        cover.for_each_pair(|token, target| sum -= self.probability(token, target).ln())?;
        Ok(sum / cover.n_targets() as f64)
    }
}

/// Witten and Bell's rule; where nothing was counted, `below` alone.
fn interpolate(count: u64, total: u64, kinds: u64, below: f64) -> f64 {
    if total == 0 { below } else { (count as f64 + kinds as f64 * below) / (total + kinds) as f64 }
}

/// Adds the `gathered` pairs, which it empties, to the sorted counts `old`.
fn merge(old: &[(u64, u64)], gathered: &mut Vec<u64>) -> Vec<(u64, u64)> {
    gathered.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::with_capacity(old.len() + gathered.len().min(old.len()));
    let mut rest = old;
    for same in gathered.chunk_by(|a, b| a == b) {
        let (key, count) = (same[0], same.len() as u64);
        let n = rest.iter().take_while(|pair| pair.0 < key).count();
        merged.extend(&rest[..n]);
        rest = &rest[n..];
        match rest.split_first() {
            Some((found, others)) if found.0 == key => {
                merged.push((key, found.1 + count));
                rest = others;
            }
            _ => merged.push((key, count)),
        }
    }
    merged.extend(rest);
    gathered.clear();
    merged
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::corpus::Tokens;
    use crate::random::Random;

    fn section(text: &[u8]) -> Section {
        let text: &'static [u8] = text.to_vec().leak();
        Section::whole(Arc::new(Tokens::embedded("text", text, 256).unwrap()))
    }

    #[test]
    fn probabilities_are_those_computed_by_hand() {
        // Pairs: ab ba ab bc. Targets: b a b c.
        let bigram = Bigram::count(&section(b"ababc"), usize::MAX).unwrap();
        let uniform = 1.0 / 256.0;
        let (a, b, c) =
            ((1.0 + 3.0 * uniform) / 7.0, (2.0 + 3.0 * uniform) / 7.0, (1.0 + 3.0 * uniform) / 7.0);
        let unseen = 3.0 * uniform / 7.0;
        let cases = [
            (b'a', b'b', (2.0 + b) / 3.0),
            (b'a', b'c', c / 3.0),
            (b'b', b'a', (1.0 + 2.0 * a) / 4.0),
            (b'b', b'z', 2.0 * unseen / 4.0),
            (b'c', b'a', a),
            (b'z', b'z', unseen),
        ];
        for (first, second, expected) in cases {
            let found = bigram.probability(first.into(), second.into());
            assert!((found - expected).abs() < 1e-15, "{first} {second}: found {found}, expected {expected}");
        }
        let cover = Cover::new(section(b"zzab"), 1, 2, 9).unwrap();
        let expected = -(unseen.ln() + a.ln() + ((2.0 + b) / 3.0).ln()) / 3.0;
        assert!((bigram.mean_nats(&cover).unwrap() - expected).abs() < 1e-14);
    }

    #[test]
    fn probabilities_after_any_token_sum_to_one() {
        let text: Vec<u8> = (0..5000u64).map(|i| (Random::new(4).at(i) % 200).isqrt() as u8).collect();
        let bigram = Bigram::count(&section(&text), usize::MAX).unwrap();
        for first in [0, 1, 7, 13, 14, 255] {
            let sum: f64 = (0..256).map(|second| bigram.probability(first, second)).sum();
            assert!((sum - 1.0).abs() < 1e-12, "after {first}: {sum}");
        }
    }

    #[test]
    fn merging_in_pieces_counts_as_at_once() {
        let keys: Vec<u64> = (0..999).map(|i| (Random::new(8).at(i) % 50) << 32).collect();
        let whole = merge(&[], &mut keys.clone());
        for piece in [1, 7, 100, 998] {
            let pieces = keys.chunks(piece).fold(vec![], |old, piece| merge(&old, &mut piece.to_vec()));
            assert_eq!(pieces, whole, "pieces of {piece}");
        }
        assert_eq!(whole.iter().map(|pair| pair.1).sum::<u64>(), 999);
    }

    #[test]
    fn a_text_of_pairs_is_predicted_and_noise_is_not() {
        let periodic: Vec<u8> = b"abcdefgh".repeat(200);
        let noise: Vec<u8> = (0..20_000).map(|i| Random::new(2).at(i) as u8 % 16).collect();
        for (text, low, high) in [(periodic, 0.0, 0.05), (noise, 16f64.ln(), 16f64.ln() + 0.05)] {
            let bigram = Bigram::count(&section(&text), usize::MAX).unwrap();
            let cover = Cover::new(section(&text[..1000]), 2, 33, 99).unwrap();
            let nats = bigram.mean_nats(&cover).unwrap();
            assert!(nats > low - 0.05 && nats < high, "found {nats}, allowed {low} to {high}");
        }
    }

    #[test]
    fn only_the_asked_number_of_tokens_is_counted() {
        let bigram = Bigram::count(&section(b"aaaab"), 4).unwrap();
        assert_eq!(bigram.pairs, [((97 << 32) | 97, 3)]);
    }
}
