//! The learning rate of each step, a pure function of the step number.
//!
//! In: a schedule, a step. Out: a rate. It keeps no state, so that resuming needs none.

use serde::{Deserialize, Serialize};

/// How the learning rate moves over a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// Rises linearly to `peak` over the warmup, then falls along half a cosine.
    Cosine {
        /// The highest rate.
        peak: f64,
        /// Steps that rise; step `warmup_steps - 1` is the first at `peak`. May be 0.
        warmup_steps: u64,
        /// Steps of the whole run, warmup included; the last, `total_steps - 1`, has the lowest rate.
        total_steps: u64,
        /// The lowest rate over the highest, reached at the last step and kept after it.
        minimum_ratio: f64,
    },
}

/// A schedule that makes no sense.
#[derive(Debug, thiserror::Error, PartialEq)]
#[allow(missing_docs)]
pub enum ScheduleError {
    #[error("the learning rate must be a number from 0 up, found `{0}`")]
    Peak(f64),
    #[error("the lowest learning rate must be 0 to 1 of the highest, found `{0}`")]
    MinimumRatio(f64),
    #[error("`warmup_steps` must be below `total_steps`, `{total_steps}`, found `{warmup_steps}`")]
    Warmup { warmup_steps: u64, total_steps: u64 },
}

impl Schedule {
    /// The share of the peak that is left at the end unless asked otherwise.
    pub const MINIMUM_RATIO: f64 = 0.1;

    /// Says what is wrong with the numbers, if anything.
    pub fn check(&self) -> Result<(), ScheduleError> {
        let Self::Cosine { peak, warmup_steps, total_steps, minimum_ratio } = *self;
        if !(peak.is_finite() && peak >= 0.0) {
            return Err(ScheduleError::Peak(peak));
        }
        if !(0.0..=1.0).contains(&minimum_ratio) {
            return Err(ScheduleError::MinimumRatio(minimum_ratio));
        }
        if warmup_steps >= total_steps {
            return Err(ScheduleError::Warmup { warmup_steps, total_steps });
        }
        Ok(())
    }

    /// The rate of the update number `step`, counted from 0.
    #[must_use]
    pub fn learning_rate(&self, step: u64) -> f64 {
        match *self {
            Self::Cosine { peak, warmup_steps, .. } if step < warmup_steps => {
                peak * ((step + 1) as f64 / warmup_steps as f64)
            }
            Self::Cosine { peak, warmup_steps, total_steps, minimum_ratio } => {
                let n_falling = total_steps.saturating_sub(warmup_steps + 1).max(1);
                let done = ((step - warmup_steps) as f64 / n_falling as f64).min(1.0);
                let height = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
                peak * (minimum_ratio + (1.0 - minimum_ratio) * height)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(warmup_steps: u64, total_steps: u64) -> Schedule {
        Schedule::Cosine { peak: 3e-4, warmup_steps, total_steps, minimum_ratio: Schedule::MINIMUM_RATIO }
    }

    fn assert_near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "found {found}, expected {expected}");
    }

    #[test]
    fn the_rate_is_right_at_every_end() {
        let schedule = cosine(10, 111);
        assert_near(schedule.learning_rate(0), 3e-5);
        assert_near(schedule.learning_rate(9), 3e-4);
        assert_near(schedule.learning_rate(10), 3e-4);
        assert_near(schedule.learning_rate(60), 0.55 * 3e-4);
        assert_near(schedule.learning_rate(110), 3e-5);
        assert_near(schedule.learning_rate(u64::MAX), 3e-5);
    }

    #[test]
    fn the_rate_never_rises_after_the_warmup_nor_falls_in_it() {
        for (warmup, total) in [(0, 1), (0, 2), (0, 77), (1, 2), (5, 6), (5, 7), (33, 100)] {
            let rates: Vec<f64> =
                (0..total + 3).map(|step| cosine(warmup, total).learning_rate(step)).collect();
            for (step, pair) in rates.windows(2).enumerate() {
                let rising = (step as u64) + 1 < warmup;
                assert!(
                    if rising { pair[0] < pair[1] } else { pair[0] >= pair[1] },
                    "{warmup} {total} {step}"
                );
            }
            assert!(rates.iter().all(|rate| *rate > 0.0 && *rate <= 3e-4), "{rates:?}");
        }
    }

    #[test]
    fn senseless_schedules_are_refused() {
        assert_eq!(cosine(1, 2).check(), Ok(()));
        assert_eq!(
            cosine(5, 5).check().unwrap_err().to_string(),
            "`warmup_steps` must be below `total_steps`, `5`, found `5`"
        );
        for (peak, minimum_ratio) in [(f64::NAN, 0.1), (-1.0, 0.1), (1.0, 1.5), (1.0, f64::NAN)] {
            let schedule = Schedule::Cosine { peak, warmup_steps: 0, total_steps: 1, minimum_ratio };
            assert!(schedule.check().is_err(), "{schedule:?}");
        }
    }
}
