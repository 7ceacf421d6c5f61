//! The words of a fault.
//!
//! In: the facts that the library noted, the lines of the kernel, the names of the allocations. Out: one text that says
//! which thread did what at which line, what was found and what is allowed.

use super::binding::{self, Waiting};
use super::lines::{Line, Lines};
use super::memory::{Address, Memory};
use std::fmt::Write as _;

/// Everything a report speaks of.
pub(super) struct Scene<'a> {
    pub(super) kernel: &'a str,
    /// Where the module lies.
    pub(super) base: u64,
    pub(super) lines: &'a Lines,
    pub(super) memory: &'a Memory,
    /// Threads of a block.
    pub(super) block: u32,
}

mod hopper;

/// In the order of `Operation` in device/faults.h.
const OPERATIONS: [&str; 20] = [
    "nothing",
    "barrier",
    "named_barrier",
    "named_barrier_arrive",
    "warp_barrier",
    "shuffle_xor",
    "shuffle",
    "ballot",
    "mma",
    "ldmatrix",
    "stmatrix",
    "elect_one",
    "mbarrier_wait",
    "wgmma_m64k16",
    "wgmma_commit",
    "wgmma_wait",
    "registers_release",
    "registers_acquire",
    "cluster_arrive",
    "cluster_wait",
];

fn operation(number: u32) -> &'static str {
    OPERATIONS.get(number as usize).copied().unwrap_or("nothing")
}

/// In the order of `Access` in device/faults.h.
fn verbs(access: u32) -> (&'static str, &'static str) {
    match access {
        0 => ("reads", "read"),
        1 => ("writes", "wrote"),
        _ => ("adds to", "added to"),
    }
}

const SHARED: &str = "shared memory";

fn triple([x, y, z]: [u32; 3]) -> String {
    format!("({x}, {y}, {z})")
}

/// `known` is the function that is spoken of anyway.
fn line_text(line: Option<&Line>, known: &str) -> String {
    match line {
        Some(Line { number, function: Some(function) }) if function == known => format!("line {number}"),
        Some(Line { number, function: Some(function) }) => format!("line {number} (`{function}`)"),
        Some(Line { number, function: None }) => format!("line {number}"),
        None => "an unknown line".to_owned(),
    }
}

