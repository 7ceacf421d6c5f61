//! A training run in a folder: steps, records, validations, checkpoints, a picture; until done or told to stop.
//!
//! In: a [`Trainer`], a folder, when to save and to validate. Out: `metrics.jsonl`, `loss.svg` and
//! checkpoints `step-NNNNNN/`. It knows no terminal: an [`Observer`] does.

mod launches;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::checkpoint::{self, CheckpointError};
use crate::metrics::{self, Metrics, MetricsError, Record};
use crate::plot::{Plot, PlotError};
use crate::trainer::{StepReport, TrainError, Trainer};
use launches::Launches;

/// When to validate, save and stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    /// Validate after every so many steps; 0 only at the end.
    pub eval_every: u64,
    /// Save after every so many steps; 0 only at the end.
    pub save_every: u64,
    /// Stop after so many steps of this call, as if told to.
    pub stop_after: Option<u64>,
    /// Checkpoints to keep.
    pub n_kept: usize,
    /// How far the device may be ahead of what is known of it.
    pub pace: Pace,
}

/// How steps are launched. It changes when their outcomes are known, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Steps that are launched together and waited for once.
    pub steps_per_launch: u64,
    /// Launches under way at most; with 1, the device waits while the host takes note of what it did.
    pub launches: usize,
}

impl Pace {
    /// Each step is waited for.
    pub const SINGLE: Self = Self { steps_per_launch: 1, launches: 1 };

    /// A device with memory of its own: it is never idle.
    pub const AHEAD: Self = Self { steps_per_launch: 1, launches: 2 };
}

/// Told what happens.
pub trait Observer {
    /// A step is done.
    fn step(&mut self, report: &StepReport, tokens_per_second: f64);
    /// So many batches of so many of a validation are done.
    fn validating(&mut self, done: usize, of: usize);
    /// The validation loss after a step, nats per token.
    fn validated(&mut self, step: u64, loss: f64);
    /// A checkpoint was saved.
    fn saved(&mut self, folder: &Path);
    /// The mean loss of a bigram model, to be drawn beside; asked whenever the picture is.
    fn bigram(&mut self) -> Option<f64>;
    /// Asked after every step: stop here, with what is under way?
    fn wants_stop(&self) -> bool;
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Steps done.
    pub step: u64,
    /// The last step's loss; none when there was no step to do.
    pub loss: Option<f64>,
    /// The last validation.
    pub validation_loss: Option<f64>,
    /// The newest checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// Did it end before its last step?
    pub stopped: bool,
    /// Tokens per second over the steps alone, without validations and saves.
    pub tokens_per_second: f64,
}

