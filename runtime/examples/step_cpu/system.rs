//! What the system says about this process: memory in bytes, and times. Zero where it has no `/proc`.

use std::time::{Duration, SystemTime};

fn status(name: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.map_or(0, |kib: usize| kib << 10)
}

/// Resident now.
pub(crate) fn resident() -> usize {
    status("VmRSS")
}

/// The most that was ever resident.
pub(crate) fn peak() -> usize {
    status("VmHWM")
}

/// What all threads that still live have used.
pub(crate) fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let used = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum())
}

/// What a clock on the wall says.
pub(crate) fn wall_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Lets [`peak`] begin anew. False where that cannot be asked for.
pub(crate) fn forget_peak() -> bool {
    // See `man 5 proc`: 5 resets the peak.
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}
