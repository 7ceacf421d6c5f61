//! Other processes on the GPU, as `nvidia-smi` tells them.
//!
//! In: nothing. Out: a list, before and after a run; or that it cannot be known. In a container it may show none, or this
//! process under a number of the host's.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::process::{Command, Stdio};

/// A process that has a context on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Neighbour {
    pub(super) gpu: String,
    pub(super) process: u32,
    pub(super) name: String,
    /// Memory it holds, in the words of `nvidia-smi`.
    pub(super) memory: String,
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.process, self.name, self.memory)
    }
}

/// Every process on every GPU.
pub(super) fn all() -> Option<Vec<Neighbour>> {
    let query = "--query-compute-apps=gpu_uuid,pid,used_memory,process_name";
    let mut command = Command::new("nvidia-smi");
    let output =
        command.args([query, "--format=csv,noheader"]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(read(&String::from_utf8_lossy(&output.stdout)))
}

fn read(text: &str) -> Vec<Neighbour> {
    let line = |line: &str| {
        // A name may hold commas.
        let mut cells = line.splitn(4, ',').map(str::trim);
        let (gpu, process) = (cells.next()?.to_owned(), cells.next()?.parse().ok()?);
        let (memory, name) = (cells.next()?.to_owned(), cells.next()?.to_owned());
        Some(Neighbour { gpu, process, name, memory })
    };
    text.lines().filter_map(line).collect()
}

/// Who else was there, from what was seen before this process had a context and after. One that came meanwhile is
/// this one, if it has its number, or if its number is the host's and no other came. Only those of `gpu` count.
pub(super) fn others(
    before: Vec<Neighbour>,
    after: Vec<Neighbour>,
    own: u32,
    gpu: Option<&str>,
) -> Vec<Neighbour> {
    let here = |all: Vec<Neighbour>| -> Vec<Neighbour> {
        all.into_iter().filter(|one| gpu.is_none_or(|gpu| gpu == one.gpu)).collect()
    };
    let (before, after) = (here(before), here(after));
    let is_known =
        |one: &Neighbour| before.iter().any(|other| (other.process, &other.gpu) == (one.process, &one.gpu));
    let mut new: Vec<Neighbour> = after.into_iter().filter(|one| !is_known(one)).collect();
    match new.iter().any(|one| one.process == own) {
        true => new.retain(|one| one.process != own),
        false if new.len() == 1 => new.clear(),
        false => {}
    }
    before.into_iter().chain(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str =
        "GPU-1, 41, 512 MiB, python, with a comma\nGPU-1, 7, [N/A], /opt/a\n[Not Supported]\n";

    #[test]
    fn lines_are_processes_and_others_are_skipped() {
        let found = read(LISTED);
        let shown: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["41 (python, with a comma, 512 MiB)", "7 (/opt/a, [N/A])"]);
        assert_eq!(read(""), []);
    }

    #[test]
    fn this_process_is_not_its_own_neighbour() {
        let listed = read(LISTED);
        let (first, second) = (vec![listed[0].clone()], vec![listed[1].clone()]);
        assert_eq!(others(vec![], listed.clone(), 7, None), first, "by its number");
        assert_eq!(others(first.clone(), listed.clone(), 1, Some("GPU-1")), first, "the only new one");
        assert_eq!(others(vec![], listed.clone(), 1, None), listed, "either may be it");
        assert_eq!(others(listed.clone(), second.clone(), 1, None), listed, "one that ended was there");
        assert_eq!(others(listed.clone(), listed.clone(), 1, Some("GPU-2")), []);
    }
}
