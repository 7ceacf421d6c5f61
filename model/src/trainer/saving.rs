//! A trainer's checkpoints.
//!
//! In: a trainer between two steps. Out: a checkpoint of exactly that moment, or an error that says why its weights are
//! of no use.

use std::path::{Path, PathBuf};

use super::{TrainError, Trainer, state};
use crate::checkpoint::{self, Kind, Progress};
use crate::weights;

impl Trainer<'_> {
    /// Saves a checkpoint in the folder of the run. `options` is kept as it is, for whoever resumes. What was launched
    /// is finished first, unreported, and is in it.
    ///
    /// # Errors
    /// When the device or the disk fails, or the weights are of no use: one is no number or too large to be squared, or
    /// they give no finite loss on held-out text. An earlier checkpoint is left whole.
    pub fn save(&mut self, run: &Path, options: &serde_json::Value) -> Result<PathBuf, TrainError> {
        self.land()?;
        let progress = Progress {
            program: concat!("kernwright ", env!("CARGO_PKG_VERSION")).to_owned(),
            shape: self.shape.text(),
            step: self.step,
            tokens: self.tokens,
            seed: self.options.seed,
            random: self.random,
            position: self.position,
            options: options.clone(),
            executor: state::read(&*self.executor, self.training)?,
        };
        if self.evaluated != Some(self.step) {
            // Data that cannot be read is no reason to lose the weights.
            if let Err(error @ TrainError::Diverged(_)) = self.evaluate_one() {
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
}
