//! Choosing the next token from logits.
//!
//! In: logits, options, a random stream. Out: a token; the same for the same bits in. Ties go to the lower token. The
//! order is fixed: the temperature divides the logits, `top_k` keeps the largest of them, `top_p` keeps the nucleus of
//! the distribution over those (A. Holtzman et al., 2020, "The curious case of neural text degeneration").

use crate::random::Random;

/// How a token is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 always takes the largest.
    pub temperature: f64,
    /// Only the largest so many logits may be chosen; none for all.
    pub top_k: Option<usize>,
    /// Of those, only the fewest most likely tokens that together have at least this probability; 1 for all.
    pub top_p: f64,
}

/// Why no token was chosen.
#[derive(Debug, thiserror::Error, PartialEq)]
#[allow(missing_docs)]
pub enum SampleError {
    #[error("`temperature` must be a number from 0 up, found `{0}`")]
    Temperature(f64),
    #[error("`top-k` must be at least 1, found `0`")]
    TopK,
    #[error("`top-p` must be above 0 and at most 1, found `{0}`")]
    TopP(f64),
    #[error("a logit must be a number, found `{value}` for token `{token}` of `{vocab}`")]
    Logit { token: usize, value: f32, vocab: usize },
    #[error("there is no token to choose: all `{0}` logits are minus infinity")]
    Nothing(usize),
}

impl Sampling {
    /// Chooses a token, an index of `logits`. Minus infinity marks a token that must not be chosen. One number is
    /// drawn from `random`, also when the choice is greedy.
    pub fn choose(&self, logits: &[f32], random: &mut Random) -> Result<usize, SampleError> {
        self.check()?;
        let allowed = |value: f32| value.is_finite() || value == f32::NEG_INFINITY;
        if let Some((token, &value)) = logits.iter().enumerate().find(|(_, value)| !allowed(**value)) {
            return Err(SampleError::Logit { token, value, vocab: logits.len() });
        }
        let drawn = random.uniform();
        let mut tokens: Vec<usize> =
            (0..logits.len()).filter(|token| logits[*token] > f32::NEG_INFINITY).collect();
        let by_size = |a: &usize, b: &usize| (logits[*b] + 0.0).total_cmp(&(logits[*a] + 0.0)).then(a.cmp(b));
        let n = if self.temperature == 0.0 { 1 } else { self.top_k.unwrap_or(usize::MAX) };
        if n < tokens.len() {
            tokens.select_nth_unstable_by(n - 1, by_size);
            tokens.truncate(n);
            tokens.sort_unstable();
        }
        let Some(largest) = tokens.iter().map(|token| logits[*token]).reduce(f32::max) else {
            return Err(SampleError::Nothing(logits.len()));
        };
        if tokens.len() == 1 {
            return Ok(tokens[0]);
        }
        let weight =
            |token: &usize| ((f64::from(logits[*token]) - f64::from(largest)) / self.temperature).exp();
        if self.top_p < 1.0 {
            let mut left = self.top_p * tokens.iter().map(weight).sum::<f64>();
            tokens.sort_unstable_by(by_size);
            let n = tokens.iter().position(|token| {
                left -= weight(token);
                left <= 0.0
            });
            tokens.truncate(n.map_or(usize::MAX, |index| index + 1));
            tokens.sort_unstable();
        }
        let mut left = drawn * tokens.iter().map(weight).sum::<f64>();
        for token in &tokens {
            left -= weight(token);
            if left < 0.0 {
                return Ok(*token);
            }
        }
        // Rounding may leave a crumb: it goes to the last token that had any weight.
        Ok(tokens.iter().rev().copied().find(|token| weight(token) > 0.0).unwrap_or(tokens[0]))
    }

