//! The steps that a run has launched ahead of what it knows of them.
//!
//! In: a pace, and after which steps a run does more than train. Out: launches, so that at those steps none is under way.

use std::collections::VecDeque;

use super::{Pace, Rhythm};
use crate::trainer::{TrainError, Trainer};

/// Launches of a run.
pub(super) struct Launches {
    /// Set when the run is to end with what is under way.
    pub(super) ends: bool,
    pace: Pace,
    /// Steps after whose multiples a run validates or saves; 0 for never.
    every: [u64; 2],
    /// Single steps to halt at, one of them the last.
    at: Vec<u64>,
    /// Steps of each launch under way, oldest first.
    under_way: VecDeque<usize>,
    /// Why there is no further launch.
    failure: Option<TrainError>,
}

impl Launches {
    /// None yet. `at` are single steps to halt at; one of them is the last.
    pub(super) fn new(rhythm: Rhythm, at: Vec<u64>) -> Self {
        let every = [rhythm.eval_every, rhythm.save_every];
        Self { ends: false, pace: rhythm.pace, every, at, under_way: VecDeque::new(), failure: None }
    }

    /// Launches what may be launched and waits for the oldest launch. Out: how many steps are to be finished.
    ///
    /// # Errors
    /// When the device fails, or, once all that could be launched is finished, when a batch could not be read.
    pub(super) fn advance(&mut self, trainer: &mut Trainer<'_>) -> Result<usize, TrainError> {
        let halt = self.next_halt(trainer.step_number());
        while self.under_way.len() < self.pace.launches.max(1)
            && trainer.launched() < halt
            && !self.ends
            && self.failure.is_none()
        {
            let left = self.pace.steps_per_launch.max(1).min(halt - trainer.launched());
            let launched =
                (0..left).map_while(|_| trainer.launch().map_err(|error| self.failure = Some(error)).ok());
            let n = launched.count();
            if n > 0 {
                self.under_way.push_back(n);
            }
        }
        match (self.under_way.pop_front(), self.failure.take()) {
            (Some(n), failure) => {
                self.failure = failure;
                trainer.wait_for(n)?;
                Ok(n)
            }
            (None, failure) => Err(failure.unwrap_or(TrainError::NotLaunched)),
        }
    }

    /// The next step after `step` at which nothing may be under way.
    fn next_halt(&self, step: u64) -> u64 {
        let multiples = self.every.iter().filter(|every| **every > 0).map(|every| (step / every + 1) * every);
        multiples.chain(self.at.iter().copied().filter(|at| *at > step)).min().unwrap_or(step + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_launched_past_a_step_that_is_saved_or_validated() {
        let halts = |eval_every, save_every, at: &[u64]| {
            let rhythm = Rhythm { eval_every, save_every, stop_after: None, n_kept: 1, pace: Pace::AHEAD };
            let launches = Launches::new(rhythm, at.to_vec());
            (0..12).map(|step| launches.next_halt(step)).collect::<Vec<_>>()
        };
        assert_eq!(halts(4, 6, &[9, 12]), [4, 4, 4, 4, 6, 6, 8, 8, 9, 12, 12, 12]);
        assert_eq!(halts(0, 0, &[12]), [12; 12]);
        assert_eq!(halts(1, 0, &[12]), (1..=12).collect::<Vec<_>>()[..]);
    }
}
