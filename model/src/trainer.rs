//! Training steps and evaluations over any executor.
//!
//! In: a Shape, options, a corpus, an executor; a checkpoint to go on from. Out: what each step did, checkpoints. It
//! knows no terminal, no folder layout and no device.

mod slots;

use std::path::{Path, PathBuf};

use kernwright_plan::buffer::BufferId;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId, Values};
use kernwright_plan::passes::forward::Head;
use kernwright_plan::plan::Phase;
use kernwright_plan::shape::Shape;
use kernwright_plan::{Options as PlanOptions, forward_step, train_step};
use serde::{Deserialize, Serialize};

use crate::batches::{Batch, Cover, Loader, LoaderError, Position, Sampler, Share};
use crate::checkpoint::{self, Checkpoint, CheckpointError, Progress};
use crate::corpus::CorpusError;
use crate::random::Random;
use crate::schedule::{Schedule, ScheduleError};
use crate::split::Split;
use crate::weights::{self, WeightsError};
use slots::{Slots, find};

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
    /// Decoupled decay of matrices.
    pub weight_decay: f64,
    /// Greatest gradient norm; 0 does not clip.
    pub clip: f64,
    /// Seed of weights and data order.
    pub seed: u64,
    /// Most batches of a validation.
    pub eval_batches: usize,
}

/// Most tokens of one step: its batches are in memory at once.
pub const MOST_TOKENS: usize = 1 << 28;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepReport {
    /// Steps done, this one included.
    pub step: u64,
    /// Tokens trained on, this step included.
    pub tokens: u64,
    /// Mean loss of the step, nats per token.
    pub loss: f64,
    /// Norm of the whole gradient before clipping.
    pub gradient_norm: f64,
    /// The learning rate.
    pub learning_rate: f64,
}

/// What can go wrong while training.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum TrainError {
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Loader(#[from] LoaderError),
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    #[error("`{name}` must be {allowed}, found `{found}`")]
    Option { name: &'static str, allowed: String, found: String },
    #[error("the loss of step {step} is `{loss}`: the learning rate may be too high, `{learning_rate:.3e}`")]
    Diverged { step: u64, loss: f64, learning_rate: f64 },
    #[error(
        "the validation loss after step {step} is `{loss}`: the learning rate may be too high, \
         `{learning_rate:.3e}`"
    )]
    Validation { step: u64, loss: f64, learning_rate: f64 },
    #[error(
        "the gradient's norm in step {step} is `{gradient_norm}`: the learning rate may be too high, \
         `{learning_rate:.3e}`"
    )]
    Gradient { step: u64, gradient_norm: f64, learning_rate: f64 },
}

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
        // Positions and rows are 32-bit numbers in buffers of whole numbers.
        if self.batch.checked_mul(self.length).is_none_or(|rows| i32::try_from(rows).is_err()) {
            return wrong("batch", "such that batch x length is below 2^31", &self.batch);
        }
        let tokens = (self.batch * self.length).checked_mul(self.accumulate);
        if tokens.is_none_or(|tokens| tokens > MOST_TOKENS) {
            let allowed = format!("such that batch x length x accumulate is at most {MOST_TOKENS}");
            return wrong("accumulate", &allowed, &self.accumulate);
        }
        if self.steps == 0 {
            return wrong("steps", "at least 1", &self.steps);
        }
        if self.warmup >= self.steps {
            return wrong("warmup", &format!("below `steps`, {}", self.steps), &self.warmup);
        }
        let numbers =
            [("learning-rate", self.learning_rate), ("weight-decay", self.weight_decay), ("clip", self.clip)];
        for (name, found) in numbers {
            // They end up as fp32, where tiny ones would be 0 and huge ones infinite.
            let vanishes = found != 0.0 && found as f32 == 0.0;
            if !((found as f32).is_finite() && found >= 0.0) || vanishes {
                return wrong(name, "a number from 0 up that fp32 can hold", &found);
            }
        }
        Ok(self.schedule().check()?)
    }

    /// The learning rates.
    #[must_use]
    pub fn schedule(&self) -> Schedule {
        Schedule::Cosine {
            peak: self.learning_rate,
            warmup_steps: self.warmup,
            total_steps: self.steps,
            minimum_ratio: Schedule::MINIMUM_RATIO,
        }
    }

    /// `base` with what these options say.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub fn plan_options(&self, base: &PlanOptions) -> PlanOptions {
        let mut options = base.clone();
        options.adamw.weight_decay = self.weight_decay as f32;
        options.clip = (self.clip > 0.0).then_some(self.clip as f32);
        options
    }
}

