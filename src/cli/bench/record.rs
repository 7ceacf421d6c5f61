//! What another program needs to do the same steps and compare: the first weights, the batches, each step's loss.
//!
//! In: a model in training. Out: a folder with a checkpoint of step 0 (`step-000000/weights.safetensors`), `batches.i32`
//! (each batch's tokens and the one behind the last, as 32-bit little-endian numbers) and `losses.json`.

use super::training::{Data, Training};
use kernwright_model::batches::Position;
use kernwright_model::checkpoint::{self, Progress};
use kernwright_model::random::Random;
use kernwright_model::weights;
use kernwright_plan::executor::Fetch;
use kernwright_plan::shape::Shape;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder that is being written.
pub(super) struct Record {
    folder: PathBuf,
    losses: Vec<Fetch>,
}

impl Record {
    /// Writes weights and batches; no step may have been done.
    pub(super) fn create(
        folder: &Path,
        training: &Training,
        shape: &Shape,
        data: Data,
    ) -> Result<Self, Box<dyn Error>> {
        let shown = folder.display();
        if folder.exists() {
            return Err(format!("`--record` must be a new folder, found `{shown}`").into());
        }
        let written = Self::write(folder, training, shape, data);
        // A folder that was begun would be in the way of the next try.
        written.inspect_err(|_| drop(fs::remove_dir_all(folder)))?;
        Ok(Self { folder: folder.to_owned(), losses: Vec::new() })
    }

    fn write(folder: &Path, training: &Training, shape: &Shape, data: Data) -> Result<(), Box<dyn Error>> {
        let progress = Progress {
            program: concat!("kernwright ", env!("CARGO_PKG_VERSION")).to_owned(),
            shape: shape.text(),
            step: 0,
            tokens: 0,
            seed: data.seed,
            random: Random::new(data.seed),
            position: Position::default(),
            options: serde_json::Value::Null,
            executor: serde_json::Value::Null,
        };
        let (tensors, parameters) = (weights::tensors(shape), shape.parameters());
        checkpoint::save(folder, &progress, &tensors, &mut |kind, name, out| {
            let parameter = parameters.iter().find(|parameter| parameter.name == name);
            let parameter = parameter.ok_or_else(|| format!("the shape has no `{name}`"))?;
            out.copy_from_slice(&weights::read(&*training.executor, training.plan, kind, parameter)?);
            Ok(())
        })?;
        let bytes: Vec<u8> = training
            .batches()
            .iter()
            .flat_map(|batch| &batch.text)
            .flat_map(|token| token.to_le_bytes())
            .collect();
        write(&folder.join("batches.i32"), &bytes)
    }

    /// A step's loss, which is on its way.
    pub(super) fn add(&mut self, loss: Fetch) {
        self.losses.push(loss);
    }

    /// Writes the losses, that of the first step in front.
    pub(super) fn finish(self, training: &mut Training, first: f32) -> Result<(), Box<dyn Error>> {
        let rest = self.losses.into_iter().map(|loss| training.loss_of(loss));
        let losses = std::iter::once(Ok(first)).chain(rest).collect::<Result<Vec<_>, _>>()?;
        write(&self.folder.join("losses.json"), &serde_json::to_vec(&losses)?)
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    fs::write(path, bytes).map_err(|error| format!("cannot write `{}`: {error}", path.display()).into())
}
