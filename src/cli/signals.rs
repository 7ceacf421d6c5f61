//! Ctrl-C and its like, for commands that have something to keep.
//!
//! In: signals. Out: the number of the first. A second one ends the program at once.

use crate::terminal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How often it is looked whether a signal has arrived.
const POLL: Duration = Duration::from_millis(50);

/// Watches signals from now on: gives the number of the one that arrived, 0 before, and then says so. A terminal that closes is
/// no reason to lose anything either.
///
/// # Errors
/// When the system refuses.
pub(super) fn watch(said: &'static str) -> io::Result<Arc<AtomicUsize>> {
    let (arrived, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again))?;
        signal_hook::flag::register(signal, Arc::clone(&again))?;
        signal_hook::flag::register_usize(
            signal,
            Arc::clone(&arrived),
            usize::try_from(signal).unwrap_or(1),
        )?;
    }
    let seen = Arc::clone(&arrived);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while !has_arrived(&seen) {
            std::thread::sleep(POLL);
        }
        terminal::note(said);
    })?;
    Ok(arrived)
}

/// Did one arrive?
pub(super) fn has_arrived(signal: &AtomicUsize) -> bool {
    signal.load(Ordering::Relaxed) != 0
}

/// What a program ends with that a signal ended; `otherwise` where none arrived.
pub(super) fn exit_code(signal: &AtomicUsize, otherwise: ExitCode) -> ExitCode {
    match signal.load(Ordering::Relaxed) {
        0 => otherwise,
        signal => ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
    }
}
