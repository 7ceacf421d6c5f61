//! The attention of others on the same GPU, timed by a script that needs PyTorch.
//!
//! In: shapes. Out: milliseconds of each peer that takes them, with the same numbers in their operands as ours have, and
//! their errors against fp64 mathematics, which are left in files. The script is part of this program
//! (`benches/peers/attention.py`) and runs in a process of its own, before anything of ours is on the GPU.

use super::super::signals;
use super::case::{Case, drawn};
use crate::terminal::note;
use kernwright_plan::dtype::Dtype;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

const SCRIPT: &str = include_str!("../../../benches/peers/attention.py");

/// How often it is looked whether a signal has arrived.
const POLL: Duration = Duration::from_millis(50);

/// The peer that nobody would choose, shown beside the others but not among the best.
pub(super) const NAIVE: &str = "naive";

/// One peer's times, milliseconds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Times {
    pub(super) forward: f64,
    pub(super) backward: f64,
}

/// Root-mean-square errors against fp64 mathematics.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct Errors {
    pub(super) out: f64,
    pub(super) d_q: f64,
    pub(super) d_k: f64,
    pub(super) d_v: f64,
}

impl Errors {
    /// Names of what they are of, and each.
    pub(super) fn all(&self) -> [(&'static str, f64); 4] {
        [("out", self.out), ("d_q", self.d_q), ("d_k", self.d_k), ("d_v", self.d_v)]
    }

    /// The larger one of each.
    pub(super) fn larger(&self, other: &Self) -> Self {
        Self {
            out: self.out.max(other.out),
            d_q: self.d_q.max(other.d_q),
            d_k: self.d_k.max(other.d_k),
            d_v: self.d_v.max(other.d_v),
        }
    }
}

/// What peers did with a shape.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Peers {
    /// Those that take it.
    pub(super) peers: BTreeMap<String, Times>,
    /// Why others failed.
    pub(super) failed: BTreeMap<String, String>,
    /// What those that take it are off by, where that was asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) errors: BTreeMap<String, Errors>,
}

/// How peers are timed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// A Python that has PyTorch.
    pub(super) python: &'a Path,
    /// Of the operands.
    pub(super) dtype: Dtype,
    /// Measured replays.
    pub(super) repeats: u32,
    /// Number of the GPU.
    pub(super) device: u32,
    /// A folder for what is true, and whose files [`truth`] names.
    pub(super) truth: Option<&'a Path>,
}

/// The file that holds what is true of a result of a row: fp32 numbers, rows of a sequence's heads.
pub(super) fn truth(folder: &Path, row: usize, result: &str) -> PathBuf {
    folder.join(format!("{row}.{result}"))
}

#[derive(Deserialize)]
struct About {
    torch: String,
    gpu: String,
}

impl Peers {
    /// The fastest by one of its times, and that time.
    pub(super) fn best(&self, of: fn(&Times) -> f64) -> Option<(&str, f64)> {
        let real = self.peers.iter().filter(|(name, _)| name.as_str() != NAIVE);
        real.map(|(name, times)| (name.as_str(), of(times))).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Those that take it and that one would choose.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.peers.keys().map(String::as_str).filter(|name| *name != NAIVE)
    }

    /// Times of the one of that name.
    pub(super) fn of(&self, name: &str) -> Option<Times> {
        self.peers.get(name).copied()
    }
}

