//! Running the built program in a folder of its own.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A folder in which the program runs.
pub(crate) struct Program {
    folder: TempDir,
}

impl Program {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into the folder and returns its name.
    pub(crate) fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it has a parent")).expect("a folder");
        fs::write(path, content).expect("a file");
        name.to_owned()
    }

    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernwright"));
        command.args(arguments.split_whitespace()).current_dir(self.folder.path()).stdin(Stdio::null());
        // What is tested is the program: the same on a machine with a GPU.
        command.env("CUDA_VISIBLE_DEVICES", "");
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().expect("the program starts")
    }

    /// Runs it and expects success.
    pub(crate) fn ok(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "`{arguments}` failed: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs it and expects this exit code; returns what it said on standard error.
    pub(crate) fn fails(&self, arguments: &str, code: i32) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "`{arguments}`: {error}");
        assert!(!error.contains("panicked"), "`{arguments}`: {error}");
        error
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_slice(&self.bytes(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The names in a folder below, sorted; none where it does not exist.
    pub(crate) fn names(&self, name: &str) -> Vec<String> {
        names(&self.path(name))
    }
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
