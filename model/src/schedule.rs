//! The learning rate of each update, a pure function of where the run stands in tokens.
//!
//! In: a schedule, the tokens done, the tokens of the update. Out: a rate. It keeps no state, so that resuming needs
//! none. It counts in tokens, so that a run that goes on with another batch follows the same curve; with one batch all
//! along, a token's place is a step's place times a constant, and the rates are those of a schedule over steps.

use serde::{Deserialize, Serialize};

/// How the rate moves after the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Half a cosine (I. Loshchilov, F. Hutter, 2017, without restarts).
    #[default]
    Cosine,
    /// A straight line.
    Linear,
    /// Stays at the peak.
    Constant,
    /// Warm-up, stable, decay (S. Hu et al., 2024, MiniCPM): stays at the peak until the last part of the run, then
    /// falls as one minus the root of the part done, which A. Hägele et al. (2024, "Scaling laws and compute-optimal
    /// training beyond fixed training durations") measured to be better than a straight line.
    Wsd,
}

/// Every form: its name and what it does.
pub const FORMS: [(Form, &str, &str); 4] = [
    (Form::Cosine, "cosine", "falls along half a cosine to the final rate"),
    (Form::Linear, "linear", "falls in a straight line to the final rate"),
    (Form::Constant, "constant", "stays at the highest rate"),
    (Form::Wsd, "wsd", "stays, then falls over the last part of the run; may be prolonged before that"),
];

impl Form {
    /// Its name in flags and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        FORMS.iter().find(|(form, ..)| *form == self).map_or("", |(_, name, _)| name)
    }

    /// Does it depend on the setting of that name, `final-rate` or `decay-fraction`?
    #[must_use]
    pub fn uses(self, setting: &str) -> bool {
        match setting {
            "decay-fraction" => self == Self::Wsd,
            _ => self != Self::Constant,
        }
    }
}

/// How the learning rate moves over a run. Places are numbers of tokens since its beginning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// What happens after the warm-up.
    pub form: Form,
    /// The highest rate.
    pub peak: f64,
    /// The last rate over the highest, kept after the end of the run too.
    pub final_rate: f64,
    /// The share of the run over which `wsd` falls.
    pub decay_fraction: f64,
    /// Where the warm-up ends. The rate rises in equal steps and reaches the peak in the last update that begins
    /// before this place. May be 0.
    pub warmup: u64,
    /// Where the run ends. The update that ends here has the final rate.
    pub total: u64,
}

impl Schedule {
    /// The share of the highest rate that is left at the end unless asked otherwise.
    pub const FINAL_RATE: f64 = 0.1;
    /// The share of the run over which `wsd` falls unless asked otherwise: MiniCPM's.
    pub const DECAY_FRACTION: f64 = 0.1;

