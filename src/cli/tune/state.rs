//! What was measured so far, in a file: a line for each tile, written when it is known.
//!
//! In: lines of an earlier start. Out: what is known of tiles whose kernels have the same text; new lines. A line that a stop cut short is
//! the last one, and is left out. So that a kernel which never ends is not tried for ever, a tile's first run is written before it
//! begins, and when it is over.

use super::search::Fate;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Why a tile is rejected that was begun and never heard of again.
const LOST: &str = "the program ended while it ran";

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    /// The kernel in its place.
    unit: String,
    tile: Vec<usize>,
    /// Of the text of all kernels of the pass.
    text: String,
    #[serde(flatten)]
    what: What,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Running(bool),
    Microseconds(f64),
    Rejected(String),
}

/// The file and what is in it.
pub(super) struct State {
    path: PathBuf,
    file: File,
    known: HashMap<(String, Vec<usize>, String), Fate>,
    /// Texts that began to run and never came back.
    lost: HashSet<String>,
}

impl State {
    /// Opens it, or begins it. `about` is what all lines are true of: a file of something else is an error.
    pub(super) fn open(path: &Path, about: &str) -> Result<Self, String> {
        let cannot = |error: io::Error| format!("cannot use `{}`: {error}", path.display());
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(cannot)?;
        }
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.map_err(cannot)?,
        };
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(cannot)?;
        let (mut known, mut lost) = (HashMap::new(), HashSet::new());
        match text.lines().next() {
            None => writeln!(file, "{about}").map_err(cannot)?,
            Some(first) if first != about => {
                return Err(format!(
                    "`{}` has measurements of `{first}`, and these are of `{about}`: name another with `--state`, or \
                     remove it",
                    path.display()
                ));
            }
            Some(_) if !text.ends_with('\n') => writeln!(file).map_err(cannot)?,
            Some(_) => {}
        }
        for line in text.lines().skip(1) {
            let Ok(Line { unit, tile, text, what }) = serde_json::from_str(line) else { continue };
            let key = (unit, tile, text);
            match what {
                What::Running(true) => drop(lost.insert(key.2)),
                What::Running(false) => drop(lost.remove(&key.2)),
                What::Microseconds(microseconds) => {
                    drop(known.insert(key, Fate::Timed(1e-6 * microseconds)));
                }
                What::Rejected(why) => drop(known.insert(key, Fate::Rejected(why))),
            }
        }
        Ok(Self { path: path.to_owned(), file, known, lost })
    }

    /// How many tiles it knows.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// What is known of a tile.
    pub(super) fn of(&self, unit: &str, tile: &[usize], text: &str) -> Option<Fate> {
        if self.lost.contains(text) {
            return Some(Fate::Rejected(LOST.to_owned()));
        }
        self.known.get(&(unit.to_owned(), tile.to_vec(), text.to_owned())).cloned()
    }

    /// Writes that a tile is about to run for the first time.
    pub(super) fn begin(&mut self, unit: &str, tile: &[usize], text: &str) -> Result<(), String> {
        self.write(unit, tile, text, What::Running(true))
    }

    /// Writes that it came to its end.
    pub(super) fn returned(&mut self, unit: &str, tile: &[usize], text: &str) -> Result<(), String> {
        self.write(unit, tile, text, What::Running(false))
    }

    /// Writes what became of it.
    pub(super) fn end(&mut self, unit: &str, tile: &[usize], text: &str, fate: &Fate) -> Result<(), String> {
        let what = match fate {
            Fate::Timed(seconds) => What::Microseconds(1e6 * seconds),
            Fate::Rejected(why) => What::Rejected(why.clone()),
        };
        self.known.insert((unit.to_owned(), tile.to_vec(), text.to_owned()), fate.clone());
        self.write(unit, tile, text, what)
    }

    fn write(&mut self, unit: &str, tile: &[usize], text: &str, what: What) -> Result<(), String> {
        let line = Line { unit: unit.to_owned(), tile: tile.to_vec(), text: text.to_owned(), what };
        let line = serde_json::to_string(&line).map_err(|error| error.to_string())?;
        // At once and in one piece: whatever ends the program, the lines before are whole.
        let written = self.file.write_all(format!("{line}\n").as_bytes());
        written.map_err(|error| format!("cannot write `{}`: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_start_knows_what_the_first_one_measured() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("below/x.jsonl");
        let mut state = State::open(&path, "sm_80 on A100").expect("it is new");
        state.begin("a", &[1, 2], "t").expect("it writes");
        state.returned("a", &[1, 2], "t").expect("it writes");
        state.end("a", &[1, 2], "t", &Fate::Timed(0.5)).expect("it writes");
        state.end("a", &[1, 3], "t", &Fate::Rejected("spills".to_owned())).expect("it writes");
        state.begin("a", &[1, 4], "never ends").expect("it writes");
        drop(state);
        let mut text = std::fs::read_to_string(&path).expect("it is there");
        text.push_str("{\"unit\": \"a\", \"ti");
        std::fs::write(&path, text).expect("a stop in the middle of a line");
        let mut state = State::open(&path, "sm_80 on A100").expect("it goes on");
        assert_eq!(state.len(), 2);
        assert_eq!(state.of("a", &[1, 2], "t"), Some(Fate::Timed(0.5)));
        assert_eq!(state.of("a", &[1, 3], "t"), Some(Fate::Rejected("spills".to_owned())));
        for unit in ["a", "b"] {
            assert_eq!(state.of(unit, &[1, 4], "never ends"), Some(Fate::Rejected(LOST.to_owned())));
        }
        assert_eq!(state.of("a", &[1, 2], "another text"), None);
        state.end("a", &[1, 5], "t", &Fate::Timed(0.25)).expect("it writes");
        let state = State::open(&path, "sm_80 on A100").expect("it goes on again");
        assert_eq!(state.of("a", &[1, 5], "t"), Some(Fate::Timed(0.25)));
    }

    #[test]
    fn a_file_of_something_else_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.jsonl");
        drop(State::open(&path, "sm_80 on A100").expect("it is new"));
        let error = State::open(&path, "sm_90a on H200").err().expect("it is another's");
        assert!(error.contains("`sm_80 on A100`") && error.contains("`--state`"), "{error}");
    }
}
