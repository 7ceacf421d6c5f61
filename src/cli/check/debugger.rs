//! The command that steps through a kernel.

use super::super::shell;

/// This very call under gdb, which stops at the first thread of the kernel.
pub(super) fn command(kernel: &str) -> String {
    let words: Vec<String> = std::env::args().map(|word| shell::word(&word)).collect();
    format!(
        "to step through `{kernel}`:\n  gdb -q -ex 'set breakpoint pending on' -ex 'break {kernel}' -ex run --args {}\n",
        words.join(" ")
    )
}
