//! The validation loss.
//!
//! In: a trainer between two steps. Out: the mean loss over its cover; nothing that training depends on changes. While
//! one batch is measured the next is prepared.

use std::collections::VecDeque;

use kernwright_plan::executor::{Fetch, MicroStep};
use kernwright_plan::plan::Phase;

use super::{Divergence, TrainError, Trainer, flight, probe};

/// Batches under way, where the executor does not wait for them.
const N_UNDER_WAY: usize = 2;

impl Trainer<'_> {
    /// The mean loss over the validation cover, nats per token. It changes nothing that training depends on. `done` is
    /// told how many of how many batches are done. What was launched is finished first, unreported.
    ///
    /// # Errors
    /// When data or device fail, or the loss is no number.
    pub fn evaluate(&mut self, done: &mut dyn FnMut(usize, usize)) -> Result<f64, TrainError> {
        self.land()?;
        let n_batches = self.cover.n_batches();
        let mut loss = 0.0;
        let mut under_way = VecDeque::new();
        for index in 0..n_batches {
            let fetch = self.launch_batch(index)?;
            let n_kept = if matches!(fetch, Fetch::Here(_)) { 0 } else { N_UNDER_WAY };
            under_way.push_back((index, fetch));
            let n_due =
                if index + 1 == n_batches { under_way.len() } else { under_way.len().saturating_sub(n_kept) };
            for (index, fetch) in under_way.drain(..n_due) {
                loss += self.finish_batch(index, fetch)?;
                done(index + 1, n_batches);
            }
        }
        self.evaluated = Some(self.step);
        Ok(loss)
    }

    /// Is the loss of the first batch of the cover a number?
    pub(super) fn evaluate_one(&mut self) -> Result<(), TrainError> {
        let fetch = self.launch_batch(0)?;
        self.finish_batch(0, fetch)?;
        Ok(())
    }

    /// Asks for what batch `index` of the cover adds to the mean loss.
    fn launch_batch(&mut self, index: usize) -> Result<Fetch, TrainError> {
        let (plan, slots) = (self.evaluation, self.evaluation_slots);
        let batch = self.cover.read(index)?;
        self.feed(plan, slots, &batch, self.cover.n_targets())?;
        self.executor.run_phase(plan, Phase::Forward, MicroStep::First)?;
        Ok(self.executor.fetch(plan, slots.loss)?)
    }

    fn finish_batch(&mut self, index: usize, fetch: Fetch) -> Result<f64, TrainError> {
        let loss = flight::scalar(&self.executor.take(fetch)?);
        if loss.is_finite() {
            return Ok(loss);
        }
        let (plan, slots) = (self.evaluation, self.evaluation_slots);
        let mut fault = probe::stored(self.executor, plan)?;
        if fault.is_none() {
            let batch = self.cover.read(index)?;
            self.feed(plan, slots, &batch, self.cover.n_targets())?;
            let steps = self.executor.plan(plan).phase(Phase::Forward);
            fault = probe::rerun(self.executor, plan, steps, 0)?;
        }
        let learning_rate = self.options.learning_rate(self.step.saturating_sub(1));
        let (what, step) = ("validation loss", self.step);
        Err(TrainError::Diverged(Box::new(Divergence { what, step, value: loss, learning_rate, fault })))
    }
}
