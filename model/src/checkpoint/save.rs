//! Writing a checkpoint so that it appears whole or not at all.
//!
//! In: where the run stands and its tensors, one at a time. Out: the checkpoint's folder, on disk.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::folder::{is_taken, list, name, remove_leftovers, temporary_name};
use super::tensor_file::{self, MOMENTS, WEIGHTS};
use super::{CheckpointError, FORMAT, Kind, Manifest, Progress, TensorShape, manifest};
use crate::atomic_file::{sync_folder, write_synced};

/// Saves a checkpoint in the folder `run`, which is created where it is missing, and returns its own folder. `read` is
/// asked for each tensor of `tensors` by kind and name, one at a time: the weights in order, then the first moments,
/// then the second. Only one process may save in a run at a time.
pub fn save(
    run: &Path,
    progress: &Progress,
    tensors: &[TensorShape],
    read: &mut tensor_file::Read<'_>,
) -> Result<PathBuf, CheckpointError> {
    let mut names = HashSet::new();
    if let Some(tensor) = tensors.iter().find(|tensor| !names.insert(&tensor.name)) {
        return Err(CheckpointError::SameName(tensor.name.clone()));
    }
    let unwritable = |source| CheckpointError::Write { path: run.display().to_string(), source };
    fs::create_dir_all(run).map_err(unwritable)?;
    remove_leftovers(run);

    let same_step = list(run)?.into_iter().rev().find(|named| named.step == progress.step);
    let mut again = same_step.map_or(0, |named| named.again + 1);
    // A file may have the name.
    while is_taken(&run.join(name(progress.step, again))) {
        again += 1;
    }
    let name = name(progress.step, again);
    let (folder, temporary) = (run.join(&name), run.join(temporary_name(&name)));
    let written = fs::create_dir(&temporary)
        .map_err(unwritable)
        .and_then(|()| write_files(&temporary, progress, tensors, read))
        .and_then(|()| {
            sync_folder(&temporary).and_then(|()| fs::rename(&temporary, &folder)).map_err(unwritable)
        });
    if let Err(mut error) = written {
        let _ = fs::remove_dir_all(&temporary);
        if let CheckpointError::Write { path, .. } = &mut error {
            // The temporary name is gone already; that of the checkpoint says which step is not saved.
            *path = folder.display().to_string();
        }
        return Err(error);
    }
    sync_folder(run).map_err(unwritable)?;
    Ok(folder)
}

fn write_files(
    folder: &Path,
    progress: &Progress,
    tensors: &[TensorShape],
    read: &mut tensor_file::Read<'_>,
) -> Result<(), CheckpointError> {
    let stored = [(WEIGHTS, &[Kind::Weight][..]), (MOMENTS, &[Kind::FirstMoment, Kind::SecondMoment])];
    let mut files = BTreeMap::new();
    for (name, kinds) in stored {
        let tensors: Vec<(Kind, &TensorShape)> =
            kinds.iter().flat_map(|kind| tensors.iter().map(|tensor| (*kind, tensor))).collect();
        files.insert(name.to_owned(), tensor_file::write(&folder.join(name), &tensors, read)?);
    }
    let manifest = Manifest { format: FORMAT, progress: progress.clone(), files };
    let path = folder.join(manifest::FILE);
    write_synced(&path, |file| serde_json::to_writer_pretty(file, &manifest).map_err(io::Error::from))
        .map_err(|source| CheckpointError::Write { path: path.display().to_string(), source })
}
