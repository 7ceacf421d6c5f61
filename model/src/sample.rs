//! Choosing the next token from logits.
//!
//! In: logits, options, a random stream. Out: a token; the same for the same bits in. Ties go to the lower token.

use crate::random::Random;

/// How a token is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 always takes the largest.
    pub temperature: f64,
    /// Only the largest so many logits may be chosen; none for all.
    pub top_k: Option<usize>,
}

/// Why no token was chosen.
#[derive(Debug, thiserror::Error, PartialEq)]
#[allow(missing_docs)]
pub enum SampleError {
    #[error("`temperature` must be a number from 0 up, found `{0}`")]
    Temperature(f64),
    #[error("`top-k` must be at least 1, found `0`")]
    TopK,
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
        let n = if self.temperature == 0.0 { 1 } else { self.top_k.unwrap_or(usize::MAX) };
        if n < tokens.len() {
            tokens.select_nth_unstable_by(n - 1, |a, b| {
                (logits[*b] + 0.0).total_cmp(&(logits[*a] + 0.0)).then(a.cmp(b))
            });
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
        if self.top_k == Some(0) { Err(SampleError::TopK) } else { Ok(()) }
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
        let sampling = |temperature, top_k| Sampling { temperature, top_k };
        assert_shares(sampling(1.0, None), &logits, &[0.125, 0.25, 0.0, 0.625]);
        assert_shares(sampling(0.5, None), &logits, &[1.0 / 30.0, 4.0 / 30.0, 0.0, 25.0 / 30.0]);
        assert_shares(sampling(1.0, Some(2)), &logits, &[0.0, 2.0 / 7.0, 0.0, 5.0 / 7.0]);
        assert_shares(sampling(1.0, Some(99)), &logits, &[0.125, 0.25, 0.0, 0.625]);
        assert_shares(sampling(1e-300, None), &logits, &[0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn ties_go_to_the_lower_token() {
        let greedy = Sampling { temperature: 0.0, top_k: None };
        assert_eq!(greedy.choose(&[0.0, 3.0, 3.0, 3.0], &mut Random::new(1)), Ok(1));
        assert_shares(Sampling { temperature: 1.0, top_k: Some(2) }, &[7.0, 7.0, 7.0], &[0.5, 0.5, 0.0]);
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
                    Sampling { temperature: 1.0, top_k }.choose(logits, &mut Random::new(seed)).unwrap()
                };
                assert_eq!(choose(Some(k), &logits), choose(None, &rest), "top {k}, seed {seed}");
            }
        }
    }

    #[test]
    fn extreme_logits_do_not_overflow() {
        let sampling = Sampling { temperature: 1e-3, top_k: None };
        assert_eq!(sampling.choose(&[f32::MIN, f32::MAX, 0.0], &mut Random::new(1)), Ok(1));
    }

    #[test]
    fn logits_that_are_no_numbers_are_refused() {
        let sampling = Sampling { temperature: 1.0, top_k: None };
        let choose = |logits: &[f32]| sampling.choose(logits, &mut Random::new(1)).unwrap_err().to_string();
        assert_eq!(choose(&[0.0, f32::NAN]), "a logit must be a number, found `NaN` for token `1` of `2`");
        assert_eq!(choose(&[f32::INFINITY]), "a logit must be a number, found `inf` for token `0` of `1`");
        assert_eq!(choose(&[NONE; 3]), "there is no token to choose: all `3` logits are minus infinity");
        let options = [(-1.0, None), (f64::NAN, None), (1.0, Some(0))];
        for (temperature, top_k) in options {
            assert!(Sampling { temperature, top_k }.choose(&[1.0], &mut Random::new(1)).is_err());
        }
    }
}