/// What can go wrong in a run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum RunError {
    #[error(transparent)]
    Train(#[from] TrainError),
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    #[error(transparent)]
    Plot(#[from] PlotError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("`{}` is gone: the run's folder was removed or renamed while it trained", .0.display())]
    Gone(PathBuf),
}

impl RunError {
    /// Did loss, gradient or weights stop being numbers?
    #[must_use]
    pub fn is_divergence(&self) -> bool {
        match self {
            Self::Train(TrainError::Diverged(_)) => true,
            Self::Train(TrainError::Checkpoint(error)) => matches!(error, CheckpointError::Tensor { .. }),
            _ => false,
        }
    }

    /// Are the weights those of the last whole step, so that they are worth keeping? So it is where the data or the
    /// record fails, and not where a device, a number or the checkpoint itself does.
    fn leaves_weights(&self) -> bool {
        use TrainError::{Corpus, Loader};
        matches!(self, Self::Train(Corpus(_) | Loader(_)) | Self::Metrics(_) | Self::Plot(_) | Self::Gone(_))
    }
}

/// Trains until the last step or until told to stop, then validates, saves and draws. `options` goes into every
/// checkpoint as it is.
///
/// # Errors
/// When a step, the disk or the picture fails. No checkpoint holds a weight that is no number. What was learned before
/// the data or the record failed is saved first, as far as the disk allows.
pub fn run(
    trainer: &mut Trainer<'_>,
    folder: &Path,
    rhythm: Rhythm,
    options: &serde_json::Value,
    title: &str,
    observer: &mut dyn Observer,
) -> Result<Summary, RunError> {
    let outcome = steps(trainer, folder, rhythm, options, title, observer);
    if outcome.as_ref().is_err_and(RunError::leaves_weights)
        && trainer.has_unsaved_steps()
        && let Ok(saved) = trainer.save(folder, options)
    {
        observer.saved(&saved);
    }
    outcome
}

fn steps(
    trainer: &mut Trainer<'_>,
    folder: &Path,
    rhythm: Rhythm,
    options: &serde_json::Value,
    title: &str,
    observer: &mut dyn Observer,
) -> Result<Summary, RunError> {
    let first = trainer.step_number();
    checkpoint::discard_after(folder, first)?;
    let metrics_path = folder.join("metrics.jsonl");
    let mut metrics = Metrics::resume(&metrics_path, first)?;
    let (started, mut busy) = (Instant::now(), 0.0);
    let mut summary = Summary {
        step: first,
        loss: None,
        validation_loss: None,
        checkpoint: None,
        stopped: false,
        tokens_per_second: 0.0,
    };
    let n_steps = trainer.options().steps;
    // A `wsd` run can be prolonged from here, so this checkpoint is kept.
    let stable = Some(trainer.options().stable_steps()).filter(|step| *step < n_steps);
    let tokens_per_step =
        (trainer.options().batch * trainer.options().length * trainer.options().accumulate) as f64;
    let stop = rhythm.stop_after.map(|n| first.saturating_add(n));
    let mut launches = Launches::new(rhythm, [Some(n_steps), stable, stop].into_iter().flatten().collect());
    let mut clock = Instant::now();
    while summary.step < n_steps && !summary.stopped {
        let n = launches.advance(trainer)?;
        let seconds = clock.elapsed().as_secs_f64() / n as f64;
        clock = Instant::now();
        for _ in 0..n {
            let report = trainer.finish()?;
            busy += seconds;
            summary.step = report.step;
            summary.loss = Some(report.loss);
            let done = report.step - first;
            summary.tokens_per_second = tokens_per_step * done as f64 / busy;
            observer.step(&report, tokens_per_step / seconds);
            let last = report.step == n_steps;
            launches.ends |= observer.wants_stop() || rhythm.stop_after == Some(done);
            // Steps that are under way are finished first.
            summary.stopped = !last && launches.ends && trainer.launched() == report.step;
            let due = |every: u64| every > 0 && report.step.is_multiple_of(every);
            // A run that is told to stop does not make its user wait for a validation.
            let validates = last || (!launches.ends && due(rhythm.eval_every));
            if validates {
                let loss = trainer.evaluate(&mut |done, of| observer.validating(done, of))?;
                summary.validation_loss = Some(loss);
                observer.validated(report.step, loss);
            }
            metrics.append(&Record {
                step: report.step,
                tokens: report.tokens,
                loss: report.loss,
                learning_rate: report.learning_rate,
                grad_norm: report.gradient_norm,
                tokens_per_second: tokens_per_step / seconds,
                validation_loss: validates.then_some(summary.validation_loss).flatten(),
                loss_scale: report.loss_scale,
                skipped_steps: report.skipped_steps,
                elapsed: started.elapsed().as_secs_f64(),
            })?;
            if last || summary.stopped || due(rhythm.save_every) || stable == Some(report.step) {
                if !metrics_path.exists() {
                    return Err(RunError::Gone(metrics_path));
                }
                let saved = trainer.save(folder, options)?;
                checkpoint::prune(folder, rhythm.n_kept, stable)?;
                observer.saved(&saved);
                summary.checkpoint = Some(saved);
            }
            if validates || summary.stopped {
                let records = metrics::read(&metrics_path)?;
                Plot { title, records: &records, bigram: observer.bigram() }
                    .save(&folder.join("loss.svg"))?;
            }
            if trainer.launched() == report.step {
                // What was done between two steps is no part of the next one.
                clock = Instant::now();
            }
        }
    }
    Ok(summary)
}
