//! The files of a corpus folder, in a fixed order, and their text.
//!
//! In: a folder. Out: paths of regular files, or the joined bytes of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::CorpusError;

/// Whether `path` holds tokens rather than text.
pub(super) fn is_bin(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "bin")
}

/// Every regular file below `folder` that is not hidden, in path order; at least one.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>, CorpusError> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let unreadable = |source| CorpusError::Unreadable { path: folder.display().to_string(), source };
        for entry in fs::read_dir(&folder).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let path = entry.path();
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            if entry.file_type().map_err(unreadable)?.is_dir() {
                folders.push(path);
            } else if fs::metadata(&path).map_err(|source| unreachable_file(&path, source))?.is_file() {
                files.push(path);
            }
        }
    }
    if files.is_empty() {
        return Err(CorpusError::NoFile { path: folder.display().to_string() });
    }
    files.sort();
    Ok(files)
}

/// Why nothing is known of `path`, whose name is in its folder: a link that leads nowhere is named as such.
pub(super) fn unreachable_file(path: &Path, source: io::Error) -> CorpusError {
    let shown = path.display().to_string();
    match fs::read_link(path) {
        Ok(target) if source.kind() == io::ErrorKind::NotFound => {
            CorpusError::BrokenLink { path: shown, target: target.display().to_string() }
        }
        _ => CorpusError::Unreadable { path: shown, source },
    }
}

/// The bytes of `files`, with a newline between two of them where there is none.
pub(super) fn text(files: &[PathBuf]) -> Result<Vec<u8>, CorpusError> {
    let mut joined = Vec::new();
    for path in files {
        let bytes = fs::read(path)
            .map_err(|source| CorpusError::Unreadable { path: path.display().to_string(), source })?;
        if !bytes.is_empty() && joined.last().is_some_and(|last| *last != b'\n') {
            joined.push(b'\n');
        }
        joined.extend(bytes);
    }
    Ok(joined)
}
