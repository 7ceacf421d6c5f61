//! Reading a checkpoint.
//!
//! In: its folder. Out: its manifest and its tensors, one at a time, straight from the file. Nothing in the
//! files is believed: sizes, headers, shapes and, on request, checksums are compared first.

use std::path::{Path, PathBuf};

use super::folder::parse_path;
use super::tensor_file::{MOMENTS, TensorFile, WEIGHTS};
use super::{CheckpointError, FileRecord, Kind, Manifest, TensorShape};
use crate::message::one_line;

/// A checkpoint whose sizes and headers are sound.
#[derive(Debug)]
pub struct Checkpoint {
    /// Its folder.
    pub folder: PathBuf,
    /// Where the run stood.
    pub manifest: Manifest,
    weights: TensorFile,
    moments: TensorFile,
}

impl Checkpoint {
    /// Opens the checkpoint in `folder`. Only headers are read. A folder with the name of a step must be of that step;
    /// it may have any other name.
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        let manifest = Manifest::read(folder)?;
        let found = manifest.progress.step;
        if let Some((said, _)) = parse_path(folder).filter(|(said, _)| *said != found) {
            return Err(CheckpointError::Step { path: folder.display().to_string(), said, found });
        }
        let open = |name| TensorFile::open(&folder.join(name), record(folder, &manifest, name)?);
        let (weights, moments) = (open(WEIGHTS)?, open(MOMENTS)?);
        Ok(Self { folder: folder.to_owned(), manifest, weights, moments })
    }

    /// Reads all of it and compares the checksums.
    pub fn verify(&self) -> Result<(), CheckpointError> {
        self.weights.verify(record(&self.folder, &self.manifest, WEIGHTS)?)?;
        self.moments.verify(record(&self.folder, &self.manifest, MOMENTS)?)
    }

    /// The weights in it, in the order they were saved.
    #[must_use]
    pub fn weights(&self) -> Vec<TensorShape> {
        self.weights.tensors()
    }

    /// Whether the weights are exactly `expected`, in any order: no other name, no other shape.
    ///
    /// # Errors
    /// The first difference.
    pub fn check_tensors(&self, expected: &[TensorShape]) -> Result<(), CheckpointError> {
        let path = || self.folder.join(WEIGHTS).display().to_string();
        let found = self.weights();
        for tensor in expected {
            let name = one_line(&tensor.name);
            match found.iter().find(|found| found.name == tensor.name) {
                None => return Err(CheckpointError::Missing { name, path: path() }),
                Some(found) if found.shape != tensor.shape => {
                    let (allowed, found) = (format!("`{:?}`", tensor.shape), format!("`{:?}`", found.shape));
                    return Err(CheckpointError::TensorShape { name, allowed, found, path: path() });
                }
                Some(_) => {}
            }
        }
        match found.into_iter().find(|found| expected.iter().all(|tensor| tensor.name != found.name)) {
            Some(tensor) => Err(CheckpointError::Extra { name: one_line(tensor.name), path: path() }),
            None => Ok(()),
        }
    }

    /// Copies what is stored of `kind` for the weight `tensor` to `out`. Panics when `out` has another length.
    pub fn read(&self, kind: Kind, tensor: &TensorShape, out: &mut [f32]) -> Result<(), CheckpointError> {
        let file = if kind == Kind::Weight { &self.weights } else { &self.moments };
        file.read(&kind.stored_name(&tensor.name), &tensor.shape, out)
    }
}

fn record<'a>(folder: &Path, manifest: &'a Manifest, name: &str) -> Result<&'a FileRecord, CheckpointError> {
    let unlisted = || CheckpointError::Unlisted { path: folder.join(name).display().to_string() };
    manifest.files.get(name).ok_or_else(unlisted)
}