/// A process that does not outlive this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended cannot be ended, and then there is nothing to wait for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Times the peers of all shapes on a GPU; also what they ran on.
///
/// # Errors
/// When the script does not run to its end: no such program, no PyTorch, no GPU; or when a signal arrives.
pub(super) fn time(
    cases: &[Case],
    asked: Asked,
    stop: &AtomicUsize,
) -> Result<(String, Vec<Peers>), Box<dyn Error>> {
    let Asked { python, dtype, repeats, device, truth } = asked;
    let room = |error| format!("cannot write operands for peers: {error}");
    let mut numbers = tempfile::NamedTempFile::new().map_err(room)?;
    let bytes: Vec<u8> = drawn().iter().flat_map(|value| value.to_ne_bytes()).collect();
    numbers.write_all(&bytes).map_err(room)?;
    let asked = serde_json::json!({"type": dtype.name(), "repeats": repeats, "rows": cases, "device": device,
        "drawn": numbers.path(), "truth": truth});
    let mut command = Command::new(python);
    command.arg("-").arg(asked.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let shown = python.display();
    let process = command.spawn().map_err(|error| {
        format!("cannot start `{shown}` to time peers: {error}: `--python` names a Python that has PyTorch")
    })?;
    let mut process = Running(process);
    if let Some(mut input) = process.0.stdin.take() {
        // Who ends early says why.
        let _ = input.write_all(SCRIPT.as_bytes());
    }
    // Both are read while it runs, and beside this, so that a signal is seen.
    let errors = process.0.stderr.take();
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        errors.map(|mut errors| errors.read_to_string(&mut text));
        text
    });
    let (send, lines) = mpsc::channel();
    let out = process.0.stdout.take();
    std::thread::spawn(move || {
        for text in out.into_iter().flat_map(|out| BufReader::new(out).lines()) {
            // Nobody listens once something went wrong.
            let _ = send.send(text);
        }
    });
    let (mut about, mut all) = (String::new(), Vec::new());
    loop {
        let text = match lines.recv_timeout(POLL) {
            Ok(text) => text?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if signals::has_arrived(stop) => {
                return Err("a signal ended the timing of peers".into());
            }
            Err(RecvTimeoutError::Timeout) => continue,
        };
        if let Ok(found) = serde_json::from_str::<About>(&text) {
            about = format!("PyTorch {} on {}", found.torch, found.gpu);
            continue;
        }
        let peers: Peers = serde_json::from_str(&text).map_err(|_| {
            let start: String = text.chars().take(80).collect();
            format!("`{shown}` cannot time peers: it printed `{start}` where a row of times belongs")
        })?;
        let names: Vec<_> = peers.peers.keys().map(String::as_str).collect();
        if let Some(case) = cases.get(all.len()) {
            let (done, of) = (all.len() + 1, cases.len());
            let (sizes, mask) = (case.sizes(), case.mask());
            note(&format!("peers of {sizes}, {mask}: {} ({done} of {of})", names.join(", ")));
        }
        all.push(peers);
    }
    let status = process.0.wait()?;
    let said = errors.join().unwrap_or_default();
    if !status.success() || all.len() != cases.len() {
        let last =
            said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim();
        return Err(
            format!("`{shown}` cannot time peers: {last}: it needs PyTorch 2.5 or later, and a GPU").into()
        );
    }
    Ok((about, all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_best_peer_is_the_fastest_of_those_that_one_would_choose() {
        let text = r#"{"peers": {"FA2": {"forward": 2.0, "backward": 5.0}, "cuDNN": {"forward": 1.0, "backward": 6.0},
            "naive": {"forward": 0.5, "backward": 0.5}}, "failed": {"FA4": "no"}, "row": {}}"#;
        let peers: Peers = serde_json::from_str(text).expect("as the script prints it");
        assert_eq!(peers.best(|times| times.forward), Some(("cuDNN", 1.0)));
        assert_eq!(peers.best(|times| times.backward), Some(("FA2", 5.0)));
        assert_eq!(peers.of(NAIVE).map(|times| times.forward), Some(0.5));
        assert_eq!(peers.names().collect::<Vec<_>>(), ["FA2", "cuDNN"]);
        assert!(Peers::default().best(|times| times.forward).is_none());
    }

    #[test]
    fn a_program_that_cannot_time_peers_is_named_with_its_last_words() {
        let cases = &super::super::case::TABLE[..1];
        let error = |python: &str| {
            let python = Path::new(python);
            let asked = Asked { python, dtype: Dtype::Bf16, repeats: 1, device: 0, truth: None };
            time(cases, asked, &AtomicUsize::new(0)).expect_err("it is no Python").to_string()
        };
        assert!(
            error("/nonexistent/python3").starts_with("cannot start `/nonexistent/python3` to time peers: ")
        );
        assert_eq!(
            error("false"),
            "`false` cannot time peers: it said nothing: it needs PyTorch 2.5 or later, and a GPU"
        );
        // What is told to it comes back.
        let first = SCRIPT.lines().next().expect("the script has lines");
        assert_eq!(
            error("cat"),
            format!("`cat` cannot time peers: it printed `{first}` where a row of times belongs")
        );
    }

    #[test]
    fn a_signal_ends_peers_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("there is room");
        let sleeper = folder.path().join("sleeper");
        std::fs::write(&sleeper, "#!/bin/sh\nexec sleep 60\n").expect("there is room");
        std::fs::set_permissions(&sleeper, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        let asked = Asked { python: &sleeper, dtype: Dtype::Bf16, repeats: 1, device: 0, truth: None };
        let begun = std::time::Instant::now();
        let error =
            time(&super::super::case::TABLE[..1], asked, &AtomicUsize::new(2)).expect_err("it was ended");
        assert_eq!(error.to_string(), "a signal ended the timing of peers");
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    }
}
