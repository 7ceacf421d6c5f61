//! Which of several candidates is the fastest right one.
//!
//! In: something that can check and time a candidate by its number. Out: the number of the best, and times. Must not know
//! what a candidate is.

use crate::driver::DriverError;
use std::fmt;

/// Checks and times candidates.
pub(super) trait Trial {
    /// What is wrong with what a candidate computes, if anything.
    ///
    /// # Errors
    /// When the device fails for good.
    fn fault(&mut self, candidate: usize) -> Result<Option<Fault>, DriverError>;

    /// Seconds of one product by a candidate, on average over so many.
    ///
    /// # Errors
    /// When the device fails for good.
    fn seconds(&mut self, candidate: usize, repeats: usize) -> Result<f64, DriverError>;
}

/// Why a candidate is not taken.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// The library does not do it after all.
    Refused(String),
    /// It gives other bits each time, where that is not allowed.
    Unordered,
    /// What it computes is wrong.
    Wrong(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "is refused: {why}"),
            Self::Unordered => f.write_str("gives other bits the second time"),
            Self::Wrong(how) => f.write_str(how),
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Selection {
    /// The fastest right candidate.
    pub(super) best: usize,
    /// Its time.
    pub(super) seconds: f64,
    /// That of the first, where it is right.
    pub(super) first: Option<f64>,
    /// What was wrong with others, by number.
    pub(super) faults: Vec<(usize, Fault)>,
}

/// A candidate is timed for about so long in a round.
const ROUND_SECONDS: f64 = 0.5e-3;
const MOST_REPEATS: f64 = 32.0;
const ROUNDS: usize = 4;
/// Who is so many times slower than the best after the second round is out.
const HOPELESS: f64 = 1.25;
/// A later candidate has to be faster by this to be preferred: times are not better known.
const GAIN: f64 = 0.99;

/// Tries `count` candidates. Rounds take turns among them, so that a clock that changes is fair to all; the least time of
/// a candidate counts.
///
/// # Errors
/// When none is right, or the device fails.
pub(super) fn select(count: usize, trial: &mut dyn Trial) -> Result<Selection, DriverError> {
    let mut faults = Vec::new();
    let mut times: Vec<(usize, f64)> = Vec::new();
    for candidate in 0..count {
        match trial.fault(candidate)? {
            Some(fault) => faults.push((candidate, fault)),
            None => times.push((candidate, trial.seconds(candidate, 1)?)),
        }
    }
    let fastest = |times: &[(usize, f64)]| times.iter().map(|time| time.1).fold(f64::INFINITY, f64::min);
    let repeats = (ROUND_SECONDS / fastest(&times).max(1e-9)).clamp(1.0, MOST_REPEATS) as usize;
    let n_right = times.len();
    // One launch on its own says too little to drop anyone.
    times.iter_mut().for_each(|time| time.1 = f64::INFINITY);
    for round in 0..if n_right > 1 { ROUNDS } else { 1 } {
        for time in &mut times {
            time.1 = time.1.min(trial.seconds(time.0, repeats)?);
        }
        let limit = if round == 0 { f64::INFINITY } else { HOPELESS * fastest(&times) };
        // The first stays, to compare with.
        times.retain(|(candidate, seconds)| *candidate == 0 || *seconds <= limit);
    }
    let first = times.iter().find(|(candidate, _)| *candidate == 0).map(|(_, seconds)| *seconds);
    let mut best: Option<(usize, f64)> = None;
    for &(candidate, seconds) in &times {
        if best.is_none_or(|(_, least)| seconds < GAIN * least) {
            best = Some((candidate, seconds));
        }
    }
    match best {
        Some((best, seconds)) => Ok(Selection { best, seconds, first, faults }),
        None => Err(DriverError::Failed(match faults.first() {
            Some((_, fault)) => format!("none of {count} algorithms computes it rightly: the first {fault}"),
            None => "the library offers no algorithm".to_owned(),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Script {
        /// Seconds of each candidate; what is wrong with it.
        candidates: Vec<(f64, Option<&'static str>)>,
        n_timed: Vec<usize>,
    }

    impl Trial for Script {
        fn fault(&mut self, candidate: usize) -> Result<Option<Fault>, DriverError> {
            Ok(self.candidates[candidate].1.map(wrong))
        }

        fn seconds(&mut self, candidate: usize, repeats: usize) -> Result<f64, DriverError> {
            assert!(self.candidates[candidate].1.is_none(), "a wrong candidate is not timed");
            self.n_timed[candidate] += repeats;
            Ok(self.candidates[candidate].0)
        }
    }

    fn wrong(how: &str) -> Fault {
        Fault::Wrong(how.to_owned())
    }

    fn of(candidates: &[(f64, Option<&'static str>)]) -> (Result<Selection, DriverError>, Vec<usize>) {
        let n_timed = vec![0; candidates.len()];
        let mut script = Script { candidates: candidates.to_vec(), n_timed };
        (select(candidates.len(), &mut script), script.n_timed)
    }

    #[test]
    fn the_fastest_right_candidate_wins() {
        let (found, n_timed) =
            of(&[(1e-4, None), (1e-6, Some("is wrong")), (0.8e-4, None), (0.9e-4, None), (3e-4, None)]);
        let found = found.unwrap();
        assert_eq!((found.best, found.seconds, found.first), (2, 0.8e-4, Some(1e-4)));
        assert_eq!(found.faults, [(1, wrong("is wrong"))]);
        assert!(n_timed[4] < n_timed[3], "who is hopeless is dropped: {n_timed:?}");
        assert_eq!(n_timed[0], n_timed[2], "the first is timed to the end");
    }

    #[test]
    fn a_gain_below_what_times_are_worth_changes_nothing() {
        assert_eq!(of(&[(1e-4, None), (0.995e-4, None)]).0.unwrap().best, 0);
        assert_eq!(of(&[(1e-4, None), (0.98e-4, None)]).0.unwrap().best, 1);
    }

    #[test]
    fn a_wrong_first_candidate_is_passed_over_and_if_all_are_wrong_it_is_an_error() {
        let found = of(&[(1e-6, Some("is wrong")), (1e-4, None)]).0.unwrap();
        assert_eq!((found.best, found.first), (1, None));
        let error = of(&[(1e-6, Some("gives a NaN")), (1e-6, Some("is wrong"))]).0.unwrap_err();
        assert_eq!(error.to_string(), "none of 2 algorithms computes it rightly: the first gives a NaN");
        assert_eq!(of(&[]).0.unwrap_err().to_string(), "the library offers no algorithm");
    }
}