    /// The rate of the update that begins after `done` tokens and takes `n`.
    #[must_use]
    pub fn learning_rate(&self, done: u64, n: u64) -> f64 {
        if done < self.warmup {
            return self.peak * ((done + n) as f64 / self.warmup as f64).min(1.0);
        }
        let falling = || {
            let n_falling = self.total.saturating_sub(self.warmup + n).max(1);
            ((done - self.warmup) as f64 / n_falling as f64).min(1.0)
        };
        let height = match self.form {
            Form::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * falling()).cos()),
            Form::Linear => 1.0 - falling(),
            Form::Constant => return self.peak,
            Form::Wsd => 1.0 - self.decayed(done + n).sqrt(),
        };
        self.peak * (self.final_rate + (1.0 - self.final_rate) * height)
    }

    /// Has `wsd` begun to fall in an update that ends at `place`? Other forms have no stable part to leave.
    #[must_use]
    pub fn is_in_decay(&self, place: u64) -> bool {
        self.form == Form::Wsd && self.decayed(place) > 0.0
    }

    /// The share of the decay that is over at a place.
    fn decayed(&self, place: u64) -> f64 {
        // Whole tokens, so that the corner is where the share says and not a rounding error before it.
        let n_decaying = (self.decay_fraction * self.total as f64).round().max(1.0);
        let left = self.total.saturating_sub(place) as f64;
        1.0 - (left / n_decaying).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens of an update: the shape of a curve must not depend on it.
    const N: [u64; 3] = [1, 7, 2048];

    fn schedule(form: Form, warmup: u64, total: u64) -> Schedule {
        Schedule { form, peak: 3e-4, final_rate: 0.1, decay_fraction: 0.2, warmup, total }
    }

    /// Rates of the updates `steps`, in units of the peak.
    fn check(form: Form, warmup: u64, total: u64, expected: &[(u64, f64)]) {
        for n in N {
            let schedule = schedule(form, warmup * n, total * n);
            for (step, share) in expected {
                let found = schedule.learning_rate(step * n, n) / 3e-4;
                assert!((found - share).abs() < 1e-12, "{form:?}, step {step}: {found}, expected {share}");
            }
        }
    }

    #[test]
    fn the_rate_is_right_at_every_corner() {
        let rise = [(0, 0.1), (4, 0.5), (9, 1.0), (10, 1.0)];
        for (form, ..) in FORMS {
            check(form, 10, 111, &rise);
        }
        check(Form::Cosine, 10, 111, &[(35, 0.1 + 0.9 * (0.5 + 0.125_f64.sqrt())), (60, 0.55)]);
        check(Form::Cosine, 10, 111, &[(110, 0.1), (111, 0.1), (1 << 40, 0.1)]);
        check(Form::Linear, 10, 111, &[(35, 0.775), (60, 0.55), (110, 0.1), (1 << 40, 0.1)]);
        check(Form::Constant, 10, 111, &[(60, 1.0), (110, 1.0), (1 << 40, 1.0)]);
        // The last 20 of 100 updates fall; the last one ends at the final rate.
        let root = |done: f64| 0.1 + 0.9 * (1.0 - (done / 20.0).sqrt());
        check(Form::Wsd, 10, 100, &[(60, 1.0), (79, 1.0), (80, root(1.0)), (84, 0.55), (98, root(19.0))]);
        check(Form::Wsd, 10, 100, &[(99, 0.1), (100, 0.1), (1 << 40, 0.1)]);
        // 15 updates of 10 tokens that fall over 30, and 12 that fall over 24, which is no whole number of updates.
        let rate = |total: u64, step: u64| schedule(Form::Wsd, 0, total).learning_rate(step * 10, 10) / 3e-4;
        for (total, step, share) in [(150, 11, 1.0), (150, 14, 0.1), (120, 8, 1.0), (120, 11, 0.1)] {
            assert_eq!(rate(total, step), share, "{total} {step}");
        }
        assert!((rate(120, 9) - (0.1 + 0.9 * (1.0 - (4.0 / 24.0_f64).sqrt()))).abs() < 1e-12);
    }

    #[test]
    fn the_rate_never_rises_after_the_warmup_nor_falls_in_it() {
        for (form, ..) in FORMS {
            for (warmup, total) in [(0, 1), (0, 2), (0, 77), (1, 2), (5, 6), (5, 7), (33, 100)] {
                let schedule = schedule(form, warmup, total);
                let rates: Vec<f64> = (0..total + 3).map(|step| schedule.learning_rate(step, 1)).collect();
                for (step, pair) in rates.windows(2).enumerate() {
                    let rising = (step as u64) + 1 < warmup;
                    assert!(
                        if rising { pair[0] < pair[1] } else { pair[0] >= pair[1] },
                        "{form:?} {warmup} {total} {step}"
                    );
                }
                assert!(rates.iter().all(|rate| *rate > 0.0 && *rate <= 3e-4), "{form:?} {rates:?}");
            }
        }
    }

    #[test]
    fn a_longer_wsd_run_is_the_same_until_the_shorter_one_decays() {
        let (short, long) = (schedule(Form::Wsd, 10, 100), schedule(Form::Wsd, 10, 1000));
        let same = |step| short.learning_rate(step, 1).to_bits() == long.learning_rate(step, 1).to_bits();
        assert!((0..80).all(same) && !same(80));
        assert!(!short.is_in_decay(80) && short.is_in_decay(81));
        assert!(!schedule(Form::Cosine, 10, 100).is_in_decay(99));
    }

    #[test]
    fn larger_updates_follow_the_same_curve() {
        for (form, ..) in FORMS {
            let schedule = schedule(form, 64, 640);
            for done in (64..640).step_by(16) {
                // Two updates of 8 tokens and one of 16: the large one lies where the small ones do.
                let (a, b) = (schedule.learning_rate(done, 8), schedule.learning_rate(done + 8, 8));
                let large = schedule.learning_rate(done, 16);
                assert!((large - (a + b) / 2.0).abs() < 0.1 * 3e-4, "{form:?} {done}: {a} {b} {large}");
            }
        }
    }

    #[test]
    fn names_are_those_of_files() {
        for (form, name, _) in FORMS {
            assert_eq!(serde_json::to_string(&form).unwrap(), format!("\"{name}\""));
            assert_eq!(form.name(), name);
        }
    }
}
