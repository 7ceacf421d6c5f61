//! What a user sees while a check runs: a bar on a terminal, now and then a line elsewhere.

use super::super::progress::{self, SILENCE};
use super::walk::Finding;
use crate::environment::Environment;
use crate::terminal;
use indicatif::ProgressBar;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The bar.
pub(super) struct Bar {
    bar: ProgressBar,
    is_terminal: bool,
    spoke: Mutex<Instant>,
}

impl Bar {
    /// One that stands at nothing.
    pub(super) fn new(environment: &Environment) -> Self {
        let (bar, is_terminal) = progress::bar(None, "{elapsed}", environment);
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { bar, is_terminal, spoke: Mutex::new(Instant::now()) }
    }

    /// So many kernels are compiled.
    pub(super) fn compiling(&self, done: usize, of: usize) {
        self.bar.set_length(of as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message("kernels compiled");
        self.say(&format!("{done}/{of} kernels compiled"));
    }

    /// So many steps are to be run.
    pub(super) fn run(&self, n_steps: usize) {
        self.bar.set_length(n_steps as u64);
        self.bar.set_position(0);
        self.bar.set_message("steps run");
    }

    /// One more has been.
    pub(super) fn ran(&self, finding: &Finding) {
        self.bar.inc(1);
        self.bar.set_message(format!("steps run, {} took {:.1} s", finding.op, finding.seconds));
        let (done, of) = (self.bar.position(), self.bar.length().unwrap_or(0));
        self.say(&format!("{done}/{of} steps run"));
    }

    fn say(&self, text: &str) {
        let Ok(mut spoke) = self.spoke.lock() else { return };
        if !self.is_terminal && spoke.elapsed() >= SILENCE {
            terminal::note(text);
            *spoke = Instant::now();
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
