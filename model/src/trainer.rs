//! Training steps and evaluations over any executor.
//!
//! In: a Shape, options, a corpus, an executor; a checkpoint to go on from. Out: what each step did, checkpoints. It
//! knows no terminal, no folder layout and no device.

mod error;
mod options;
mod probe;
mod slots;

use std::ops::Range;
use std::path::{Path, PathBuf};

use kernwright_plan::buffer::BufferId;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId, Values};
use kernwright_plan::passes::forward::Head;
use kernwright_plan::plan::Phase;
use kernwright_plan::shape::Shape;
use kernwright_plan::{Options as PlanOptions, forward_step, train_step};

use crate::batches::{Batch, Cover, Loader, Position, Sampler, Share};
use crate::checkpoint::{self, Checkpoint, Kind, Progress};
use crate::random::Random;
use crate::split::Split;
use crate::weights;
use slots::{Slots, find};

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
}

/// A model in training.
pub struct Trainer<'a> {
    executor: &'a mut dyn Executor,
    shape: &'a Shape,
    options: TrainOptions,
    loader: Loader,
    cover: Cover,
    training: PlanId,
    training_slots: Slots,
    evaluation: PlanId,
    evaluation_slots: Slots,
    step: u64,
    tokens: u64,
    random: Random,
    /// Where the next step begins in the corpus; a step that fails half-way has taken batches for nothing.
    position: Position,
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
                (step, tokens, position) = (progress.step, progress.tokens, progress.position);
                random = progress.random;
                let said = options.tokens_at(step);
                if said != tokens {
                    return Err(TrainError::Tokens { step, found: tokens, said });
                }
            }
        }
        executor.run_phase(training, Phase::Prepare, MicroStep::First)?;
        Ok(Self {
            training_slots: Slots::find(executor, training)?,
            evaluation_slots: Slots::find(executor, evaluation)?,
            loader: Loader::start(sampler, position)?,
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
            saved: step,
            evaluated: None,
        })
    }

    /// Steps done.
    #[must_use]
    pub fn step_number(&self) -> u64 {
        self.step
    }

    /// Is there a step that no checkpoint holds?
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

    /// One step: `accumulate` micro-batches whose sum is the gradient of one large batch, then the update.
    ///
    /// # Errors
    /// When data or device fail, or loss or gradient are no longer numbers; the weights are those of before then.
    #[allow(clippy::cast_possible_truncation)]
    pub fn step(&mut self) -> Result<StepReport, TrainError> {
        let batches = (0..self.options.accumulate).map(|_| self.loader.take());
        let batches = batches.collect::<Result<Vec<_>, _>>()?;
        let n_counted: usize = batches.iter().map(|batch| batch.n_counted).sum();
        let learning_rate = self.options.learning_rate(self.step);
        for (index, batch) in batches.iter().enumerate() {
            let micro = if index == 0 { MicroStep::First } else { MicroStep::Later };
            self.feed(self.training, self.training_slots, batch, n_counted)?;
            self.executor.run_phase(self.training, Phase::Forward, micro)?;
            self.executor.run_phase(self.training, Phase::Backward, micro)?;
        }
        let loss = self.scalar(self.training_slots.loss)?;
        if !loss.is_finite() {
            return Err(self.diverged("loss", loss, &batches, n_counted));
        }
        let number = i32::try_from(self.step + 1).unwrap_or(i32::MAX);
        for (name, values) in
            [("learning_rate", Values::Float(&[learning_rate as f32])), ("step", Values::Int(&[number]))]
        {
            let buffer = find(self.executor, self.training, name)?;
            self.executor.write(self.training, buffer, values)?;
        }
        // The norm comes first: a gradient that is no number must not reach the weights.
        let (norm, norm_steps) = self.norm()?;
        self.executor.run(self.training, norm_steps.clone(), MicroStep::First)?;
        let gradient_norm = self.scalar(norm)?;
        if !gradient_norm.is_finite() {
            return Err(self.diverged("gradient's norm", gradient_norm, &batches, n_counted));
        }
        let update = self.executor.plan(self.training).phase(Phase::Update);
        self.executor.run(self.training, norm_steps.end..update.end, MicroStep::First)?;
        self.step += 1;
        self.position = self.loader.position();
        self.tokens += batches.iter().map(|batch| batch.tokens.len() as u64).sum::<u64>();
        Ok(StepReport { step: self.step, tokens: self.tokens, loss, gradient_norm, learning_rate })
    }

    /// The buffer of the gradient's norm, and the steps of the update up to the one that writes it.
    fn norm(&self) -> Result<(BufferId, Range<usize>), ExecutorError> {
        let norm = find(self.executor, self.training, "gradient_norm")?;
        let plan = self.executor.plan(self.training);
        let update = plan.phase(Phase::Update);
        let writes = |index: &usize| plan.steps[*index].writes.iter().any(|write| write.buffer == norm);
        let end = update.clone().find(writes).map_or(update.start, |index| index + 1);
        Ok((norm, update.start..end))
    }

    /// The error for a training step whose outcome is not finite. The weights are still those it began with.
    fn diverged(
        &mut self,
        what: &'static str,
        value: f64,
        batches: &[Batch],
        n_counted: usize,
    ) -> TrainError {
        // The update before is what may have spoilt the weights.
        let learning_rate = self.options.learning_rate(self.step.saturating_sub(1));
        match self.probe(batches, n_counted) {
            Ok(fault) => {
                let step = self.step + 1;
                TrainError::Diverged(Box::new(Divergence { what, step, value, learning_rate, fault }))
            }
            Err(error) => error.into(),
        }
    }

    fn probe(&mut self, batches: &[Batch], n_counted: usize) -> Result<Option<Fault>, ExecutorError> {
        let (plan, norm_steps) = (self.training, self.norm()?.1);
        let mut fault = probe::stored(self.executor, plan)?;
        let micro_steps =
            [Phase::Forward, Phase::Backward].map(|phase| self.executor.plan(plan).phase(phase));
        for (index, batch) in batches.iter().enumerate() {
            if fault.is_some() {
                return Ok(fault);
            }
            self.feed(plan, self.training_slots, batch, n_counted)?;
            for steps in micro_steps.clone() {
                if fault.is_none() {
                    fault = probe::rerun(self.executor, plan, steps, index)?;
                }
            }
        }
        match fault {
            None => probe::rerun(self.executor, plan, norm_steps, 0),
            fault => Ok(fault),
        }
    }

    /// The mean loss over the validation cover, nats per token. It changes nothing that training depends on. `done` is
    /// told how many of how many batches are done.
    ///
    /// # Errors
    /// When data or device fail, or the loss is no number.
    pub fn evaluate(&mut self, done: &mut dyn FnMut(usize, usize)) -> Result<f64, TrainError> {
        let n_batches = self.cover.n_batches();
        let mut loss = 0.0;
        for index in 0..n_batches {
            loss += self.evaluate_batch(index)?;
            done(index + 1, n_batches);
        }
        self.evaluated = Some(self.step);
        Ok(loss)
    }

    /// What batch `index` of the cover adds to the mean loss.
    fn evaluate_batch(&mut self, index: usize) -> Result<f64, TrainError> {
        let (plan, slots) = (self.evaluation, self.evaluation_slots);
        let batch = self.cover.read(index)?;
        self.feed(plan, slots, &batch, self.cover.n_targets())?;
        self.executor.run_phase(plan, Phase::Forward, MicroStep::First)?;
        let loss = f64::from(self.executor.read(plan, slots.loss)?[0]);
        if loss.is_finite() {
            return Ok(loss);
        }
        let mut fault = probe::stored(self.executor, plan)?;
        if fault.is_none() {
            let steps = self.executor.plan(plan).phase(Phase::Forward);
            fault = probe::rerun(self.executor, plan, steps, 0)?;
        }
        let learning_rate = self.options.learning_rate(self.step.saturating_sub(1));
        let (what, step) = ("validation loss", self.step);
        Err(TrainError::Diverged(Box::new(Divergence { what, step, value: loss, learning_rate, fault })))
    }

    /// Saves a checkpoint in the folder of the run. `options` is kept as it is, for whoever resumes.
    ///
    /// # Errors
    /// When the device or the disk fails, or the weights are of no use: one is no number or too large to be squared, or
    /// they give no finite loss on held-out text. An earlier checkpoint is left whole.
    pub fn save(&mut self, run: &Path, options: &serde_json::Value) -> Result<PathBuf, TrainError> {
        let progress = Progress {
            program: concat!("kernwright ", env!("CARGO_PKG_VERSION")).to_owned(),
            shape: self.shape.text(),
            step: self.step,
            tokens: self.tokens,
            seed: self.options.seed,
            random: self.random,
            position: self.position,
            options: options.clone(),
            executor: serde_json::Value::Null,
        };
        if self.evaluated != Some(self.step) {
            // Data that cannot be read is no reason to lose the weights.
            if let Err(error @ TrainError::Diverged(_)) = self.evaluate_batch(0) {
                return Err(error);
            }
        }
        let (tensors, parameters) = (weights::tensors(self.shape), self.shape.parameters());
        let (executor, plan) = (&*self.executor, self.training);
        let saved = checkpoint::save(run, &progress, &tensors, &mut |kind, name, out| {
            let parameter = parameters.iter().find(|parameter| parameter.name == name);
            let parameter = parameter.ok_or_else(|| format!("the shape has no `{name}`"))?;
            let values = weights::read(executor, plan, kind, parameter)?;
            // A norm or a product squares weights; a huge one cannot be trained on.
            let is_sound = |value: &f32| match kind {
                Kind::Weight => (value * value).is_finite(),
                Kind::FirstMoment | Kind::SecondMoment => value.is_finite(),
            };
            if let Some(index) = values.iter().position(|value| !is_sound(value)) {
                let value = values[index];
                return Err(format!(
                    "element {index} must be a number whose square fp32 can hold, found `{value:e}`: \
                     the learning rate may be too high"
                )
                .into());
            }
            out.copy_from_slice(&values);
            Ok(())
        })?;
        self.saved = self.step;
        Ok(saved)
    }

    #[allow(clippy::cast_possible_truncation)]
    fn feed(
        &mut self,
        plan: PlanId,
        slots: Slots,
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

    fn scalar(&self, buffer: BufferId) -> Result<f64, ExecutorError> {
        Ok(f64::from(self.executor.read(self.training, buffer)?[0]))
    }
}
