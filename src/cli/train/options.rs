//! What a run is to do: flags (which won over a file) over the resumed checkpoint over defaults.

use super::batch::Batch;
use super::data::{Data, absolute};
use super::flags::Flags;
use crate::cli::plan_flags::PlanFlags;
use crate::cli::shape::Named;
use kernwright_model::checkpoint::Checkpoint;
use kernwright_model::schedule::{FORMS, Form, Schedule};
use kernwright_model::split::Split;
use kernwright_model::trainer::{Asked, TrainError, TrainOptions};
use kernwright_plan::shape::Shape;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::sync::Arc;

/// Everything about a run that its checkpoints remember.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(super) model: String,
    pub(super) data: Data,
    pub(super) train: TrainOptions,
    pub(super) eval_every: u64,
    pub(super) save_every: u64,
    #[serde(default)]
    pub(super) plan: PlanFlags,
}

impl Settings {
    /// Flags over the checkpoint over defaults.
    pub(super) fn resolve(
        flags: &Flags,
        model: &Named,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<Self, Box<dyn Error>> {
        let progress = checkpoint.map(|checkpoint| &checkpoint.manifest.progress);
        let before: Option<Self> = match progress {
            Some(progress) => Some(
                serde_json::from_value(progress.options.clone())
                    .map_err(|error| format!("the checkpoint's options cannot be read: {error}"))?,
            ),
            None => None,
        };
        let old = before.as_ref();
        let train = old.map(|old| &old.train);
        let steps = flags.steps.or(train.map(|t| t.steps)).unwrap_or(500);
        // With one step or two there is no room for a rise.
        let warmup = (steps / 10).clamp(u64::from(steps > 2), 100);
        let mut settings = Self {
            model: model.name.clone(),
            data: match (&flags.data, old) {
                // A checkpoint of before paths were kept from the root on has one from the current folder.
                (None, Some(old)) => Data { path: old.data.path.clone().map(absolute), ..old.data.clone() },
                // The same data may have moved.
                (Some(path), Some(old)) => Data { path: Some(absolute(path.clone())), ..old.data.clone() },
                (path, None) => Data::unopened(path.clone()),
            },
            train: TrainOptions {
                // One that is to be found out is taken for the smallest until then.
                batch: flags.batch.map(Batch::number).or(train.map(|t| t.batch)).unwrap_or(8),
                length: flags.length.or(train.map(|t| t.length)).unwrap_or(model.shape.context.min(256)),
                accumulate: flags.accumulate.or(train.map(|t| t.accumulate)).unwrap_or(1),
                steps,
                learning_rate: flags.learning_rate.or(train.map(|t| t.learning_rate)).unwrap_or(3e-3),
                warmup: flags.warmup.or(train.map(|t| t.warmup)).unwrap_or(warmup),
                schedule: flags.schedule.or(train.map(|t| t.schedule)).unwrap_or_default(),
                final_rate: flags.final_rate.or(train.map(|t| t.final_rate)).unwrap_or(Schedule::FINAL_RATE),
                decay_fraction: flags
                    .decay_fraction
                    .or(train.map(|t| t.decay_fraction))
                    .unwrap_or(Schedule::DECAY_FRACTION),
                weight_decay: flags.weight_decay.or(train.map(|t| t.weight_decay)).unwrap_or(0.1),
                clip: flags.clip.or(train.map(|t| t.clip)).unwrap_or(1.0),
                z_loss: flags.z_loss.or(train.map(|t| t.z_loss)).unwrap_or(0.0),
                seed: flags.seed.or(train.map(|t| t.seed)).unwrap_or(0),
                eval_batches: flags.eval_batches.or(train.map(|t| t.eval_batches)).unwrap_or(32),
                history: Vec::new(),
            },
            eval_every: flags.eval_every.or(old.map(|old| old.eval_every)).unwrap_or(100),
            save_every: flags.save_every.or(old.map(|old| old.save_every)).unwrap_or(100),
            plan: flags.plan.clone().over(old.map(|old| old.plan.clone()).unwrap_or_default(), |_| {}),
        };
        if let (Some(old), Some(progress)) = (old, progress) {
            settings.check_resumable(old)?;
            let asked = Asked { steps: flags.steps, warmup: flags.warmup, eval_batches: flags.eval_batches };
            settings.train = settings.train.going_on(&old.train, progress.step, progress.tokens, asked);
            settings.check_decay(old, progress.step)?;
        }
        Ok(settings)
    }

    /// A setting that the schedule does not use would be ignored silently.
    pub(super) fn check_schedule(&self, flags: &Flags) -> Result<(), TrainError> {
        let schedule = self.train.schedule;
        for (name, given) in [("final-rate", flags.final_rate), ("decay-fraction", flags.decay_fraction)] {
            if let Some(found) = given.filter(|_| !schedule.uses(name)) {
                let users = FORMS.iter().filter(|(form, ..)| form.uses(name));
                let users: Vec<_> = users.map(|(_, name, _)| format!("`{name}`")).collect();
                let (schedule, users) = (schedule.name(), users.join(", "));
                let allowed = format!("left out with schedule `{schedule}`: it is for {users}");
                return Err(TrainError::Option { name, allowed, found: found.to_string() });
            }
        }
        Ok(())
    }

    /// The place in the data means the same only for the same length and seed.
    fn check_resumable(&self, old: &Self) -> Result<(), Box<dyn Error>> {
        let fixed = [
            ("--length", self.train.length as u64, old.train.length as u64),
            ("--seed", self.train.seed, old.train.seed),
        ];
        for (flag, now, before) in fixed {
            if now != before {
                let message = format!(
                    "a resumed run keeps its `{flag}`, by which the data is cut and ordered: it is `{before}`, \
                     found `{now}`"
                );
                return Err(message.into());
            }
        }
        Ok(())
    }

    /// A wsd run is prolonged from its stable part: from its decay on, the rate would jump back up.
    fn check_decay(&self, old: &Self, step: u64) -> Result<(), Box<dyn Error>> {
        let (before, now) = (old.train.schedule(), self.train.schedule());
        let stable = old.train.stable_steps();
        if now.form != Form::Wsd || before.form != Form::Wsd || step <= stable || now.total <= before.total {
            return Ok(());
        }
        let message = format!(
            "a `wsd` run is prolonged from its stable part, which ended with step `{stable}`, found step `{step}`: \
             branch off with --resume RUN/step-{stable:06} --out NEW, or choose another --schedule"
        );
        Err(message.into())
    }

    /// Opens the corpus, counts its tokens and holds a part out.
    pub(super) fn open_data(&mut self, shape: &Shape) -> Result<Split, Box<dyn Error>> {
        let tokens = self.data.open(shape.vocab)?;
        Ok(Split::last(Arc::new(tokens), Split::FRACTION, self.train.length)?)
    }
}
