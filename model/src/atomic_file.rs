//! Files that appear whole or not at all: written under a temporary name beside their own, synced, renamed.
//!
//! In: a path and a function that writes. Out: the file, on disk, even if power fails right after. The temporary
//! name is `.NAME.PID-COUNT.tmp`; a killed process may leave one behind, which nothing reads.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces `path` by what `write` writes. On an error the old file, if any, is untouched.
pub fn write_atomically(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no file name"))?;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary =
        path.with_file_name(format!(".{}.{}-{count}.tmp", name.to_string_lossy(), std::process::id()));
    let outcome = write_synced(&temporary, write).and_then(|()| fs::rename(&temporary, path));
    if outcome.is_err() {
        let _ = fs::remove_file(&temporary);
        return outcome;
    }
    sync_folder(folder_of(path))
}

/// Creates `path`, lets `write` fill it, and returns once its content is on disk.
pub(crate) fn write_synced(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut writer = BufWriter::with_capacity(1 << 20, File::create(path)?);
    write(&mut writer)?;
    writer.into_inner().map_err(|error| error.into_error())?.sync_all()
}

/// Makes the names in `folder` (created, renamed, removed) durable. Does nothing where folders cannot be synced.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The folder that holds `path`; `.` for a bare name.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_and_no_temporary_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        for text in ["first, longer", "second"] {
            write_atomically(&path, |file| file.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(names(folder.path()), ["a.txt"]);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_temporary() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        fs::write(&path, "old").unwrap();
        let outcome = write_atomically(&path, |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("disk full"))
        });
        assert_eq!(outcome.unwrap_err().to_string(), "disk full");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["a.txt"]);
    }
}
