//! Training steps over any executor.
//!
//! In: a Shape, options, a corpus, an executor; a checkpoint to go on from. Out: what each step did, checkpoints. It
//! knows no terminal, no folder layout and no device.
//!
//! A step is launched and, later, finished: launching asks for all of it and waits for nothing, finishing takes its loss
//! and gradient norm. A device so never waits for the host, as long as the next step is launched before the last one is
//! finished. What is read back is the same however many steps are under way.

mod error;
mod evaluation;
mod fault;
mod flight;
mod options;
mod probe;
mod saving;
mod slots;
mod state;

use std::collections::VecDeque;

use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId, Values};
use kernwright_plan::passes::forward::Head;
use kernwright_plan::plan::Phase;
use kernwright_plan::shape::Shape;
use kernwright_plan::{Options as PlanOptions, forward_step, train_step};

use crate::batches::{Batch, Cover, Loader, Position, Sampler, Share};
use crate::checkpoint::{self, Checkpoint};
use crate::random::Random;
use crate::split::Split;
use crate::weights;
use flight::{Flight, Numbers, Outcome};
use slots::{InputSlots, StepSlots};

pub use error::{Divergence, TrainError};
pub use options::{Asked, MOST_TOKENS, Stretch, TrainOptions};
pub use probe::{Fault, Origin};

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// Steps done, this one included.
    pub step: u64,
    /// Tokens trained on, this step included.
    pub tokens: u64,
    /// Mean loss of the step, nats per token, the z-loss included.
    pub loss: f64,
    /// Norm of the whole gradient before clipping.
    pub gradient_norm: f64,
    /// The learning rate.
    pub learning_rate: f64,
    /// Where the loss is scaled, for fp16: what it will be multiplied by in the next step.
    pub loss_scale: Option<f64>,
    /// And the steps so far that updated nothing, since a gradient overflowed.
    pub skipped_steps: Option<u64>,
}

/// Most batches that wait for their step.
const MOST_READY: usize = 64;

/// A model in training.
pub struct Trainer<'a> {
    executor: &'a mut dyn Executor,
    shape: &'a Shape,
    options: TrainOptions,
    loader: Loader,
    cover: Cover,
    training: PlanId,
    training_slots: StepSlots,
    evaluation: PlanId,
    evaluation_slots: InputSlots,
    /// Steps finished.
    step: u64,
    /// Tokens of them.
    tokens: u64,
    random: Random,
    /// Where the step after the last finished one begins in the corpus.
    position: Position,
    /// Steps launched and not finished, oldest first.
    flights: VecDeque<Flight>,
    /// Steps done when the newest checkpoint was written.
    saved: u64,
    /// The step after which the validation loss was last found to be a number.
    evaluated: Option<u64>,
}

