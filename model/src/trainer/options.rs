//! The options of a run that decide its numbers, and how they change when a run goes on with another batch.
//!
//! Steps are updates. Where updates have had different sizes, [`TrainOptions::history`] says so, and the schedule,
//! which counts in tokens, goes on where it was.

use kernwright_plan::Options as PlanOptions;
use kernwright_plan::shape::Shape;
use serde::{Deserialize, Serialize};

use super::TrainError;
use crate::schedule::{Form, Schedule};

/// The options of a run that decide its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainOptions {
    /// Sequences per micro-batch.
    pub batch: usize,
    /// Tokens per sequence.
    pub length: usize,
    /// Micro-batches per step.
    pub accumulate: usize,
    /// Steps of the whole run.
    pub steps: u64,
    /// The highest learning rate.
    pub learning_rate: f64,
    /// Steps over which it rises.
    pub warmup: u64,
    /// How it moves then.
    #[serde(default)]
    pub schedule: Form,
    /// The last learning rate over the highest.
    #[serde(default = "default_final_rate")]
    pub final_rate: f64,
    /// The share of the run over which `wsd` falls.
    #[serde(default = "default_decay_fraction")]
    pub decay_fraction: f64,
    /// Decoupled decay of matrices.
    pub weight_decay: f64,
    /// Greatest gradient norm; 0 does not clip.
    pub clip: f64,
    /// Weight of the square of the logits' log-sum-exp in the training loss; a validation leaves it out.
    #[serde(default)]
    pub z_loss: f64,
    /// Seed of weights and data order.
    pub seed: u64,
    /// Most batches of a validation.
    pub eval_batches: usize,
    /// Steps that were made with another number of tokens, oldest first; none for a run that never changed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Stretch>,
}

fn default_final_rate() -> f64 {
    Schedule::FINAL_RATE
}

fn default_decay_fraction() -> f64 {
    Schedule::DECAY_FRACTION
}

/// Steps in a row of the same size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stretch {
    /// How many.
    pub steps: u64,
    /// Tokens of all of them.
    pub tokens: u64,
}

/// What was asked for when a run goes on; the rest follows from what it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// Steps of the whole run.
    pub steps: Option<u64>,
    /// Steps of the warm-up.
    pub warmup: Option<u64>,
    /// Most batches of a validation.
    pub eval_batches: Option<usize>,
}

/// Most tokens of one step: its batches are in memory at once. Positions and rows are 32-bit numbers besides, which
/// hold far more.
pub const MOST_TOKENS: usize = 1 << 28;

/// Most tokens of a run: beyond, they are no longer whole numbers in an f64.
const MOST_TOKENS_OF_RUN: u64 = 1 << 53;

impl TrainOptions {
    /// Says what is wrong with the numbers, for a model of `shape`.
    ///
    /// # Errors
    /// The first option at fault.
    #[allow(clippy::cast_possible_truncation)]
    pub fn check(&self, shape: &Shape) -> Result<(), TrainError> {
        let wrong = |name, allowed: &str, found: &dyn std::fmt::Display| {
            Err(TrainError::Option { name, allowed: allowed.to_owned(), found: found.to_string() })
        };
        let counts =
            [("batch", self.batch), ("accumulate", self.accumulate), ("eval-batches", self.eval_batches)];
        for (name, found) in counts {
            if found == 0 {
                return wrong(name, "at least 1", &found);
            }
        }
        if self.length == 0 || self.length > shape.context {
            let allowed = format!("from 1 to the model's context, {}", shape.context);
            return wrong("length", &allowed, &self.length);
        }
        if self.batch.checked_mul(self.length).is_none_or(|tokens| tokens > MOST_TOKENS) {
            let allowed = format!("such that batch x length is at most {MOST_TOKENS}");
            return wrong("batch", &allowed, &self.batch);
        }
        let tokens = (self.batch * self.length).checked_mul(self.accumulate);
        if tokens.is_none_or(|tokens| tokens > MOST_TOKENS) {
            let allowed = format!("such that batch x length x accumulate is at most {MOST_TOKENS}");
            return wrong("accumulate", &allowed, &self.accumulate);
        }
        if self.steps == 0 {
            return wrong("steps", "at least 1", &self.steps);
        }
        if self.steps > MOST_TOKENS_OF_RUN / self.tokens_per_step() {
            let allowed = format!("such that all steps have at most {MOST_TOKENS_OF_RUN} tokens");
            return wrong("steps", &allowed, &self.steps);
        }
        if self.warmup >= self.steps {
            return wrong("warmup", &format!("below `steps`, {}", self.steps), &self.warmup);
        }
        let numbers = [
            ("learning-rate", self.learning_rate),
            ("weight-decay", self.weight_decay),
            ("clip", self.clip),
            ("z-loss", self.z_loss),
        ];
        for (name, found) in numbers {
            // They end up as fp32, where tiny ones would be 0 and huge ones infinite.
            let vanishes = found != 0.0 && found as f32 == 0.0;
            if !((found as f32).is_finite() && found >= 0.0) || vanishes {
                // Plain digits would fill lines.
                let found = if found.abs() < 1e16 { found.to_string() } else { format!("{found:e}") };
                return wrong(name, "a number from 0 up that fp32 can hold", &found);
            }
        }
        if !(0.0..=1.0).contains(&self.final_rate) {
            return wrong("final-rate", "from 0 to 1, a share of the highest rate", &self.final_rate);
        }
        if !(self.decay_fraction > 0.0 && self.decay_fraction <= 1.0) {
            return wrong(
                "decay-fraction",
                "above 0 and at most 1, a share of the run",
                &self.decay_fraction,
            );
        }
        let schedule = self.schedule();
        if schedule.is_in_decay(schedule.warmup) {
            let left = 1.0 - schedule.warmup as f64 / schedule.total as f64;
            let allowed = format!("at most {left}, what the warm-up leaves of the run");
            return wrong("decay-fraction", &allowed, &self.decay_fraction);
        }
        Ok(())
    }