    /// Says what is wrong with the options, if anything.
    pub fn check(&self) -> Result<(), SampleError> {
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return Err(SampleError::Temperature(self.temperature));
        }
        if self.top_k == Some(0) {
            return Err(SampleError::TopK);
        }
        if self.top_p > 0.0 && self.top_p <= 1.0 { Ok(()) } else { Err(SampleError::TopP(self.top_p)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: f32 = f32::NEG_INFINITY;

    fn shares(sampling: Sampling, logits: &[f32]) -> Vec<f64> {
        let mut random = Random::new(11);
        let mut counts = vec![0.0; logits.len()];
        (0..50_000).for_each(|_| counts[sampling.choose(logits, &mut random).unwrap()] += 1.0 / 50_000.0);
        counts
    }

    fn assert_shares(sampling: Sampling, logits: &[f32], expected: &[f64]) {
        let found = shares(sampling, logits);
        let near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.01);
        assert!(near, "{sampling:?}: found {found:?}, expected {expected:?}");
    }

    #[test]
    fn tokens_appear_as_often_as_the_softmax_says() {
        let logits = [1f32.ln(), 2f32.ln(), NONE, 5f32.ln()];
        let sampling = |temperature, top_k| Sampling { temperature, top_k, top_p: 1.0 };
        assert_shares(sampling(1.0, None), &logits, &[0.125, 0.25, 0.0, 0.625]);
        assert_shares(sampling(0.5, None), &logits, &[1.0 / 30.0, 4.0 / 30.0, 0.0, 25.0 / 30.0]);
        assert_shares(sampling(1.0, Some(2)), &logits, &[0.0, 2.0 / 7.0, 0.0, 5.0 / 7.0]);
        assert_shares(sampling(1.0, Some(99)), &logits, &[0.125, 0.25, 0.0, 0.625]);
        assert_shares(sampling(1e-300, None), &logits, &[0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn ties_go_to_the_lower_token() {
        let greedy = Sampling { temperature: 0.0, top_k: None, top_p: 1.0 };
        assert_eq!(greedy.choose(&[0.0, 3.0, 3.0, 3.0], &mut Random::new(1)), Ok(1));
        assert_shares(
            Sampling { temperature: 1.0, top_k: Some(2), top_p: 1.0 },
            &[7.0, 7.0, 7.0],
            &[0.5, 0.5, 0.0],
        );
    }

    #[test]
    fn the_draw_walks_the_chosen_in_the_order_of_tokens_whatever_top_k_left_out() {
        // The same weights among ever so many tokens that are never chosen: the same draws choose the same.
        let logits: Vec<f32> = (0..200).map(|token| ((token * 37) % 101) as f32 / 50.0).collect();
        for k in [2, 7, 40, 120] {
            let mut falling: Vec<usize> = (0..logits.len()).collect();
            falling.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
            let mut rest = logits.clone();
            falling[k..].iter().for_each(|token| rest[*token] = NONE);
            for seed in 0..50 {
                let choose = |top_k, logits: &[f32]| {
                    Sampling { temperature: 1.0, top_k, top_p: 1.0 }
                        .choose(logits, &mut Random::new(seed))
                        .unwrap()
                };
                assert_eq!(choose(Some(k), &logits), choose(None, &rest), "top {k}, seed {seed}");
            }
        }
    }

    #[test]
    fn extreme_logits_do_not_overflow() {
        let sampling = Sampling { temperature: 1e-3, top_k: None, top_p: 1.0 };
        assert_eq!(sampling.choose(&[f32::MIN, f32::MAX, 0.0], &mut Random::new(1)), Ok(1));
    }

    #[test]
    fn logits_that_are_no_numbers_are_refused() {
        let sampling = Sampling { temperature: 1.0, top_k: None, top_p: 1.0 };
        let choose = |logits: &[f32]| sampling.choose(logits, &mut Random::new(1)).unwrap_err().to_string();
        assert_eq!(choose(&[0.0, f32::NAN]), "a logit must be a number, found `NaN` for token `1` of `2`");
        assert_eq!(choose(&[f32::INFINITY]), "a logit must be a number, found `inf` for token `0` of `1`");
        assert_eq!(choose(&[NONE; 3]), "there is no token to choose: all `3` logits are minus infinity");
    }

    #[test]
    fn options_out_of_range_are_refused_by_name() {
        let cases = [
            (-1.0, None, 1.0, "`temperature` must be a number from 0 up, found `-1`"),
            (f64::NAN, None, 1.0, "`temperature` must be a number from 0 up, found `NaN`"),
            (1.0, Some(0), 1.0, "`top-k` must be at least 1, found `0`"),
            (1.0, None, 0.0, "`top-p` must be above 0 and at most 1, found `0`"),
            (1.0, None, 1.01, "`top-p` must be above 0 and at most 1, found `1.01`"),
            (1.0, None, f64::NAN, "`top-p` must be above 0 and at most 1, found `NaN`"),
        ];
        for (temperature, top_k, top_p, message) in cases {
            let error = Sampling { temperature, top_k, top_p }.choose(&[1.0], &mut Random::new(1));
            assert_eq!(error.unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn the_nucleus_is_the_fewest_tokens_that_reach_the_share() {
        let sampling = |top_p| Sampling { temperature: 1.0, top_k: None, top_p };
        // 0.1, 0.4, 0.2, none, 0.3.
        let logits = [1f32.ln(), 4f32.ln(), 2f32.ln(), NONE, 3f32.ln()];
        assert_shares(sampling(1.0), &logits, &[0.1, 0.4, 0.2, 0.0, 0.3]);
        assert_shares(sampling(0.95), &logits, &[0.1, 0.4, 0.2, 0.0, 0.3]);
        assert_shares(sampling(0.85), &logits, &[0.0, 4.0 / 9.0, 2.0 / 9.0, 0.0, 3.0 / 9.0]);
        assert_shares(sampling(0.65), &logits, &[0.0, 4.0 / 7.0, 0.0, 0.0, 3.0 / 7.0]);
        assert_shares(sampling(0.35), &logits, &[0.0, 1.0, 0.0, 0.0, 0.0]);
        assert_shares(sampling(1e-300), &logits, &[0.0, 1.0, 0.0, 0.0, 0.0]);
        // Exactly the share is enough, and equal tokens are taken from the lowest on.
        assert_shares(sampling(0.5), &[2.0; 4], &[0.5, 0.5, 0.0, 0.0]);
    }

    #[test]
    fn temperature_comes_first_then_top_k_then_top_p() {
        let logits = [1f32.ln(), 4f32.ln(), 2f32.ln(), 3f32.ln()];
        let sampling = |temperature, top_k, top_p| Sampling { temperature, top_k, top_p };
        // Of all, 0.4 + 0.3 do not reach 0.75; of the two largest they are everything, and 0.57 + 0.43 are needed.
        assert_shares(sampling(1.0, None, 0.75), &logits, &[0.0, 4.0 / 9.0, 2.0 / 9.0, 3.0 / 9.0]);
        assert_shares(sampling(1.0, Some(2), 0.75), &logits, &[0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0]);
        // Of the three largest, 0.44 + 0.33 do.
        assert_shares(sampling(1.0, Some(3), 0.75), &logits, &[0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0]);
        // At half the temperature the weights are 1, 16, 4, 9 of 30: 16 do not reach 0.75, and 25 do.
        assert_shares(sampling(0.5, None, 0.75), &logits, &[0.0, 16.0 / 25.0, 0.0, 9.0 / 25.0]);
        assert_shares(sampling(0.0, None, 0.001), &logits, &[0.0, 1.0, 0.0, 0.0]);
    }
}