impl<'a> Trainer<'a> {
    /// A model of `shape` on `executor`, new or as `checkpoint` left it.
    ///
    /// # Errors
    /// When an option, the corpus or the checkpoint does not fit, or the device lacks memory.
    pub fn new(
        executor: &'a mut dyn Executor,
        shape: &'a Shape,
        options: TrainOptions,
        plan_options: &PlanOptions,
        split: &Split,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<Self, TrainError> {
        options.check(shape)?;
        let plan_options = options.plan_options(plan_options);
        let (batch, length) = (options.batch, options.length);
        let sampler = Sampler::new(split.training.clone(), options.seed, batch, length, Share::WHOLE)?;
        let cover = Cover::new(split.validation.clone(), batch, length, options.eval_batches)?;
        if let Some(checkpoint) = checkpoint {
            state::recall(executor, &checkpoint.manifest.progress.executor)?;
        }
        let training = executor.load(train_step(shape, &plan_options, batch, length))?;
        let plain = PlanOptions { z_loss: 0.0, ..plan_options };
        let evaluation = executor.load(forward_step(shape, &plain, batch, length, Head::Loss))?;
        let (mut step, mut tokens, mut position) = (0, 0, Position::default());
        let mut random = Random::stream(options.seed, "run");
        match checkpoint {
            None => weights::initialise(executor, training, shape, options.seed)?,
            Some(checkpoint) => {
                let progress = &checkpoint.manifest.progress;
                checkpoint::check_shape(&progress.shape, &shape.text())?;
                weights::load(executor, training, shape, checkpoint)?;
                state::write(executor, training, &progress.executor)?;
                (step, tokens, position) = (progress.step, progress.tokens, progress.position);
                random = progress.random;
                let said = options.tokens_at(step);
                if said != tokens {
                    return Err(TrainError::Tokens { step, found: tokens, said });
                }
            }
        }
        executor.run_phase(training, Phase::Prepare, MicroStep::First)?;
        // A step takes all of its batches at once.
        let n_ready = (2 * options.accumulate).min(MOST_READY);
        Ok(Self {
            training_slots: StepSlots::find(executor, training)?,
            evaluation_slots: InputSlots::find(executor, evaluation)?,
            loader: Loader::start(sampler, position, n_ready)?,
            executor,
            shape,
            options,
            cover,
            training,
            evaluation,
            step,
            tokens,
            random,
            position,
            flights: VecDeque::new(),
            saved: step,
            evaluated: None,
        })
    }

    /// Steps finished.
    #[must_use]
    pub fn step_number(&self) -> u64 {
        self.step
    }

    /// Steps launched, the finished ones included.
    #[must_use]
    pub fn launched(&self) -> u64 {
        self.step + self.flights.len() as u64
    }

    /// Is there a finished step that no checkpoint holds?
    #[must_use]
    pub fn has_unsaved_steps(&self) -> bool {
        self.step > self.saved
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &TrainOptions {
        &self.options
    }

    /// The batches that validation measures.
    #[must_use]
    pub fn cover(&self) -> &Cover {
        &self.cover
    }

    /// The executor, for what else is to be done with the weights.
    pub fn executor(&mut self) -> &mut dyn Executor {
        self.executor
    }

    /// One step from its batches to its outcome. What was launched before is finished first, unreported.
    ///
    /// # Errors
    /// As [`Trainer::launch`] and [`Trainer::finish`].
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        self.launch()?;
        self.wait_for(self.flights.len())?;
        while self.flights.len() > 1 {
            self.finish()?;
        }
        self.finish()
    }

    /// Asks for one step: `accumulate` micro-batches whose sum is the gradient of one large batch, then the update.
    ///
    /// # Errors
    /// When the data cannot be read, or the device fails. What was launched before may still be finished in the first
    /// case.
    #[allow(clippy::cast_possible_truncation)]
    pub fn launch(&mut self) -> Result<(), TrainError> {
        let batches = (0..self.options.accumulate).map(|_| self.loader.take());
        let batches = batches.collect::<Result<Vec<_>, _>>()?;
        let n_counted: usize = batches.iter().map(|batch| batch.n_counted).sum();
        let (plan, slots) = (self.training, self.training_slots);
        let before = self.launched();
        let learning_rate = self.options.learning_rate(before);
        let number = i32::try_from(before + 1).unwrap_or(i32::MAX);
        self.executor.write(plan, slots.learning_rate, Values::Float(&[learning_rate as f32]))?;
        self.executor.write(plan, slots.step, Values::Int(&[number]))?;
        let gradient = self.gradient_steps();
        for (index, batch) in batches.iter().enumerate() {
            let micro = if index == 0 { MicroStep::First } else { MicroStep::Later };
            self.feed(plan, slots.inputs, batch, n_counted)?;
            self.executor.run(plan, gradient.clone(), micro)?;
        }
        // Where loss or norm are no numbers it leaves weights alone, and so do those of the steps after it.
        let update = self.executor.plan(plan).phase(Phase::Update);
        self.executor.run(plan, update, MicroStep::First)?;
        let outcome = Outcome::ask(self.executor, plan, slots)?;
        let tokens = self.flights.back().map_or(self.tokens, |flight| flight.tokens)
            + batches.iter().map(|batch| batch.tokens.len() as u64).sum::<u64>();
        let position = self.loader.position();
        self.flights.push_back(Flight { tokens, position, learning_rate, batches, n_counted, outcome });
        Ok(())
    }

    /// The steps of the plan that a micro-batch runs.
    fn gradient_steps(&self) -> std::ops::Range<usize> {
        let plan = self.executor.plan(self.training);
        plan.phase(Phase::Forward).start..plan.phase(Phase::Backward).end
    }

    /// Waits until the `n` oldest of the launched steps are done, by one wait for the last of them.
    ///
    /// # Errors
    /// When the device fails.
    pub fn wait_for(&mut self, n: usize) -> Result<(), TrainError> {
        if let Some(last) = n.checked_sub(1).and_then(|index| self.flights.get_mut(index)) {
            last.outcome.arrive(self.executor)?;
        }
        Ok(())
    }

    /// What the oldest of the launched steps did, waiting for it where it is not done.
    ///
    /// # Errors
    /// When none was launched, the device failed, or the step's loss or gradient are no longer numbers. Then the weights
    /// are those of before that step, and steps that were launched after it are as if they had not been.
    pub fn finish(&mut self) -> Result<StepReport, TrainError> {
        let mut flight = self.flights.pop_front().ok_or(TrainError::NotLaunched)?;
        let Numbers { loss, gradient_norm, scaling } = flight.outcome.arrive(self.executor)?;
        for (what, value) in [("loss", loss), ("gradient's norm", gradient_norm)] {
            // With a scaled loss, an overflow costs this step and no more.
            if !value.is_finite() && scaling.is_none_or(|scaling| scaling.halted) {
                return Err(self.diverged(what, value, &flight));
            }
        }
        self.step += 1;
        (self.tokens, self.position) = (flight.tokens, flight.position);
        Ok(StepReport {
            step: self.step,
            tokens: self.tokens,
            loss,
            gradient_norm,
            learning_rate: flight.learning_rate,
            loss_scale: scaling.map(|scaling| scaling.scale),
            skipped_steps: scaling.map(|scaling| scaling.skipped),
        })
    }

    /// Finishes what is launched, unreported.
    fn land(&mut self) -> Result<(), TrainError> {
        self.wait_for(self.flights.len())?;
        while !self.flights.is_empty() {
            self.finish()?;
        }
        Ok(())
    }

    #[allow(clippy::cast_possible_truncation)]
    fn feed(
        &mut self,
        plan: PlanId,
        slots: InputSlots,
        batch: &Batch,
        n_counted: usize,
    ) -> Result<(), ExecutorError> {
        let inverse = if n_counted == 0 { 0.0 } else { (1.0 / n_counted as f64) as f32 };
        let executor = &mut *self.executor;
        executor.write(plan, slots.tokens, Values::Int(&batch.tokens))?;
        executor.write(plan, slots.token_order, Values::Int(&batch.token_order))?;
        executor.write(plan, slots.targets, Values::Int(&batch.targets))?;
        executor.write(plan, slots.inverse_count, Values::Float(&[inverse]))
    }
}
