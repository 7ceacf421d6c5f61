//! Checkpoints: everything that a run needs to go on as if it had not stopped.
//!
//! In: the tensors of a run, one at a time, and its [`Progress`]. Out: one folder per checkpoint in the run's folder,
//! `step-000100`, that holds `weights.safetensors` (plain names, readable by other tools), `moments.safetensors`
//! (`m.NAME` and `v.NAME`) and `checkpoint.json`. It knows nothing of models or optimisers.
//!
//! A checkpoint is written under a temporary name, synced and renamed, so that a run that is killed at any moment
//! leaves the one before whole. A later checkpoint of the same step is called `step-000100.1`.

mod folder;
mod manifest;
mod open;
mod save;
mod shape_difference;
mod tensor_file;

use std::io;

use serde::{Deserialize, Serialize};

use crate::batches::Position;
use crate::random::Random;

pub use folder::{Latest, discard_after, latest, prune};
pub use manifest::{FORMAT, FileRecord, Manifest};
pub use open::Checkpoint;
pub use save::save;
pub use shape_difference::check_shape;

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Name and version of the program that writes.
    pub program: String,
    /// The model's shape, as lines of `path = value`.
    pub shape: String,
    /// Steps done.
    pub step: u64,
    /// Tokens trained on.
    pub tokens: u64,
    /// The run's seed.
    pub seed: u64,
    /// The run's random stream.
    pub random: Random,
    /// The next place in the corpus.
    pub position: Position,
    /// The options of the run, resolved.
    pub options: serde_json::Value,
    /// What the executor wants back to repeat its bits: chosen algorithms, loss scale.
    pub executor: serde_json::Value,
}

/// The name and shape of a tensor of `f32`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorShape {
    /// Its name, unique among the weights.
    pub name: String,
    /// Its dimensions, outermost first.
    pub shape: Vec<usize>,
}

impl TensorShape {
    /// Numbers in the tensor.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the tensor has no numbers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What is stored for each weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The weight itself.
    Weight,
    /// The running mean of its gradient.
    FirstMoment,
    /// The running mean of its gradient's square.
    SecondMoment,
}

/// Why a checkpoint cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CheckpointError {
    #[error("cannot write the checkpoint `{path}`")]
    Write { path: String, source: io::Error },
    #[error("cannot read `{path}`")]
    Read { path: String, source: io::Error },
    #[error("cannot take `{name}` from the device to save it")]
    Tensor { name: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("each tensor of a checkpoint must have its own name, found `{0}` twice")]
    SameName(String),
    #[error("`{path}` must be the JSON of a checkpoint: {reason}")]
    Json { path: String, reason: String },
    #[error("`{path}` must be of format `{allowed}`, found `{found}`")]
    Format { path: String, allowed: u32, found: u32 },
    #[error(
        "`{path}` must be a safetensors file, found a zip archive, as `torch.save` writes: write it with \
         `safetensors.torch.save_file`"
    )]
    Zip { path: String },
    #[error(
        "`{path}` must begin with the length of its header, at most `{allowed}`, found `{found}`: it is no \
         safetensors file, or damaged"
    )]
    HeaderLength { path: String, allowed: u64, found: u64 },
    #[error("the header of `{path}` must be that of a safetensors file: {reason}")]
    Header { path: String, reason: String },
    #[error("the tensors of `{path}` must have the `{said}` bytes that its header says, found `{found}`")]
    TensorBytes { path: String, said: u64, found: u64 },
    #[error("`{path}` must not change while it is read, but has become shorter")]
    Shrunk { path: String },
    #[error("`{path}` must have `{said}` bytes as its checkpoint.json says, found `{found}`")]
    Size { path: String, said: u64, found: u64 },
    #[error(
        "`{path}` must have the checksum `{said}` of its checkpoint.json, found `{found}`: it is damaged"
    )]
    Checksum { path: String, said: String, found: String },
    #[error("`{path}` has no entry in its checkpoint.json")]
    Unlisted { path: String },
    #[error("the checkpoint must have the tensor `{name}`, not found in `{path}`")]
    Missing { name: String, path: String },
    #[error("the checkpoint must have no tensor that the model lacks, found `{name}` in `{path}`")]
    Extra { name: String, path: String },
    #[error("the step in `{path}` must be `{said}` as the folder's name says, found `{found}`")]
    Step { path: String, said: u64, found: u64 },
    #[error("`{name}` must be {allowed}, found {found} in `{path}`")]
    TensorShape { name: String, allowed: String, found: String, path: String },
    #[error("the checkpoint is of another model: {0}")]
    Shape(String),
    #[error("none of the `{n}` checkpoints in `{run}` is whole")]
    AllDamaged {
        n: usize,
        run: String,
        #[source]
        newest: Box<CheckpointError>,
    },
}

impl CheckpointError {
    /// Whether the checkpoint's own content is at fault, so that it will never be read; another format or a disk that
    /// fails is not damage.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Checksum { .. }
            | Self::Size { .. }
            | Self::Json { .. }
            | Self::Zip { .. }
            | Self::HeaderLength { .. }
            | Self::Header { .. }
            | Self::TensorBytes { .. }
            | Self::Shrunk { .. }
            | Self::Unlisted { .. }
            | Self::Missing { .. }
            | Self::Step { .. }
            | Self::TensorShape { .. } => true,
            Self::Read { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }
}
