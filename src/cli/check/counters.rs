//! What kernels' speed depends on: counts by kernel, and the lines that waste most.
//!
//! In: the emulator's counters and the kernels' texts. Out: a table, or the same as data.

use super::super::table::{Row, Side, Table};
use super::super::units;
use kernwright_runtime::emulator::{Counted, Counter};
use serde::Serialize;

/// Of one kernel, over all of its launches.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Counts {
    shared_memory: Traffic,
    global_memory: Traffic,
    /// Matrix products of a warp.
    products: u64,
    /// Warps that waited at a barrier.
    barriers: u64,
    /// Lines that touch memory.
    lines: Vec<Line>,
}

/// Accesses of warps, and what serving them took: wavefronts of shared memory, sectors of 32 bytes of global memory.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Traffic {
    requests: u64,
    units: u64,
    /// The fewest that could have served them.
    least: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Line {
    line: u32,
    memory: &'static str,
    #[serde(flatten)]
    traffic: Traffic,
    source: String,
}

/// So many lines of a kernel are shown.
const SHOWN: usize = 3;

impl Traffic {
    fn add(&mut self, counter: &Counter) {
        self.requests += counter.requests;
        self.units += counter.units;
        self.least += counter.least;
    }

    fn excess(&self) -> u64 {
        self.units.saturating_sub(self.least)
    }

    fn ratio(&self) -> f64 {
        self.units as f64 / self.least.max(1) as f64
    }
}

impl Counts {
    /// Adds what was counted at a line of `text`.
    pub(super) fn add(&mut self, counter: &Counter, text: &str) {
        let memory = match counter.what {
            Counted::Products => {
                self.products += counter.requests;
                return;
            }
            Counted::Barriers => {
                self.barriers += counter.requests;
                return;
            }
            Counted::SharedMemory => {
                self.shared_memory.add(counter);
                "shared"
            }
            Counted::GlobalMemory => {
                self.global_memory.add(counter);
                "global"
            }
        };
        let known = self.lines.iter_mut().find(|line| line.line == counter.line && line.memory == memory);
        if let Some(line) = known {
            line.traffic.add(counter);
            return;
        }
        let index = usize::try_from(counter.line).ok().and_then(|line| line.checked_sub(1));
        let source = index.and_then(|index| text.lines().nth(index)).unwrap_or_default().trim().to_owned();
        let mut traffic = Traffic::default();
        traffic.add(counter);
        self.lines.push(Line { line: counter.line, memory, traffic, source });
    }

    /// Those that waste most first; none that wastes nothing.
    fn worst(&self) -> Vec<&Line> {
        let mut lines: Vec<&Line> = self.lines.iter().filter(|line| line.traffic.excess() > 0).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.traffic.excess()));
        lines.truncate(SHOWN);
        lines
    }
}

/// Two lines and more for each kernel: its counts, and its worst lines.
pub(super) fn table<'a>(kernels: impl Iterator<Item = (&'a str, &'a Counts)>) -> Vec<String> {
    use Side::{Left, Right};
    let columns = vec![
        ("", Left),
        ("requests", Right),
        ("units", Right),
        ("least", Right),
        ("per request", Right),
        ("ratio", Right),
        ("", Left),
    ];
    let grouped = |n: u64| units::grouped(usize::try_from(n).unwrap_or(usize::MAX));
    let cells = |name: String, traffic: Traffic, source: &str| {
        Row::Cells(vec![
            name,
            grouped(traffic.requests),
            grouped(traffic.units),
            grouped(traffic.least),
            format!("{:.1}", traffic.units as f64 / traffic.requests.max(1) as f64),
            format!("{:.2}", traffic.ratio()),
            source.chars().take(60).collect(),
        ])
    };
    let mut rows = Vec::new();
    for (name, counts) in kernels {
        let mut heading = format!("\n{name}: {} barrier waits", grouped(counts.barriers));
        if counts.products > 0 {
            heading.push_str(&format!(", {} matrix products", grouped(counts.products)));
        }
        rows.push(Row::Heading(heading));
        for (memory, traffic) in [("shared", counts.shared_memory), ("global", counts.global_memory)] {
            if traffic.requests > 0 {
                rows.push(cells(format!("  {memory} memory"), traffic, ""));
            }
        }
        for line in counts.worst() {
            rows.push(cells(format!("    {}, line {}", line.memory, line.line), line.traffic, &line.source));
        }
    }
    let mut lines = vec![
        String::new(),
        "requests: accesses of a warp; units: wavefronts of shared memory (more than the least are bank conflicts),"
            .to_owned(),
        "sectors of 32 bytes of global memory; below each kernel its worst lines, as `cuda --show KERNEL` counts them"
            .to_owned(),
    ];
    lines.extend(Table { columns, rows }.lines());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_waste_nothing_are_not_shown_and_the_worst_come_first() {
        let mut counts = Counts::default();
        let text = "one\n  two\nthree\nfour";
        for (line, what, units, least) in [
            (1, Counted::SharedMemory, 4, 4),
            (2, Counted::SharedMemory, 8, 4),
            (3, Counted::GlobalMemory, 100, 25),
            (2, Counted::SharedMemory, 8, 4),
            (4, Counted::Products, 3, 3),
        ] {
            let kernel = "scale".to_owned();
            counts.add(&Counter { kernel, line, function: None, what, requests: 2, units, least }, text);
        }
        let worst: Vec<_> = counts.worst().iter().map(|line| (line.line, line.source.as_str())).collect();
        assert_eq!(worst, [(3, "three"), (2, "two")]);
        assert_eq!((counts.products, counts.shared_memory.units, counts.shared_memory.least), (2, 20, 12));
        let lines = table([("scale", &counts)].into_iter());
        assert!(
            lines.iter().any(|line| line.ends_with("scale: 0 barrier waits, 2 matrix products")),
            "{lines:?}"
        );
        assert!(
            lines.iter().any(|line| line.contains("global, line 3") && line.contains("4.00")),
            "{lines:?}"
        );
    }
}
