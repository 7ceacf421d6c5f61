//! What a user sees of a run: a bar on a terminal, a few lines elsewhere.

use super::super::progress::{self, SILENCE};
use super::baseline::Baseline;
use super::report::Speed;
use crate::environment::Environment;
use crate::terminal;
use indicatif::ProgressBar;
use kernwright_model::run::Observer;
use kernwright_model::trainer::StepReport;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The observer of a run.
pub(super) struct Bar<'a> {
    bar: ProgressBar,
    steps: u64,
    speed: Speed,
    baseline: &'a mut Baseline,
    loss: Option<f64>,
    validation: Option<f64>,
    stop: Arc<AtomicUsize>,
    is_terminal: bool,
    /// When the program began; none once the first step is done.
    begun: Option<Instant>,
    spoke: Instant,
}

impl<'a> Bar<'a> {
    /// A bar that stands at `done` of `steps`, of a program that began at `begun`.
    pub(super) fn new(
        begun: Instant,
        done: u64,
        steps: u64,
        speed: Speed,
        baseline: &'a mut Baseline,
        stop: &Arc<AtomicUsize>,
        environment: &Environment,
    ) -> Self {
        let (bar, is_terminal) = progress::bar(Some(steps), "{eta} left", environment);
        bar.set_position(done);
        bar.reset_eta();
        Self {
            bar,
            steps,
            speed,
            baseline,
            loss: None,
            validation: None,
            stop: Arc::clone(stop),
            is_terminal,
            begun: Some(begun),
            spoke: Instant::now(),
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&mut self, text: &str) {
        self.bar.suspend(|| terminal::note(text));
        self.spoke = Instant::now();
    }
}

impl Observer for Bar<'_> {
    fn step(&mut self, report: &StepReport, tokens_per_second: f64) {
        self.loss = Some(report.loss);
        let validation = self.validation.map_or(String::new(), |loss| format!(" val {loss:.3}"));
        let scaling = report.loss_scale.zip(report.skipped_steps);
        let scaling =
            scaling.map_or(String::new(), |(scale, skipped)| format!(", scale {scale}, {skipped} skipped"));
        if let Some(begun) = self.begun.take() {
            let (seconds, loss) = (begun.elapsed().as_secs_f64(), report.loss);
            self.say(&format!(
                "step {}/{}: loss {loss:.4}, {seconds:.2} s after the start",
                report.step, self.steps
            ));
        }
        let share = self.speed.share(tokens_per_second);
        let text =
            format!("loss {:.3}{validation}, {tokens_per_second:.0} tokens/s{share}{scaling}", report.loss);
        if !self.is_terminal && self.spoke.elapsed() >= SILENCE {
            self.say(&format!("step {}/{}: {text}", report.step, self.steps));
        }
        self.bar.set_message(text);
        self.bar.set_position(report.step);
    }

    fn validating(&mut self, done: usize, of: usize) {
        if !self.is_terminal && self.spoke.elapsed() >= SILENCE {
            self.say(&format!("validating: {done} of {of} batches"));
        }
        self.bar.set_message(format!("validating, {done} of {of} batches"));
    }

    fn validated(&mut self, step: u64, loss: f64) {
        self.validation = Some(loss);
        let training = self.loss.map_or(String::new(), |loss| format!("loss {loss:.4}, "));
        self.say(&format!("step {step}/{}: {training}validation {loss:.4}", self.steps));
    }

    fn saved(&mut self, folder: &Path) {
        if self.is_terminal {
            self.bar.suspend(|| terminal::note(&format!("saved {}", folder.display())));
        }
    }

    fn bigram(&mut self) -> Option<f64> {
        self.baseline.wait()
    }

    fn wants_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }
}
