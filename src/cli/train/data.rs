//! The corpus of a run: where it is, and whether it is still what it was.

use kernwright_model::corpus::{BUILT_IN, Tokens};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

/// The corpus of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Data {
    /// Where it is, from the root on, so that the run goes on from any folder; none for the built-in text.
    pub(crate) path: Option<PathBuf>,
    /// Tokens in it, 0 before it was opened.
    pub(crate) n_tokens: usize,
    /// Are the tokens bytes of text?
    pub(crate) is_bytes: bool,
    /// Checksum of its content, 16 hexadecimal digits; empty before it was opened, and in older checkpoints.
    #[serde(default)]
    pub(crate) fingerprint: String,
}

impl Data {
    /// One that was not opened yet.
    pub(super) fn unopened(path: Option<PathBuf>) -> Self {
        Self { path: path.map(absolute), n_tokens: 0, is_bytes: true, fingerprint: String::new() }
    }

    /// Opens it, and checks that it is what it was when it was opened before.
    pub(super) fn open(&mut self, vocab: usize) -> Result<Tokens, Box<dyn Error>> {
        if let Some(path) = self.path.as_deref().filter(|path| path.to_str().is_none()) {
            let message = "the path of the data must be UTF-8, since the checkpoint keeps it as text";
            return Err(format!("{message}, found `{}`", path.display()).into());
        }
        let tokens = match &self.path {
            Some(path) => Tokens::open(short(path), vocab)?,
            None => Tokens::embedded("the built-in text", BUILT_IN, vocab)?,
        };
        let (before, n_tokens) = (self.n_tokens, tokens.len());
        if before != 0 && before != n_tokens {
            let message = format!(
                "the data has changed since the run began: it had `{before}` tokens, found `{n_tokens}`; \
                 start a new run"
            );
            return Err(message.into());
        }
        let (before, fingerprint) = (&self.fingerprint, format!("{:016x}", tokens.fingerprint()?));
        if !before.is_empty() && *before != fingerprint {
            let message = format!(
                "the data has changed since the run began: its checksum was `{before}`, found `{fingerprint}`; \
                 start a new run"
            );
            return Err(message.into());
        }
        *self = Self { path: self.path.take(), n_tokens, is_bytes: tokens.is_text(), fingerprint };
        Ok(tokens)
    }
}

/// The path from the root on.
pub(super) fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// The path from the current folder on, where it lies below.
fn short(path: &Path) -> &Path {
    let current = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&current).ok().filter(|rest| !rest.as_os_str().is_empty()).unwrap_or(path)
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_bytes { "bytes" } else { "tokens" };
        match &self.path {
            Some(path) => write!(f, "{} ({} {kind})", short(path).display(), self.n_tokens),
            None => write!(f, "the built-in text ({} {kind})", self.n_tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_changed_is_refused_even_if_it_is_as_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "as it was").unwrap();
        let mut data = Data::unopened(Some(path.clone()));
        data.open(256).unwrap();
        assert_eq!((data.n_tokens, data.is_bytes, data.fingerprint.len()), (9, true, 16));
        let text = serde_json::to_string(&data).unwrap();
        let mut data: Data = serde_json::from_str(&text).unwrap();
        data.open(256).unwrap();
        for changed in ["as it is.", "as it is"] {
            std::fs::write(&path, changed).unwrap();
            let error = data.open(256).unwrap_err().to_string();
            assert!(error.starts_with("the data has changed since the run began: "), "{error}");
        }
        // A checkpoint of before there were fingerprints.
        let mut data: Data = serde_json::from_str(r#"{"path":null,"n_tokens":0,"is_bytes":true}"#).unwrap();
        data.open(256).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_path_that_no_checkpoint_could_keep_is_refused() {
        let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"d\xff.txt");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), "some text").unwrap();
        let error = Data::unopened(Some(folder.path().join(name))).open(256).unwrap_err().to_string();
        assert!(
            error.starts_with("the path of the data must be UTF-8, ") && error.contains(".txt`"),
            "{error}"
        );
    }

    #[test]
    fn tokens_below_the_folder_are_no_bytes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        std::fs::write(folder.path().join("inner/a.bin"), [1, 0, 2, 0]).unwrap();
        let mut data = Data::unopened(Some(folder.path().to_owned()));
        data.open(256).unwrap();
        assert!(!data.is_bytes);
    }
}