/// A model in training.
pub struct Trainer<'a> {
    executor: &'a mut dyn Executor,
    shape: &'a Shape,
    options: TrainOptions,
    schedule: Schedule,
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
        let evaluation = executor.load(forward_step(shape, &plan_options, batch, length, Head::Loss))?;
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
            }
        }
        executor.run_phase(training, Phase::Prepare, MicroStep::First)?;
        Ok(Self {
            training_slots: Slots::find(executor, training)?,
            evaluation_slots: Slots::find(executor, evaluation)?,
            schedule: options.schedule(),
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
        let learning_rate = self.schedule.learning_rate(self.step);
        for (index, batch) in batches.iter().enumerate() {
            let micro = if index == 0 { MicroStep::First } else { MicroStep::Later };
            self.feed(self.training, self.training_slots, batch, n_counted)?;
            self.executor.run_phase(self.training, Phase::Forward, micro)?;
            self.executor.run_phase(self.training, Phase::Backward, micro)?;
        }
        let loss = self.scalar(self.training_slots.loss)?;
        if !loss.is_finite() {
            return Err(TrainError::Diverged { step: self.step + 1, loss, learning_rate });
        }
        let number = i32::try_from(self.step + 1).unwrap_or(i32::MAX);
        for (name, values) in
            [("learning_rate", Values::Float(&[learning_rate as f32])), ("step", Values::Int(&[number]))]
        {
            let buffer = find(self.executor, self.training, name)?;
            self.executor.write(self.training, buffer, values)?;
        }
        // The norm comes first: a gradient that is no number must not reach the weights.
        let norm = find(self.executor, self.training, "gradient_norm")?;
        let update = self.executor.plan(self.training).phase(Phase::Update);
        let steps = &self.executor.plan(self.training).steps[update.clone()];
        let n_for_norm = steps.iter().position(|step| step.writes.iter().any(|write| write.buffer == norm));
        let rest = update.start + n_for_norm.map_or(0, |index| index + 1);
        self.executor.run(self.training, update.start..rest, MicroStep::First)?;
        let gradient_norm = self.scalar(norm)?;
        if !gradient_norm.is_finite() {
            return Err(TrainError::Gradient { step: self.step + 1, gradient_norm, learning_rate });
        }
        self.executor.run(self.training, rest..update.end, MicroStep::First)?;
        self.step += 1;
        self.position = self.loader.position();
        self.tokens += batches.iter().map(|batch| batch.tokens.len() as u64).sum::<u64>();
        Ok(StepReport { step: self.step, tokens: self.tokens, loss, gradient_norm, learning_rate })
    }

    /// The mean loss over the validation cover, nats per token. It changes nothing that training depends on.
    ///
    /// # Errors
    /// When data or device fail, or the loss is no number.
    pub fn evaluate(&mut self) -> Result<f64, TrainError> {
        let n_targets = self.cover.n_targets();
        let mut loss = 0.0;
        for index in 0..self.cover.n_batches() {
            let batch = self.cover.read(index)?;
            self.feed(self.evaluation, self.evaluation_slots, &batch, n_targets)?;
            self.executor.run_phase(self.evaluation, Phase::Forward, MicroStep::First)?;
            let read = self.executor.read(self.evaluation, self.evaluation_slots.loss)?;
            loss += f64::from(read[0]);
        }
        if !loss.is_finite() {
            let learning_rate = self.schedule.learning_rate(self.step.saturating_sub(1));
            return Err(TrainError::Validation { step: self.step, loss, learning_rate });
        }
        Ok(loss)
    }

    /// Saves a checkpoint in the folder of the run. `options` is kept as it is, for whoever resumes.
    ///
    /// # Errors
    /// When the device or the disk fails, or a weight is no number; an earlier checkpoint is left whole.
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
        let (tensors, parameters) = (weights::tensors(self.shape), self.shape.parameters());
        let (executor, plan) = (&*self.executor, self.training);
        let saved = checkpoint::save(run, &progress, &tensors, &mut |kind, name, out| {
            let parameter = parameters.iter().find(|parameter| parameter.name == name);
            let parameter = parameter.ok_or_else(|| format!("the shape has no `{name}`"))?;
            let values = weights::read(executor, plan, kind, parameter)?;
            if !values.iter().all(|value| value.is_finite()) {
                return Err("it holds values that are no numbers: the learning rate may be too high".into());
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
