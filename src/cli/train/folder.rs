//! The folder of a run: a new one is never an old one.

use super::resolved;
use crate::terminal;
use kernwright_model::checkpoint::{self, Checkpoint};
use std::error::Error;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where runs go unless told otherwise.
const RUNS: &str = "runs";

/// The folder of a run.
pub(super) struct Destination {
    pub(super) folder: PathBuf,
    /// Held while the run goes on; the system lets go of it however the program ends.
    _lock: File,
}

/// The file that is locked while a program trains in a folder.
const LOCK: &str = "lock";

impl Destination {
    /// A folder that is there, for this program alone.
    pub(super) fn of(folder: PathBuf) -> Result<Self, Box<dyn Error>> {
        let shown = folder.display();
        let unwritable = |error| format!("cannot write in `{shown}`: {error}");
        let lock = File::options().append(true).create(true).open(folder.join(LOCK)).map_err(unwritable)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(format!("another program is training in `{shown}`").into()),
            Err(TryLockError::Error(error)) => Err(unwritable(error).into()),
        }
    }

    /// Makes the folder: `out`, which must not exist or be empty; or the first free name below `runs`.
    pub(super) fn create(out: Option<&Path>, model: &str) -> Result<Self, Box<dyn Error>> {
        let make = |folder: &Path| {
            if let Some(parent) = folder.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::create_dir(folder)
        };
        let unwritable = |folder: &Path, error| format!("cannot create `{}`: {error}", folder.display());
        if let Some(folder) = out {
            check_new(folder)?;
            return match make(folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    Err(unwritable(folder, error).into())
                }
                _ => Self::of(folder.to_owned()),
            };
        }
        for number in 1.. {
            let name = if number == 1 { model.to_owned() } else { format!("{model}-{number}") };
            let folder = Path::new(RUNS).join(name);
            match make(&folder) {
                Ok(()) => return Self::of(folder),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && Path::new(RUNS).is_dir() => {}
                Err(error) => return Err(unwritable(&folder, error).into()),
            }
        }
        Err("no free name for the run".into())
    }

    /// Copies the record of the run that this one branches off from; it is cut at the checkpoint's step later.
    pub(super) fn take_record(&self, record: &Path) -> Result<(), Box<dyn Error>> {
        let to = self.folder.join("metrics.jsonl");
        match fs::copy(record, &to) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(format!("cannot copy `{}` to `{}`: {error}", record.display(), to.display()).into())
            }
            _ => Ok(()),
        }
    }

    /// After a failure: is there anything to go on from?
    pub(super) fn say_what_is_left(&self, diverged: bool) {
        if let Ok(Some(latest)) = checkpoint::latest(&self.folder) {
            let (step, folder) = (latest.checkpoint.manifest.progress.step, self.folder.display());
            let lower = if diverged { " --learning-rate LOWER" } else { "" };
            let program = crate::cli::program();
            terminal::note(&format!(
                "the checkpoint of step {step} is whole: {program} train --resume {folder}{lower}"
            ));
        }
    }
}

/// A new run may begin in a folder that does not exist, is empty, or holds a run that ended before its first
/// checkpoint and so has nothing to lose.
pub(super) fn check_new(folder: &Path) -> Result<(), Box<dyn Error>> {
    let shown = folder.display();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("`{shown}` cannot be the folder of a run: {error}").into()),
    };
    let is_ours = |name: &str| {
        let is_temporary =
            [".step-", ".config.toml.", ".metrics.jsonl."].iter().any(|start| name.starts_with(start));
        ["metrics.jsonl", LOCK, resolved::FILE].contains(&name) || (is_temporary && name.ends_with(".tmp"))
    };
    let names = entries.filter_map(Result::ok).map(|entry| entry.file_name());
    if names.into_iter().all(|name| name.to_str().is_some_and(is_ours)) {
        return Ok(());
    }
    Err(format!("`{shown}` exists: give another --out, or go on with --resume {shown}").into())
}

/// What a resumed run goes on from.
pub(super) enum Resumed {
    /// The newest checkpoint of a run, in its folder.
    Run(Destination),
    /// A checkpoint, to go on from in a new folder; here is the record of its run.
    Branch(PathBuf),
}

/// The checkpoint in `folder`, to branch off from: its run stays as it is.
pub(super) fn branch(folder: &Path) -> Result<(Resumed, Checkpoint), Box<dyn Error>> {
    let checkpoint = Checkpoint::open(folder)?;
    checkpoint.verify()?;
    let run = folder.canonicalize()?.parent().map(Path::to_owned).unwrap_or_default();
    Ok((Resumed::Branch(run.join("metrics.jsonl")), checkpoint))
}

/// Is it the folder of one checkpoint, rather than of a run?
pub(super) fn is_checkpoint(folder: &Path) -> bool {
    folder.join("checkpoint.json").exists()
}

/// The run to go on with and its newest whole checkpoint: in `run`, or in the newest folder below `runs`. The folder is
/// taken first: nobody else can add to the run between the reading of its checkpoint and the going on.
pub(super) fn resumed(run: Option<&Path>) -> Result<(Resumed, Checkpoint), Box<dyn Error>> {
    let folder = match run {
        Some(folder) => folder.to_owned(),
        None => newest().ok_or("there is no run to resume: `runs` has none, and --resume names none")?,
    };
    // The folder of one checkpoint stands for its run only when it is the newest there.
    if is_checkpoint(&folder) {
        let (run, folder) = (folder.parent().unwrap_or(Path::new(".")).display(), folder.display());
        return Err(format!(
            "`{folder}` is a checkpoint: give its run, --resume {run}, or --out DIR for a new run that begins there"
        )
        .into());
    }
    let nothing = format!("there is no checkpoint in `{}` to resume from", folder.display());
    if !folder.is_dir() {
        return Err(nothing.into());
    }
    let destination = Destination::of(folder)?;
    let latest = checkpoint::latest(&destination.folder)?.ok_or(nothing)?;
    for damaged in &latest.damaged {
        terminal::note(&format!("passed over a damaged checkpoint: {damaged}"));
    }
    Ok((Resumed::Run(destination), latest.checkpoint))
}

fn newest() -> Option<PathBuf> {
    let entries = fs::read_dir(RUNS).ok()?.filter_map(Result::ok);
    let touched = entries.filter_map(|entry| {
        let path = entry.path();
        let modified: SystemTime = fs::metadata(path.join("metrics.jsonl")).ok()?.modified().ok()?;
        Some((modified, path))
    });
    touched.max().map(|(_, path)| path)
}
