//! What kernels' speed depends on, counted by kernel and line.
//!
//! In: the library's rows, a return address each. Out: [`Counter`]s, in which what was inlined or copied to several
//! addresses is one line again. What the numbers mean is told by `device/counters.cc`.

use super::binding::CounterRow;
use super::lines::Line;
use std::collections::BTreeMap;

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counted {
    /// Wavefronts of shared memory; more than the least are bank conflicts.
    SharedMemory,
    /// Sectors of 32 bytes of global memory; many more than the least are loads that do not lie together.
    GlobalMemory,
    /// Matrix products of a warp.
    Products,
    /// Warps that waited at a barrier.
    Barriers,
}

/// The counts of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The kernel.
    pub kernel: String,
    /// The line of its text.
    pub line: u32,
    /// The function of the vocabulary that it called, unless it is a plain access.
    pub function: Option<String>,
    /// What is counted.
    pub what: Counted,
    /// How often a warp was there.
    pub requests: u64,
    /// Wavefronts or sectors that took.
    pub units: u64,
    /// The fewest it could have taken.
    pub least: u64,
}

type Place = (String, u32, Option<String>, Counted);

/// The counts of all launches so far.
#[derive(Debug, Default)]
pub(super) struct Counters {
    counts: BTreeMap<Place, [u64; 3]>,
}

impl Counters {
    pub(super) fn add(&mut self, kernel: &str, rows: &[CounterRow], line: impl Fn(u64) -> Option<Line>) {
        for row in rows {
            let what = match row.what {
                0 => Counted::SharedMemory,
                1 => Counted::GlobalMemory,
                2 => Counted::Products,
                _ => Counted::Barriers,
            };
            let Line { number, function } = line(row.site).unwrap_or(Line { number: 0, function: None });
            let sums = self.counts.entry((kernel.to_owned(), number, function, what)).or_default();
            for (sum, count) in sums.iter_mut().zip([row.requests, row.units, row.least]) {
                *sum += count;
            }
        }
    }

    pub(super) fn sorted(&self) -> Vec<Counter> {
        let counter =
            |((kernel, line, function, what), [requests, units, least]): (&Place, &[u64; 3])| Counter {
                kernel: kernel.clone(),
                line: *line,
                function: function.clone(),
                what: *what,
                requests: *requests,
                units: *units,
                least: *least,
            };
        self.counts.iter().map(counter).collect()
    }
}
