//! What a user sees of a run: a bar on a terminal, a few lines elsewhere.

use crate::terminal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kernwright_model::run::Observer;
use kernwright_model::trainer::StepReport;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Lines that a run prints where there is no terminal, beside validations.
const LINES: u64 = 10;

/// The observer of a run.
pub(super) struct Bar {
    bar: ProgressBar,
    steps: u64,
    validation: Option<f64>,
    stop: Arc<AtomicUsize>,
    is_terminal: bool,
}

impl Bar {
    /// A bar that stands at `done` of `steps`.
    pub(super) fn new(done: u64, steps: u64, stop: &Arc<AtomicUsize>, no_color: bool) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = match is_terminal {
            true => ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr()),
            false => ProgressBar::hidden(),
        };
        let colour = if no_color { "" } else { ".cyan/dim" };
        let template = format!("{{bar:12{colour}}} {{pos}}/{{len}} {{msg}}, {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_position(done);
        bar.reset_eta();
        Self { bar, steps, validation: None, stop: Arc::clone(stop), is_terminal }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&self, text: &str) {
        self.bar.suspend(|| terminal::note(text));
    }
}

impl Observer for Bar {
    fn step(&mut self, report: &StepReport, tokens_per_second: f64) {
        let validation = self.validation.map_or(String::new(), |loss| format!(" val {loss:.3}"));
        let text = format!("loss {:.3}{validation}, {tokens_per_second:.0} tokens/s", report.loss);
        if !self.is_terminal && report.step.is_multiple_of((self.steps / LINES).max(1)) {
            self.say(&format!("step {}/{}: {text}", report.step, self.steps));
        }
        self.bar.set_message(text);
        self.bar.set_position(report.step);
    }

    fn validated(&mut self, step: u64, loss: f64) {
        self.validation = Some(loss);
        self.say(&format!("step {step}: validation {loss:.4}"));
    }

    fn saved(&mut self, folder: &Path) {
        if self.is_terminal {
            self.bar.suspend(|| terminal::note(&format!("saved {}", folder.display())));
        }
    }

    fn wants_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed) != 0
    }
}
