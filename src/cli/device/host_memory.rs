//! How much memory the host has to give.
//!
//! In: what Linux says of the machine and of the group of processes that this one belongs to. Out: bytes; none elsewhere.

use std::fs;

/// Bytes that can be used without paging.
pub(super) fn available() -> Option<u64> {
    let machine = of_machine(&fs::read_to_string("/proc/meminfo").ok()?);
    let group = || {
        let read = |name: &str| fs::read_to_string(format!("/sys/fs/cgroup/memory.{name}")).ok();
        of_group(&read("max")?, &read("current")?, &read("stat")?)
    };
    machine.into_iter().chain(group()).min()
}

/// What `/proc/meminfo` says is available.
fn of_machine(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// What a group's limit leaves; what it only caches of files can be had back.
fn of_group(max: &str, current: &str, stat: &str) -> Option<u64> {
    let (max, current): (u64, u64) = (max.trim().parse().ok()?, current.trim().parse().ok()?);
    let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok());
    Some(max.saturating_sub(current).saturating_add(cached.unwrap_or(0)).min(max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_says_is_read() {
        assert_eq!(of_machine("MemTotal:  99 kB\nMemAvailable:   17 kB\n"), Some(17 << 10));
        assert_eq!(of_machine("MemTotal:  99 kB\n"), None);
        assert_eq!(of_group("1000\n", "700\n", "anon 600\ninactive_file 50\n"), Some(350));
        assert_eq!(of_group("max\n", "700\n", ""), None);
    }
}
