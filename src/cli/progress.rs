//! The bar that commands show while they work.

use crate::environment::Environment;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// Where there is no terminal, no command is silent for longer.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// A bar of `length`, if that is known, with `tail` behind its message; hidden where there is no terminal that can move
/// its cursor, which the second says.
pub(super) fn bar(length: Option<u64>, tail: &str, environment: &Environment) -> (ProgressBar, bool) {
    let is_terminal = std::io::stderr().is_terminal() && !environment.dumb_terminal;
    let bar = match is_terminal {
        true => ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr()),
        false => ProgressBar::hidden(),
    };
    // Cyan by hand: the library has its own view of NO_COLOR.
    let (on, off) = if environment.no_color { ("", "") } else { ("\u{1b}[36m", "\u{1b}[0m") };
    let template = format!("{on}{{bar:12}}{off} {{pos}}/{{len}} {{msg}}, {tail}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style.progress_chars("=> "));
    }
    (bar, is_terminal)
}
