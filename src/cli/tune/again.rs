//! Starts the program anew where a kernel never ends, or the device failed: nothing else has it free again.
//!
//! In: what runs on the device, and the file that knows what was measured. Out: the same command in this one's place, which does not
//! try that tile again.

use super::state::Running;
use crate::terminal::note;
use indicatif::ProgressBar;
use std::error::Error;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// A tile takes milliseconds; inputs of the first one a second or two, on a slow machine ten.
const LIMIT: Duration = Duration::from_secs(30);

/// How often it is looked whether one takes longer.
const POLL: Duration = Duration::from_millis(200);

/// How to start anew.
#[derive(Clone)]
pub(super) struct Again {
    pub(super) running: Running,
    /// The file that knows what was measured.
    pub(super) state: PathBuf,
    /// When this program began, and how much time earlier ones of the same command took.
    pub(super) start: Instant,
    pub(super) spent: Duration,
    pub(super) bar: ProgressBar,
}

impl Again {
    /// How long all programs of this command have been at it.
    pub(super) fn elapsed(&self) -> Duration {
        self.spent + self.start.elapsed()
    }

    /// Watches what runs, from now on.
    pub(super) fn watch(&self) -> io::Result<()> {
        let this = self.clone();
        let watch = move || {
            while this.running.longer_than(LIMIT).is_none() {
                std::thread::sleep(POLL);
            }
            let seconds = LIMIT.as_secs();
            let error = this.start(&format!("a tile has not ended after {seconds} s: it is left out"));
            note(&format!("error: {error}"));
            std::process::exit(1);
        };
        std::thread::Builder::new().name("watch".to_owned()).spawn(watch).map(drop)
    }

    /// Writes down what runs, if anything does, and has the same command take this one's place; returns only if that fails.
    pub(super) fn start(&self, why: &str) -> Box<dyn Error> {
        self.bar.finish_and_clear();
        if let Some(line) = self.running.longer_than(Duration::ZERO) {
            let file = OpenOptions::new().append(true).open(&self.state);
            if let Err(error) = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())) {
                return format!("{why}; cannot use `{}`: {error}", self.state.display()).into();
            }
        }
        note(&format!("{why}, and the program starts anew"));
        let arguments = arguments(std::env::args_os().skip(1), self.elapsed());
        match std::env::current_exe() {
            Ok(program) => Command::new(program).args(arguments).exec().into(),
            Err(error) => error.into(),
        }
    }
}

/// What the next program is given: the same, and how much time is gone.
fn arguments(before: impl Iterator<Item = OsString>, elapsed: Duration) -> Vec<OsString> {
    let spent = format!("--spent={}", elapsed.as_secs().max(1));
    before.chain([spent.into()]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::{Cli, Command as Parsed};
    use super::*;
    use clap::Parser as _;

    #[test]
    fn the_next_program_knows_how_much_time_is_gone() {
        let mut given: Vec<OsString> =
            ["tune", "attention", "--budget", "60s"].into_iter().map(Into::into).collect();
        for seconds in [12, 40] {
            given = arguments(given.into_iter(), Duration::from_secs(seconds));
            let all = std::iter::once("kernwright".into()).chain(given.clone());
            let Parsed::Tune(found) = Cli::try_parse_from(all).expect("it is allowed twice").command else {
                panic!("it is `tune`");
            };
            assert_eq!(u64::from(found.spent), seconds);
        }
    }
}
