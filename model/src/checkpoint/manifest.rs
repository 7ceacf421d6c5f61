//! `checkpoint.json`: where the run stands, and what the files beside it must be.
//!
//! In: a [`Progress`], sizes and checksums. Out: JSON, and back.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{CheckpointError, Progress};
use crate::message::one_line;

/// The format that is written, and the only one that is read.
pub const FORMAT: u32 = 1;

/// The name of the file.
pub(super) const FILE: &str = "checkpoint.json";

/// The content of `checkpoint.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of this format.
    pub format: u32,
    /// Where the run stands.
    pub progress: Progress,
    /// The files of tensors, by name.
    pub files: BTreeMap<String, FileRecord>,
}

/// What a file must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileRecord {
    /// Its size.
    pub bytes: u64,
    /// Its XXH64 checksum, 16 hexadecimal digits.
    pub xxh64: String,
}

impl Manifest {
    /// Reads the manifest of the checkpoint in `folder`.
    pub fn read(folder: &Path) -> Result<Self, CheckpointError> {
        /// What every format has, so that another one is named as such rather than by its first strange field.
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }

        let path = folder.join(FILE);
        let name = || path.display().to_string();
        let text = fs::read(&path).map_err(|source| CheckpointError::Read { path: name(), source })?;
        let json = |error: serde_json::Error| CheckpointError::Json { path: name(), reason: one_line(error) };
        let version: Version = serde_json::from_slice(&text).map_err(json)?;
        if version.format != FORMAT {
            return Err(CheckpointError::Format { path: name(), allowed: FORMAT, found: version.format });
        }
        serde_json::from_slice(&text).map_err(json)
    }
}
