//! The folder of a run: a new one is never an old one.

use super::resolved;
use crate::cli::obstacle::cannot_create;
use crate::cli::shell;
use crate::terminal;
use kernwright_model::checkpoint::{self, Checkpoint};
use std::error::Error;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where runs go unless told otherwise.
const RUNS: &str = "runs";

/// Signs of a folder's name: every file system has room for so many.
const MOST_SIGNS: usize = 60;

/// The folder of a run.
pub(super) struct Destination {
    pub(super) folder: PathBuf,
    /// Held while the run goes on; the system lets go of it however the program ends.
    _lock: File,
}

/// The file that is locked while a program trains in a folder.
const LOCK: &str = "lock";

/// The record of a run.
const RECORD: &str = "metrics.jsonl";

/// What a run writes besides its checkpoints.
const FILES: [&str; 4] = [RECORD, "loss.svg", resolved::FILE, resolved::SHAPE];

impl Destination {
    /// A folder that is there, for this program alone.
    pub(super) fn of(folder: PathBuf) -> Result<Self, Box<dyn Error>> {
        let shown = folder.display();
        let unwritable = |error| format!("cannot write in `{shown}`: {error}");
        let lock = File::options().append(true).create(true).open(folder.join(LOCK)).map_err(unwritable)?;
        match lock.try_lock() {
            Ok(()) => {
                remove_leftovers(&folder);
                Ok(Self { folder, _lock: lock })
            }
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
        if let Some(folder) = out {
            check_new(folder)?;
            if let Err(error) = make(folder)
                && !folder.is_dir()
            {
                return Err(cannot_create(folder, &error).into());
            }
            let destination = Self::of(folder.to_owned())?;
            // Nobody else can begin there now.
            check_new(folder)?;
            for name in FILES {
                remove(&folder.join(name))?;
            }
            return Ok(destination);
        }
        for number in 1.. {
            let model = plain(model);
            let name = if number == 1 { model } else { format!("{model}-{number}") };
            let folder = Path::new(RUNS).join(name);
            match make(&folder) {
                Ok(()) => return Self::of(folder),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && Path::new(RUNS).is_dir() => {}
                Err(error) => return Err(cannot_create(&folder, &error).into()),
            }
        }
        Err("no free name for the run".into())
    }

    /// Copies the record of the run that this one branches off from; it is cut at the checkpoint's step later.
    pub(super) fn take_record(&self, record: &Path) -> Result<(), Box<dyn Error>> {
        let to = self.folder.join(RECORD);
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
            let (step, folder) = (latest.checkpoint.manifest.progress.step, shell::path(&self.folder));
            let lower = if diverged { " --learning-rate LOWER" } else { "" };
            let program = crate::cli::program();
            terminal::note(&format!(
                "the checkpoint of step {step} is whole: {program} train --resume {folder}{lower}"
            ));
        }
    }
}

/// What a model is called, as a folder that can be typed: `tiny with model.layers=4` is in `tiny-with-model.layers-4`.
fn plain(model: &str) -> String {
    let is_plain = |sign: char| sign.is_alphanumeric() || "._-".contains(sign);
    let words: Vec<_> = model.split(|sign| !is_plain(sign)).filter(|word| !word.is_empty()).collect();
    let name: String = words.join("-").chars().take(MOST_SIGNS).collect();
    if name.trim_matches('.').is_empty() { "model".to_owned() } else { name }
}

/// A new run may begin in a folder that does not exist, is empty, or holds a run that ended before its first
/// checkpoint and so has nothing to lose.
pub(super) fn check_new(folder: &Path) -> Result<(), Box<dyn Error>> {
    let shown = folder.display();
    match is_beginning(folder) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let typed = shell::path(folder);
            Err(format!("`{shown}` exists: give another --out, or go on with --resume {typed}").into())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("`{shown}` cannot be the folder of a run: {error}").into()),
    }
}

/// Is there nothing but what a run leaves that ended before its first checkpoint?
fn is_beginning(folder: &Path) -> std::io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let is_ours =
            name.to_str().is_some_and(|name| name == LOCK || FILES.contains(&name) || is_leftover(name));
        if !is_ours {
            return Ok(false);
        }
    }
    Ok(true)
}

fn remove(file: &Path) -> Result<(), Box<dyn Error>> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("cannot remove `{}`: {error}", file.display()).into())
        }
        _ => Ok(()),
    }
}

/// Is it the name of a file or of a checkpoint that a killed program had not finished?
fn is_leftover(name: &str) -> bool {
    let name = name.strip_prefix('.').and_then(|name| name.strip_suffix(".tmp"));
    name.is_some_and(|name| {
        let is_of = |file: &&str| name.strip_prefix(*file).is_some_and(|rest| rest.starts_with('.'));
        name.starts_with("step-") || FILES.iter().any(is_of)
    })
}

/// Removes what killed programs left unfinished, as far as that can be done. Only for whoever holds the lock.
fn remove_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_leftover) {
            let path = entry.path();
            // What stays is in nobody's way: nothing reads it.
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
    }
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
    Ok((Resumed::Branch(run.join(RECORD)), checkpoint))
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
        let run = folder.parent().filter(|run| !run.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (run, folder) = (shell::path(run), folder.display());
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
    let Some(latest) = checkpoint::latest(&destination.folder)? else {
        let folder = &destination.folder;
        if folder.join(resolved::FILE).exists() && is_beginning(folder)? {
            let again = shell::path(folder);
            return Err(format!(
                "{nothing}: its run ended before the first, begin it again with --out {again}"
            )
            .into());
        }
        return Err(nothing.into());
    };
    for damaged in &latest.damaged {
        terminal::note(&format!("passed over a damaged checkpoint: {damaged}"));
    }
    Ok((Resumed::Run(destination), latest.checkpoint))
}

fn newest() -> Option<PathBuf> {
    let entries = fs::read_dir(RUNS).ok()?.filter_map(Result::ok);
    let touched = entries.filter_map(|entry| {
        let path = entry.path();
        let modified: SystemTime = fs::metadata(path.join(RECORD)).ok()?.modified().ok()?;
        Some((modified, path))
    });
    touched.max().map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_called_as_the_model_in_signs_that_need_no_quotes() {
        for (model, folder) in [
            ("gpt2-124m", "gpt2-124m"),
            ("qwen2.5-0.5b", "qwen2.5-0.5b"),
            ("tiny with model.layers=4, attention.full", "tiny-with-model.layers-4-attention.full"),
            ("hirn_größe", "hirn_größe"),
            ("../x", "..-x"),
            ("..", "model"),
            ("=", "model"),
        ] {
            assert_eq!(plain(model), folder, "{model}");
        }
        assert_eq!(plain(&"ö".repeat(300)).len(), 120);
    }
}
