//! What is said of a step that did not yield numbers.
//!
//! In: the step, on the executor that ran it, with the weights it began with. Out: the error that names the tensor in
//! which it began.

use kernwright_plan::executor::{ExecutorError, Values};
use kernwright_plan::plan::Phase;

use super::flight::Flight;
use super::{Divergence, Fault, TrainError, Trainer, probe};

impl Trainer<'_> {
    /// The error for the oldest of the launched steps, whose outcome is not finite. Those after it are forgotten.
    pub(super) fn diverged(&mut self, what: &'static str, value: f64, flight: &Flight) -> TrainError {
        // The update before is what may have spoilt the weights.
        let learning_rate = self.options.learning_rate(self.step.saturating_sub(1));
        let found = self.forget_launched().and_then(|()| self.probe(flight));
        let found = found.and_then(|fault| self.release().map(|()| fault));
        match found {
            Ok(fault) => {
                let step = self.step + 1;
                TrainError::Diverged(Box::new(Divergence { what, step, value, learning_rate, fault }))
            }
            Err(error) => error.into(),
        }
    }

    /// Lets what is launched run out.
    fn forget_launched(&mut self) -> Result<(), ExecutorError> {
        while let Some(mut flight) = self.flights.pop_back() {
            flight.outcome.arrive(self.executor)?;
        }
        self.executor.wait()
    }

    /// Lets updates change weights again.
    fn release(&mut self) -> Result<(), ExecutorError> {
        self.executor.write(self.training, self.training_slots.halted, Values::Int(&[0]))
    }

    /// Runs the step again, but for the update.
    fn probe(&mut self, flight: &Flight) -> Result<Option<Fault>, ExecutorError> {
        let (plan, slots) = (self.training, self.training_slots);
        let steps = self.gradient_steps();
        let mut fault = probe::stored(self.executor, plan)?;
        for (index, batch) in flight.batches.iter().enumerate() {
            if fault.is_some() {
                return Ok(fault);
            }
            self.feed(plan, slots.inputs, batch, flight.n_counted)?;
            fault = probe::rerun(self.executor, plan, steps.clone(), index)?;
        }
        match fault {
            None => {
                let update = self.executor.plan(plan).phase(Phase::Update);
                probe::rerun(self.executor, plan, update.start..slots.norm_end, 0)
            }
            fault => Ok(fault),
        }
    }
}