    /// Tokens of a step.
    #[must_use]
    pub fn tokens_per_step(&self) -> u64 {
        (self.batch * self.length * self.accumulate) as u64
    }

    /// Tokens of the run's first `step` steps.
    #[must_use]
    pub fn tokens_at(&self, step: u64) -> u64 {
        let (mut left, mut tokens) = (step, 0_u64);
        for stretch in &self.history {
            if left < stretch.steps {
                let part = u128::from(stretch.tokens) * u128::from(left) / u128::from(stretch.steps);
                return tokens.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
            }
            left -= stretch.steps;
            tokens = tokens.saturating_add(stretch.tokens);
        }
        tokens.saturating_add(left.saturating_mul(self.tokens_per_step()))
    }

    /// The learning rates.
    #[must_use]
    pub fn schedule(&self) -> Schedule {
        Schedule {
            form: self.schedule,
            peak: self.learning_rate,
            final_rate: self.final_rate,
            decay_fraction: self.decay_fraction,
            warmup: self.tokens_at(self.warmup),
            total: self.tokens_at(self.steps),
        }
    }

    /// The steps before a `wsd` schedule begins to fall; all of them with another one.
    #[must_use]
    pub fn stable_steps(&self) -> u64 {
        let schedule = self.schedule();
        let (mut stable, mut end) = (0, self.steps + 1);
        while end - stable > 1 {
            let middle = stable + (end - stable) / 2;
            let in_decay = schedule.is_in_decay(self.tokens_at(middle));
            *if in_decay { &mut end } else { &mut stable } = middle;
        }
        stable
    }

    /// The learning rate of the update after `step` steps.
    #[must_use]
    pub fn learning_rate(&self, step: u64) -> f64 {
        let done = self.tokens_at(step);
        self.schedule().learning_rate(done, self.tokens_at(step + 1) - done)
    }

    /// These options for a run that has made `step` steps over `tokens` tokens with `old` ones.
    ///
    /// With as many tokens per step as before, nothing changes. Otherwise the run keeps its tokens: steps and warm-up
    /// that were not asked for are counted anew so that they end at the token where they would have ended, rounded up
    /// to a whole step. A validation reads as many sequences as before, rounded up to a whole batch.
    #[must_use]
    pub fn going_on(mut self, old: &Self, step: u64, tokens: u64, asked: Asked) -> Self {
        let mut old = old.clone();
        if old.tokens_at(step) != tokens {
            // A checkpoint of before there was a history: all that is known is the sum.
            old.history = if step == 0 { Vec::new() } else { vec![Stretch { steps: step, tokens }] };
        }
        self.history.clone_from(&old.history);
        let (before, now) = (old.tokens_per_step(), self.tokens_per_step());
        if before != now && now > 0 {
            let left = |all: u64, of: fn(&Stretch) -> u64| {
                old.history.iter().fold(all, |left, stretch| left.saturating_sub(of(stretch)))
            };
            let (steps, tokens) =
                (left(step, |stretch| stretch.steps), left(tokens, |stretch| stretch.tokens));
            if steps > 0 {
                self.history.push(Stretch { steps, tokens });
            }
        }
        let convert = |end: u64| match old.tokens_at(end).checked_sub(tokens) {
            Some(left) if before != now && now > 0 && end > step => step + left.div_ceil(now),
            _ => end,
        };
        self.steps = asked.steps.unwrap_or_else(|| convert(old.steps));
        self.warmup = asked.warmup.unwrap_or_else(|| convert(old.warmup));
        let n_sequences = old.batch.saturating_mul(old.eval_batches);
        self.eval_batches = asked.eval_batches.unwrap_or_else(|| match self.batch == old.batch {
            true => old.eval_batches,
            false => n_sequences.div_ceil(self.batch.max(1)),
        });
        self
    }