impl Scene<'_> {
    fn line(&self, sites: &[u64]) -> Option<Line> {
        let offsets: Vec<u64> = sites.iter().map(|site| site.wrapping_sub(self.base)).collect();
        self.lines.line(&offsets)
    }

    fn line_of(&self, site: u64, known: &str) -> String {
        line_text(self.line(&[site]).as_ref(), known)
    }

    /// `x` + 4096, which names what lies there or is just missed.
    fn place(&self, report: &binding::Report) -> (String, Option<u64>) {
        let [shared, shared_bytes] = report.shared;
        let offset = report.address.wrapping_sub(shared);
        // Beyond its end nothing of the kernel's lies for a while.
        if offset < shared_bytes + 1024 && report.other_block > 0 {
            let place = format!("{SHARED} of block {} of its cluster + {offset}", report.other_block - 1);
            return (place, Some(shared_bytes));
        }
        if offset < shared_bytes + 1024 {
            return (format!("{SHARED} + {offset}"), Some(shared_bytes));
        }
        if report.address < 1 << 16 {
            return (format!("null + {}", report.address), None);
        }
        match self.memory.around(Address(report.address)) {
            Some((one, offset)) if offset < 0 => (format!("`{}` - {}", one.name, -offset), Some(one.bytes())),
            Some((one, offset)) => (format!("`{}` + {offset}", one.name), Some(one.bytes())),
            None => (format!("address {:#x}", report.address), None),
        }
    }

    /// The report.
    pub(super) fn text(&self, report: &binding::Report) -> String {
        let mut text = format!("`{}`: ", self.kernel);
        if report.fault == 9 {
            self.stuck(&mut text, report);
            return text;
        }
        let line = self.line(&report.frames[..report.n_frames as usize]);
        let _ = write!(
            text,
            "thread {} of block {}, {}: ",
            triple(report.thread),
            triple(report.block),
            line_text(line.as_ref(), operation(report.operation))
        );
        self.fault(&mut text, report);
        text
    }

    fn fault(&self, text: &mut String, report: &binding::Report) {
        let (place, size) = self.place(report);
        let (does, did) = (verbs(report.access).0, verbs(report.other_access).1);
        let bytes = report.bytes;
        let unit = if bytes == 1 { "byte" } else { "bytes" };
        let other = triple(report.other_thread);
        let access = format!("{does} {bytes} {unit} at {place}");
        let _ = match report.fault {
            1 => match (place.contains(" - "), size) {
                (true, Some(size)) => write!(text, "{access}, before the first of its {size} bytes"),
                (false, Some(size)) => write!(text, "{access}, past the end of its {size} bytes"),
                (_, None) => write!(text, "{access}, where nothing is allocated"),
            },
            2 if report.detail != 0 => {
                write!(text, "{access}, which must be a multiple of {}", report.detail)
            }
            2 => write!(text, "{access}, which must be a multiple of {}", bytes & bytes.wrapping_neg()),
            3 if place.starts_with(SHARED) => write!(
                text,
                "{access}, where nobody has written byte {} yet: fill it, and pass a barrier before it is read",
                report.detail
            ),
            3 => write!(text, "{access}, where nobody has written byte {}", report.detail),
            4 => write!(
                text,
                "{access}, where a copy of thread {other}, {}, is still under way: wait for its group, then pass a barrier",
                self.line_of(report.other_site, operation(report.other_operation))
            ),
            5 => write!(
                text,
                "{access}, which thread {other} {did} at {} with no barrier between",
                self.line_of(report.other_site, operation(report.other_operation))
            ),
            6 => write!(text, "{access}, which must lie in shared memory"),
            7 => write!(
                text,
                "lanes of one warp diverge: this one is at `{}`, thread {other} at `{}` of {}",
                operation(report.operation),
                operation(report.other_operation),
                self.line_of(report.other_site, operation(report.other_operation))
            ),
            8 => write!(
                text,
                "threads of one block are at different barriers: thread {other} is at that of {}",
                self.line_of(report.other_site, operation(report.other_operation))
            ),
            10 if report.other_detail == 0 => write!(
                text,
                "the threads of a barrier must be a multiple of 32 up to the block's {}, found `{}`",
                self.block.next_multiple_of(32),
                report.detail
            ),
            10 => write!(
                text,
                "waits at a barrier with {} threads at which others wait with {}",
                report.detail, report.other_detail
            ),
            11 if report.operation == 5 || report.operation == 6 => write!(
                text,
                "`{}` asks for lane {}, which a block of {} threads lacks in its last warp",
                operation(report.operation),
                report.detail,
                report.other_detail
            ),
            11 => write!(
                text,
                "`{}` needs all 32 lanes, but the last warp of a block of {} threads has {}",
                operation(report.operation),
                report.other_detail,
                report.detail
            ),
            12 => write!(text, "its stack is full: calls nest too deeply, or an array is too large"),
            13 => write!(text, "{access}, which is a constant"),
            14 => write!(text, "a named barrier must be 0 to 15, found `{}`", report.detail as i32),
            number => return hopper::fault(self, text, report, &access, number),
        };
    }

    /// Who waits where, neighbours together.
    fn stuck(&self, text: &mut String, report: &binding::Report) {
        let waiting = &report.waiting[..(report.n_waiting as usize).min(binding::MOST_THREADS)];
        let _ = write!(text, "no thread of block {} can go on: ", triple(report.block));
        let mut first = 0;
        let mut parts = Vec::new();
        while first < waiting.len() {
            let what = self.waits(&waiting[first]);
            let count = waiting[first..].iter().take_while(|one| self.waits(one) == what).count();
            let last = first + count - 1;
            let who =
                if count == 1 { format!("thread {first}") } else { format!("threads {first} to {last}") };
            let verb = if count == 1 { what.one } else { what.many };
            parts.push(format!("{who} {verb}{}", what.place));
            first += count;
        }
        text.push_str(&parts.join("; "));
    }

    fn waits(&self, one: &Waiting) -> What {
        if one.has_returned != 0 {
            return What { one: "has returned", many: "have returned", place: String::new() };
        }
        let name = operation(one.operation);
        let number = if name.starts_with("named") { format!(" {}", one.detail) } else { String::new() };
        let place =
            format!(" at `{name}`{number} of {}{}", self.line_of(one.site, name), hopper::missing(one));
        What { one: "waits", many: "wait", place }
    }
}

#[derive(PartialEq)]
struct What {
    one: &'static str,
    many: &'static str,
    place: String,
}
