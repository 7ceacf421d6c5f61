//! Reading a checkpoint.
//!
//! In: its folder. Out: its manifest and its tensors, one at a time, straight from the mapped file. Nothing in the
//! files is believed: sizes, headers, shapes and, on request, checksums are compared first.

use std::path::{Path, PathBuf};

use super::tensor_file::{MOMENTS, TensorFile, WEIGHTS};
use super::{CheckpointError, FileRecord, Kind, Manifest, TensorShape};

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
    /// Opens the checkpoint in `folder`. Only headers are read.
    pub fn open(folder: &Path) -> Result<Self, CheckpointError> {
        let manifest = Manifest::read(folder)?;
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
