//! What was measured so far, in a file: a line for each tile, written when it is known.
//!
//! In: lines of an earlier start. Out: what is known of tiles whose kernels have the same text; new lines. A line that a stop cut short is
//! the last one, and is left out. So that a kernel which never ends is not tried for ever, a tile's first run is written before it
//! begins, and when it is over; of what runs, whoever waits for it can say that it never will.

use super::search::Fate;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Why a tile is rejected that was begun and never heard of again.
const LOST: &str = "it never ended, or the program did while it ran";

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

/// What runs on the device, since when.
#[derive(Clone, Default)]
pub(super) struct Running(Arc<Mutex<Option<(Instant, Line)>>>);

impl Running {
    fn set(&self, line: Option<Line>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = line.map(|line| (Instant::now(), line));
    }

    /// What has been running for longer than this, as a line for the file that has it never tried again.
    pub(super) fn longer_than(&self, limit: Duration) -> Option<String> {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, line) = running.as_ref()?;
        if since.elapsed() < limit {
            return None;
        }
        serde_json::to_string(&Line { what: What::Running(true), ..line.clone() }).ok()
    }
}

/// The file and what is in it.
pub(super) struct State {
    path: PathBuf,
    file: File,
    known: HashMap<(String, Vec<usize>, String), Fate>,
    /// Texts that began to run and never came back.
    lost: HashSet<String>,
    running: Running,
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
        Ok(Self { path: path.to_owned(), file, known, lost, running: Running::default() })
    }

    /// What runs, for who watches it.
    pub(super) fn running(&self) -> Running {
        self.running.clone()
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
        self.watch(unit, tile, text);
        self.write(unit, tile, text, What::Running(true))
    }

    /// Says that a tile runs, of which the file need know only if it never ends.
    pub(super) fn watch(&self, unit: &str, tile: &[usize], text: &str) {
        let (unit, tile, text) = (unit.to_owned(), tile.to_vec(), text.to_owned());
        self.running.set(Some(Line { unit, tile, text, what: What::Running(true) }));
    }

    /// Says that none runs.
    pub(super) fn rest(&self) {
        self.running.set(None);
    }

    /// Writes that it came to its end.
    pub(super) fn returned(&mut self, unit: &str, tile: &[usize], text: &str) -> Result<(), String> {
        self.rest();
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
    fn what_runs_too_long_is_not_tried_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x");
        let mut state = State::open(&path, "about").expect("it is new");
        let running = state.running();
        assert_eq!(running.longer_than(Duration::ZERO), None);
        state.begin("a", &[1], "t").expect("it writes");
        assert!(running.longer_than(Duration::ZERO).is_some());
        assert_eq!(running.longer_than(Duration::from_secs(3600)), None);
        state.returned("a", &[1], "t").expect("it writes");
        assert_eq!(running.longer_than(Duration::ZERO), None);
        // It ended once, and not when it was timed.
        state.watch("b", &[1], "t");
        let line = running.longer_than(Duration::ZERO).expect("it runs");
        state.rest();
        assert_eq!(running.longer_than(Duration::ZERO), None);
        assert_eq!(State::open(&path, "about").expect("it opens").of("b", &[1], "t"), None);
        let mut text = std::fs::read_to_string(&path).expect("it is there");
        text.push_str(&(line + "\n"));
        std::fs::write(&path, text).expect("there is room");
        let state = State::open(&path, "about").expect("it opens");
        assert_eq!(state.of("b", &[1], "t"), Some(Fate::Rejected(LOST.to_owned())));
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
