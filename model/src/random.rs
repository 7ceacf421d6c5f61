//! A counter-based random number generator: number `i` of a stream is a pure function of (key, i).
//!
//! In: a seed and the name of a purpose. Out: numbers whose bits do not depend on threads, order of use or run.
//! It is SplitMix64 (Steele, Lea and Flood, 2014: "Fast splittable pseudorandom number generators"). Not for secrets.

use std::num::NonZero;
use std::thread;

use serde::{Deserialize, Serialize};

/// The golden ratio in 64 bits, the step of SplitMix64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A stream of random numbers and how many have been drawn. Two words; write them down to resume exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Random {
    /// Which stream.
    pub key: u64,
    /// Numbers drawn so far.
    pub counter: u64,
}

impl Random {
    /// The stream of `seed`: the output of SplitMix64 started there.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { key: seed, counter: 0 }
    }

    /// The stream of `seed` for one `purpose`, unrelated to those for other purposes.
    #[must_use]
    pub fn stream(seed: u64, purpose: &str) -> Self {
        let key =
            purpose.bytes().fold(mix(seed ^ GOLDEN), |key, byte| mix(key.wrapping_add(u64::from(byte) + 1)));
        Self { key, counter: 0 }
    }

    /// Number `index` of the stream, however many have been drawn.
    #[must_use]
    pub fn at(&self, index: u64) -> u64 {
        mix(self.key.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN)))
    }

    /// The next number: all 64 bits are random.
    pub fn next_u64(&mut self) -> u64 {
        let value = self.at(self.counter);
        self.counter = self.counter.wrapping_add(1);
        value
    }

    /// The next number in [0, 1), a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        unit(self.next_u64())
    }

    /// The next whole number in `0..n`, each equally likely. Panics when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "no number is below 0");
        // Lemire 2019: the high word of a product is unbiased once the low word clears the threshold.
        let threshold = n.wrapping_neg() % n;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// The next normal number (mean 0, variance 1). Draws two numbers.
    pub fn normal(&mut self) -> f64 {
        let (first, second) = (self.next_u64(), self.next_u64());
        box_muller(first, second).0
    }

    /// Writes normal numbers `first`, `first + 1`, ... of the stream (mean 0, given standard `deviation`) to `out`,
    /// however many have been drawn. A tensor may so be filled in pieces, by any number of threads.
    pub fn normals_at(&self, first: u64, deviation: f64, out: &mut [f32]) {
        let pair = |index: u64| box_muller(self.at(index & !1), self.at(index | 1));
        let (odd_one, rest) = out.split_at_mut(out.len().min((first % 2) as usize));
        if let Some(value) = odd_one.first_mut() {
            *value = (pair(first).1 * deviation) as f32;
        }
        let mut index = first + first % 2;
        for values in rest.chunks_mut(2) {
            let (even, odd) = pair(index);
            values[0] = (even * deviation) as f32;
            if let Some(value) = values.get_mut(1) {
                *value = (odd * deviation) as f32;
            }
            index += 2;
        }
    }
}

/// Numbers that are worth a thread.
const PIECE: usize = 1 << 15;

/// Fills `out` as [`Random::normals_at`] does from the stream's first number on, on all cores.
pub fn fill_normals(random: Random, deviation: f64, out: &mut [f32]) {
    let n_cores = thread::available_parallelism().map_or(1, NonZero::get);
    let n_threads = out.len().div_ceil(PIECE).clamp(1, n_cores);
    let piece = out.len().div_ceil(n_threads).max(1);
    thread::scope(|scope| {
        for (index, values) in out.chunks_mut(piece).enumerate() {
            scope.spawn(move || random.normals_at((index * piece) as u64, deviation, values));
        }
    });
}

/// Scrambles 64 bits: a bijection in which each input bit reaches each output bit.
pub(crate) fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Two independent normal numbers out of two random words.
fn box_muller(first: u64, second: u64) -> (f64, f64) {
    // 1 - u lies in (0, 1], so the logarithm is finite.
    let radius = (-2.0 * (1.0 - unit(first)).ln()).sqrt();
    let (sine, cosine) = (std::f64::consts::TAU * unit(second)).sin_cos();
    (radius * cosine, radius * sine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| random.next_u64()), expected);
    }

    #[test]
    fn a_stream_resumes_from_its_written_state() {
        let mut random = Random::stream(u64::MAX, "dropout");
        (0..7).for_each(|_| _ = random.next_u64());
        let written = serde_json::to_string(&random).unwrap();
        let mut resumed: Random = serde_json::from_str(&written).unwrap();
        assert_eq!(resumed.next_u64(), random.next_u64());
    }

    #[test]
    fn purposes_and_seeds_give_different_streams() {
        let streams = [(1, "a"), (2, "a"), (1, "b"), (1, "ab"), (1, "ba"), (1, "")];
        let mut first: Vec<u64> =
            streams.iter().map(|(seed, name)| Random::stream(*seed, name).at(0)).collect();
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), streams.len());
    }

    #[test]
    fn below_reaches_every_number_about_equally_often() {
        let mut random = Random::new(3);
        let mut counts = [0u32; 7];
        (0..70_000).for_each(|_| counts[random.below(7) as usize] += 1);
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn normal_numbers_have_the_moments_of_a_normal_distribution() {
        let mut values = vec![0.0f32; 200_001];
        Random::stream(9, "weights").normals_at(0, 2.0, &mut values);
        let n = values.len() as f64;
        let moment =
            |power| values.iter().map(|value| (f64::from(*value) / 2.0).powi(power)).sum::<f64>() / n;
        for (power, expected, tolerance) in [(1, 0.0, 0.01), (2, 1.0, 0.02), (3, 0.0, 0.05), (4, 3.0, 0.12)] {
            let found = moment(power);
            assert!(
                (found - expected).abs() < tolerance,
                "moment {power}: found {found}, expected {expected}"
            );
        }
    }

    #[test]
    fn normal_numbers_do_not_depend_on_the_pieces_they_are_filled_in() {
        let random = Random::stream(5, "weights");
        let mut whole = vec![0.0f32; 101];
        random.normals_at(13, 0.02, &mut whole);
        for piece in [1, 2, 3, 7, 50, 100] {
            let mut pieces = vec![0.0f32; 101];
            for (i, values) in pieces.chunks_mut(piece).enumerate() {
                random.normals_at(13 + (i * piece) as u64, 0.02, values);
            }
            assert_eq!(pieces, whole, "pieces of {piece}");
        }
    }

    #[test]
    fn normal_numbers_do_not_depend_on_the_cores_that_make_them() {
        let random = Random::stream(5, "weights");
        for n in [0, 1, PIECE - 1, 5 * PIECE + 3] {
            let (mut alone, mut together) = (vec![0.0f32; n], vec![0.0f32; n]);
            random.normals_at(0, 0.02, &mut alone);
            fill_normals(random, 0.02, &mut together);
            assert!(alone == together, "{n} numbers");
        }
    }

    #[test]
    fn normal_numbers_have_known_bits() {
        let mut values = [0.0f32; 2];
        Random::new(42).normals_at(0, 0.02, &mut values);
        assert_eq!(values.map(f32::to_bits), [0x3C90_8C33, 0x3CE3_7CCA]);
        assert_eq!((Random::new(42).normal() * 0.02) as f32, values[0]);
    }
}
