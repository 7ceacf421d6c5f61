//! The checkpoints in a run's folder: their names, the newest whole one, and the removal of others.
//!
//! In: the run's folder. Out: paths and checkpoints. Names that begin with `.step-` and end in `.tmp` are leftovers of
//! a process that was killed while it wrote or removed one; nothing reads them. Names that end in `.damaged` are
//! checkpoints that could not be read when a run went on without them; they are left to the user.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Checkpoint, CheckpointError};
use crate::atomic_file::sync_folder;

/// The newest whole checkpoint of a run.
#[derive(Debug)]
pub struct Latest {
    /// The checkpoint; its checksums were compared.
    pub checkpoint: Checkpoint,
    /// What is wrong with those newer than it, newest first.
    pub damaged: Vec<CheckpointError>,
}

/// A checkpoint by its name. Ordered by age.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named {
    pub(super) step: u64,
    /// How many checkpoints of this step came before.
    pub(super) again: u64,
    pub(super) path: PathBuf,
}

/// The newest checkpoint in `run` that is whole, having read it to the end; none where there are no checkpoints.
/// Only damage is passed over: a newer one of another format, or one that the system does not let us read, is an
/// error. Changes nothing, so that it may be called while the run goes on.
pub fn latest(run: &Path) -> Result<Option<Latest>, CheckpointError> {
    let mut damaged = Vec::new();
    for named in list(run)?.iter().rev() {
        match open_whole(&named.path) {
            Ok(checkpoint) => return Ok(Some(Latest { checkpoint, damaged })),
            Err(error) if error.is_damage() => damaged.push(error),
            Err(error) => return Err(error),
        }
    }
    if damaged.is_empty() {
        return Ok(None);
    }
    let (n, newest) = (damaged.len(), Box::new(damaged.swap_remove(0)));
    Err(CheckpointError::AllDamaged { n, run: run.display().to_string(), newest })
}

/// Removes all checkpoints in `run` but those of the `n_kept` highest steps and of the step `also`, and of each step all
/// but the newest.
pub fn prune(run: &Path, n_kept: usize, also: Option<u64>) -> Result<(), CheckpointError> {
    let mut kept: Vec<u64> = Vec::new();
    for named in list(run)?.into_iter().rev() {
        let is_wanted = kept.len() < n_kept || also == Some(named.step);
        if is_wanted && !kept.contains(&named.step) {
            kept.push(named.step);
        } else {
            remove(run, &named)?;
        }
    }
    Ok(())
}

/// Removes the checkpoints in `run` past `step`: those of a course that a run resumed at `step` abandons, which would
/// otherwise pass for its latest. Those that cannot be read are renamed to `NAME.damaged` instead.
pub fn discard_after(run: &Path, step: u64) -> Result<(), CheckpointError> {
    for named in list(run)?.iter().filter(|named| named.step > step) {
        if open_whole(&named.path).is_ok() {
            remove(run, named)?;
        } else {
            set_aside(run, named)?;
        }
    }
    Ok(())
}

/// The checkpoint in `folder`, read to the end.
fn open_whole(folder: &Path) -> Result<Checkpoint, CheckpointError> {
    let checkpoint = Checkpoint::open(folder)?;
    checkpoint.verify()?;
    Ok(checkpoint)
}

/// Whether anything, a broken link included, has the name `path`.
pub(super) fn is_taken(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// The checkpoints in `run`, oldest first; none where it does not exist. A checkpoint is a folder: a file that has the
/// name of one is not.
pub(super) fn list(run: &Path) -> Result<Vec<Named>, CheckpointError> {
    let unreadable = |source| CheckpointError::Read { path: run.display().to_string(), source };
    let entries = match fs::read_dir(run) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        let Some((step, again)) = parse_path(&path) else { continue };
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => found.push(Named { step, again, path }),
            Ok(_) => {}
            // It was pruned meanwhile, or is a link to nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(CheckpointError::Read { path: path.display().to_string(), source }),
        }
    }
    found.sort();
    Ok(found)
}

/// The name of checkpoint number `again` of `step`.
pub(super) fn name(step: u64, again: u64) -> String {
    if again == 0 { format!("step-{step:06}") } else { format!("step-{step:06}.{again}") }
}

/// The temporary name that `name` has while it is written or removed.
pub(super) fn temporary_name(name: &str) -> String {
    format!(".{name}.{}.tmp", std::process::id())
}

/// Removes what killed processes left behind in `run`, as far as that can be done. Only for whoever writes the run.
pub(super) fn remove_leftovers(run: &Path) {
    for entry in fs::read_dir(run).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(b".step-") && name.ends_with(b".tmp") {
            let path = entry.path();
            // What stays is in nobody's way: nothing reads it.
            let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
        }
    }
}

/// The step in the name of the checkpoint's folder at `path`, and its number among those of this step.
pub(super) fn parse_path(path: &Path) -> Option<(u64, u64)> {
    parse_name(path.file_name()?.to_str()?)
}

fn parse_name(name: &str) -> Option<(u64, u64)> {
    let number = name.strip_prefix("step-")?;
    let (step, again) = number.split_once('.').unwrap_or((number, "0"));
    let parsed = (step.parse().ok()?, again.parse().ok()?);
    (self::name(parsed.0, parsed.1) == name).then_some(parsed)
}

/// Removes a checkpoint in such a way that it never looks like a damaged one.
fn remove(run: &Path, named: &Named) -> Result<(), CheckpointError> {
    let temporary = run.join(temporary_name(&name(named.step, named.again)));
    fs::rename(&named.path, &temporary)
        .and_then(|()| sync_folder(run))
        .and_then(|()| fs::remove_dir_all(&temporary))
        .map_err(|source| CheckpointError::Write { path: named.path.display().to_string(), source })
}

/// Renames a checkpoint that cannot be read, so that it no longer passes for one.
fn set_aside(run: &Path, named: &Named) -> Result<(), CheckpointError> {
    let name = name(named.step, named.again);
    let mut path = run.join(format!("{name}.damaged"));
    for again in 1.. {
        if !is_taken(&path) {
            break;
        }
        path = run.join(format!("{name}.damaged.{again}"));
    }
    fs::rename(&named.path, &path)
        .and_then(|()| sync_folder(run))
        .map_err(|source| CheckpointError::Write { path: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_no_others() {
        for (step, again) in [(0, 0), (100, 0), (999_999, 3), (1_000_000, 0), (12_345_678, 12)] {
            assert_eq!(parse_name(&name(step, again)), Some((step, again)));
        }
        let others = [
            "step-1",
            "step-000001.0",
            "step-000001.x",
            "step-",
            "steps",
            ".step-000001.9.tmp",
            "step-000001.damaged",
            "step-000001.1.damaged",
            "step-000001.damaged.1",
            "step-+00001",
        ];
        for other in others {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }
}
