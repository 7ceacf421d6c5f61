//! How rotary frequencies are changed for contexts longer than those a model was first trained on.
//!
//! In: plain frequencies, radians per position. Out: scaled ones, and a factor of the rotated values.

use std::f64::consts::TAU;

/// A rule for the frequencies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RopeScaling {
    /// They stay as they are.
    #[default]
    None,
    /// Llama 3.1's (A. Dubey et al., The Llama 3 Herd of Models, 2024, and its released code): a wave longer than
    /// `original_context / low_freq_factor` is slowed by `factor`, one shorter than `original_context /
    /// high_freq_factor` is kept, between them the two are mixed linearly in the number of turns per original context.
    Llama3 {
        /// By how much low frequencies are slowed.
        factor: f64,
        /// Turns in the original context below which a frequency is low.
        low_freq_factor: f64,
        /// Turns in the original context above which a frequency is high.
        high_freq_factor: f64,
        /// Context of the first training, in tokens.
        original_context: usize,
    },
    /// YaRN (B. Peng, J. Quesnelle, H. Fan, E. Shippole, 2023), section 3.2: pairs that turn more than `beta_fast` times in
    /// the original context are kept, those below `beta_slow` turns slowed by `factor`, with a linear ramp over the pairs
    /// between; rotated values are multiplied by `attention_factor`.
    Yarn {
        /// By how much low frequencies are slowed.
        factor: f64,
        /// Context of the first training, in tokens.
        original_context: usize,
        /// Turns in the original context above which a pair is kept.
        beta_fast: f64,
        /// Turns in the original context below which a pair is slowed wholly.
        beta_slow: f64,
        /// Factor of rotated queries and of rotated keys.
        attention_factor: f64,
    },
}

impl RopeScaling {
    /// Its name in attributes and kernels.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Llama3 { .. } => "llama3",
            Self::Yarn { .. } => "yarn",
        }
    }

    /// Its name with everything that decides the frequencies: `llama3_8e0_1e0_4e0_8192`.
    #[must_use]
    pub fn spelled(&self) -> String {
        let name = self.name();
        match *self {
            Self::None => name.to_owned(),
            Self::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original_context } => {
                format!("{name}_{factor:e}_{low:e}_{high:e}_{original_context}")
            }
            Self::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor: _ } => {
                format!("{name}_{factor:e}_{beta_fast:e}_{beta_slow:e}_{original_context}")
            }
        }
    }

    /// What rotated values are multiplied by.
    #[must_use]
    pub fn attention_factor(&self) -> f64 {
        match self {
            Self::Yarn { attention_factor, .. } => *attention_factor,
            _ => 1.0,
        }
    }

    /// The attention factor that YaRN's authors recommend (their equation 22): `0.1 ln(factor) + 1`.
    #[must_use]
    pub fn yarn_attention_factor(factor: f64) -> f64 {
        0.1 * factor.ln() + 1.0
    }

    /// Scales the frequencies of all pairs, whose base is `theta`.
    #[must_use]
    pub fn apply(&self, plain: Vec<f64>, theta: f64) -> Vec<f64> {
        match *self {
            Self::None => plain,
            Self::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original_context } => {
                let scaled = |frequency: f64| {
                    let turns = original_context as f64 * frequency / TAU;
                    let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    kept * frequency + (1.0 - kept) * frequency / factor
                };
                plain.into_iter().map(scaled).collect()
            }
            Self::Yarn { factor, original_context, beta_fast, beta_slow, .. } => {
                let rotary = 2.0 * plain.len() as f64;
                // The pair, as a real number, that turns so many times in the original context.
                let pair =
                    |turns: f64| rotary * (original_context as f64 / (turns * TAU)).ln() / (2.0 * theta.ln());
                let first = pair(beta_fast).floor().max(0.0);
                let last = pair(beta_slow).ceil().min(rotary - 1.0);
                let width = if last == first { 1e-3 } else { last - first };
                let scaled = |(i, frequency): (usize, f64)| {
                    let slowed = ((i as f64 - first) / width).clamp(0.0, 1.0);
                    slowed * frequency / factor + (1.0 - slowed) * frequency
                };
                plain.into_iter().enumerate().map(scaled).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(rotary: usize, theta: f64) -> Vec<f64> {
        (0..rotary / 2).map(|i| theta.powf(-2.0 * i as f64 / rotary as f64)).collect()
    }

    #[test]
    fn llama3_keeps_the_fast_and_slows_the_slow() {
        let scaling = RopeScaling::Llama3 {
            factor: 32.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 8192,
        };
        let before = plain(64, 500_000.0);
        let after = scaling.apply(before.clone(), 500_000.0);
        let mut mixed = 0;
        for (before, after) in before.iter().zip(&after) {
            let wave = TAU / before;
            if wave < 8192.0 / 4.0 {
                assert_eq!(before, after);
            } else if wave > 8192.0 {
                assert!((after * 32.0 / before - 1.0).abs() < 1e-15);
            } else {
                assert!(after < before && *after > before / 32.0);
                mixed += 1;
            }
        }
        assert!((1..6).contains(&mixed), "{mixed}");
    }

    #[test]
    fn yarn_ramps_over_the_pairs_between() {
        let scaling = RopeScaling::Yarn {
            factor: 16.0,
            original_context: 4096,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: RopeScaling::yarn_attention_factor(16.0),
        };
        let before = plain(128, 10_000.0);
        let ratios: Vec<f64> =
            scaling.apply(before.clone(), 10_000.0).iter().zip(&before).map(|(a, b)| a / b).collect();
        assert_eq!((ratios[0], ratios[20]), (1.0, 1.0), "32 turns in 4096 tokens: pair 20.9");
        assert!(ratios[21] < 1.0, "{}", ratios[21]);
        assert!((ratios[46] - 1.0 / 16.0).abs() < 1e-15, "one turn: pair 45.03");
        assert!(ratios.is_sorted_by(|a, b| a >= b));
        assert!((scaling.attention_factor() - 1.277_258_872_223_978).abs() < 1e-12);
    }
}
