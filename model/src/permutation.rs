//! A random order of `0..n` that is computed, not stored: a Feistel network over the next power of four, walked along
//! its cycles until the value falls into range (Black and Rogaway, 2002: "Ciphers with arbitrary finite domains").
//!
//! In: `n` and a key. Out: the value at any place of the order, in constant memory. Not for secrets.

use crate::random::Random;

/// Rounds of the network. Four suffice for large `n`; small halves need more to look random.
const N_ROUNDS: usize = 8;

/// One order of the numbers `0..n`.
#[derive(Debug, Clone)]
pub struct Permutation {
    n: u64,
    half_bits: u32,
    rounds: [Random; N_ROUNDS],
}

impl Permutation {
    /// The order of `0..n` chosen by `random`, of which eight numbers are drawn. `n` is at most 2^62.
    #[must_use]
    pub fn new(n: u64, random: &mut Random) -> Self {
        assert!(n <= 1 << 62, "a permutation of {n} numbers is too long");
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self {
            n,
            half_bits: bits.div_ceil(2).max(1),
            rounds: [(); N_ROUNDS].map(|()| Random::new(random.next_u64())),
        }
    }

    /// The number at place `index`. Panics when `index` is not below `n`.
    #[must_use]
    pub fn at(&self, index: u64) -> u64 {
        assert!(index < self.n, "place {index} of a permutation of {}", self.n);
        // The network permutes 0..4^half_bits, fewer than 4 n numbers, so few walks are long; every cycle that holds
        // a number below n returns to one.
        let mut value = self.scramble(index);
        while value >= self.n {
            value = self.scramble(value);
        }
        value
    }

    fn scramble(&self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in &self.rounds {
            (left, right) = (right, left ^ (round.at(right) & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(n: u64, seed: u64) -> Vec<u64> {
        let permutation = Permutation::new(n, &mut Random::new(seed));
        (0..n).map(|index| permutation.at(index)).collect()
    }

    #[test]
    fn every_number_appears_exactly_once() {
        for n in (0..70).chain([127, 128, 129, 255, 1000, 4097]) {
            for seed in 0..5 {
                let mut sorted = order(n, seed);
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..n), "n {n}, seed {seed}");
            }
        }
    }

    #[test]
    fn every_place_holds_every_number_about_equally_often() {
        const N: usize = 5;
        let mut counts = [[0u32; N]; N];
        for seed in 0..5_000 {
            for (place, value) in order(N as u64, seed).into_iter().enumerate() {
                counts[place][value as usize] += 1;
            }
        }
        assert!(counts.iter().flatten().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_long_order_has_few_fixed_places_and_few_kept_neighbours() {
        let order = order(100_003, 1);
        let fixed = order.iter().enumerate().filter(|(place, value)| *place as u64 == **value).count();
        let neighbours = order.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        assert!(fixed < 12 && neighbours < 12, "{fixed} fixed, {neighbours} neighbours");
    }
}