    /// `base` with what these options say.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub fn plan_options(&self, base: &PlanOptions) -> PlanOptions {
        let mut options = base.clone();
        options.adamw.weight_decay = self.weight_decay as f32;
        options.clip = (self.clip > 0.0).then_some(self.clip as f32);
        options.z_loss = self.z_loss as f32;
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(batch: usize, accumulate: usize, steps: u64, warmup: u64) -> TrainOptions {
        TrainOptions {
            batch,
            length: 10,
            accumulate,
            steps,
            learning_rate: 1e-3,
            warmup,
            schedule: Form::Cosine,
            final_rate: 0.1,
            decay_fraction: 0.1,
            weight_decay: 0.1,
            clip: 1.0,
            z_loss: 0.0,
            seed: 1,
            eval_batches: 32,
            history: Vec::new(),
        }
    }

    #[test]
    fn micro_batches_of_the_same_step_change_nothing_but_the_validation_batches() {
        let old = options(8, 1, 100, 10);
        let now = options(4, 2, 100, 10).going_on(&old, 10, 800, Asked::default());
        assert_eq!(now, TrainOptions { eval_batches: 64, ..options(4, 2, 100, 10) });
    }

    #[test]
    fn another_step_keeps_the_end_of_run_and_warmup_in_tokens() {
        let old = options(8, 1, 100, 30);
        let now = options(16, 1, 0, 0).going_on(&old, 11, 880, Asked::default());
        assert_eq!(now.history, [Stretch { steps: 11, tokens: 880 }]);
        // 89 steps of 80 tokens are 44.5 of 160; 19 are 9.5. Both are rounded up.
        assert_eq!((now.steps, now.warmup, now.eval_batches), (11 + 45, 11 + 10, 16));
        assert_eq!([0, 5, 11, 12, 56].map(|step| now.tokens_at(step)), [0, 400, 880, 1040, 8080]);
        // And once more, after the warm-up, back to the old batch.
        let again = options(8, 1, 0, 0).going_on(&now, 31, 880 + 20 * 160, Asked::default());
        assert_eq!(again.history, [Stretch { steps: 11, tokens: 880 }, Stretch { steps: 20, tokens: 3200 }]);
        assert_eq!((again.steps, again.warmup), (31 + 50, 21));
        assert_eq!(again.schedule(), now.schedule());
        assert_eq!(now.learning_rate(31).to_bits(), now.schedule().learning_rate(4080, 160).to_bits());
    }

    #[test]
    fn the_stable_part_ends_where_the_decay_begins() {
        for (steps, fraction, stable) in
            [(100, 0.1, 90), (100, 1.0, 0), (12, 0.2, 9), (1, 0.5, 0), (30, 0.1, 27)]
        {
            let options =
                TrainOptions { schedule: Form::Wsd, decay_fraction: fraction, ..options(8, 1, steps, 0) };
            assert_eq!(options.stable_steps(), stable, "{steps} {fraction}");
            assert_eq!(options.learning_rate(stable.saturating_sub(1)) == 1e-3, stable > 0);
            assert!(options.learning_rate(stable) < 1e-3);
            assert_eq!(TrainOptions { schedule: Form::Linear, ..options }.stable_steps(), steps);
        }
    }

    #[test]
    fn what_is_asked_for_is_taken_as_it_is() {
        let asked = Asked { steps: Some(70), warmup: Some(9), eval_batches: Some(5) };
        let now = options(16, 1, 0, 0).going_on(&options(8, 1, 100, 30), 10, 800, asked);
        assert_eq!((now.steps, now.warmup, now.eval_batches), (70, 9, 5));
        assert_eq!(now.schedule().total, 800 + 60 * 160);
    }

    #[test]
    fn a_run_of_before_there_was_a_history_goes_on_from_its_tokens() {
        // Ten steps, some with a batch that nobody wrote down.
        let now = options(8, 1, 0, 0).going_on(&options(8, 1, 100, 30), 10, 1000, Asked::default());
        assert_eq!(now.history, [Stretch { steps: 10, tokens: 1000 }]);
        assert_eq!((now.tokens_at(10), now.tokens_at(12), now.steps), (1000, 1160, 100));
    }
}
