//! Addresses of a module become lines of the kernel's text.
//!
//! In: the compiled file with its debug information. Out: the kernel's own line, and the function of the vocabulary that
//! was inlined there. Must not know what happened at the address.

use addr2line::Loader;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

/// A place of a kernel's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The line.
    pub(super) number: u32,
    /// The function called there, where the address lies inside it.
    pub(super) function: Option<String>,
}

/// One step of inlining.
#[derive(Clone, PartialEq, Eq)]
struct Frame {
    /// The function the line is in.
    function: String,
    file: String,
    line: u32,
}

/// The lines of one module.
pub(super) struct Lines {
    // Not to be asked by two threads at once.
    loader: Option<Mutex<Loader>>,
    same: Mutex<HashMap<(u64, u64), bool>>,
    /// The file the text was compiled from.
    source: String,
    /// Lines before this one belong to the vocabulary in front of the kernel.
    first: u32,
}

/// The first line behind the device files that the renderer puts in front of a kernel: it heads each file so.
fn first_line(text: &str) -> u32 {
    let mut first = 1;
    for (number, line) in (1..).zip(text.lines()) {
        if let Some(path) = line.strip_prefix("// --- ") {
            first = if path.starts_with("device/") { u32::MAX } else { number };
        }
    }
    first
}

impl Lines {
    /// Reads the debug information; without it there are no lines.
    pub(super) fn open(module: &Path, source: &Path, text: &str) -> Lines {
        Lines {
            loader: Loader::new(module).ok().map(Mutex::new),
            same: Mutex::new(HashMap::new()),
            source: source.to_string_lossy().into_owned(),
            first: first_line(text),
        }
    }

    /// From the innermost inlined function outwards. `offset` is a return address, from the module's beginning.
    fn frames(&self, offset: u64) -> Vec<Frame> {
        let mut out = Vec::new();
        let Some(Ok(loader)) = self.loader.as_ref().map(Mutex::lock) else { return out };
        let Ok(mut frames) = loader.find_frames(offset.saturating_sub(1)) else { return out };
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.and_then(|name| name.raw_name().ok().map(|raw| bare(&raw)));
            let (file, line) = frame.location.map_or((None, None), |place| (place.file, place.line));
            out.push(Frame {
                function: function.unwrap_or_default(),
                file: file.unwrap_or_default().to_owned(),
                line: line.unwrap_or(0),
            });
        }
        out
    }

    fn is_kernel(&self, frame: &Frame) -> bool {
        let is_header = frame.file.ends_with(".h");
        !is_header && frame.line > 0 && (frame.file != self.source || frame.line >= self.first)
    }

    /// The place of a stack of return addresses, innermost first.
    pub(super) fn line(&self, offsets: &[u64]) -> Option<Line> {
        let mut inner: Option<String> = None;
        for frame in offsets.iter().flat_map(|&offset| self.frames(offset)) {
            if self.is_kernel(&frame) {
                return Some(Line { number: frame.line, function: inner });
            }
            inner = Some(frame.function).filter(|name| !name.is_empty());
        }
        None
    }

    /// Whether two addresses are one place of the text: a compiler may make copies of it.
    pub(super) fn same(&self, one: u64, other: u64) -> bool {
        if let Ok(known) = self.same.lock()
            && let Some(&answer) = known.get(&(one, other))
        {
            return answer;
        }
        let (first, second) = (self.frames(one), self.frames(other));
        let answer = first.is_empty() || first == second;
        if let Ok(mut known) = self.same.lock() {
            known.insert((one, other), answer);
        }
        answer
    }
}

/// The plain name in a mangled one: `_Z11load_floatsILi8EEvPKf` is `load_floats`.
fn bare(raw: &str) -> String {
    let Some(mut rest) = raw.strip_prefix("_Z") else { return raw.to_owned() };
    rest = rest.strip_prefix('L').unwrap_or(rest);
    let is_nested = rest.starts_with('N');
    rest = rest.strip_prefix('N').unwrap_or(rest);
    let mut name = raw;
    while let Some(end) = rest.find(|sign: char| !sign.is_ascii_digit()) {
        let Ok(length) = rest[..end].parse::<usize>() else { break };
        let Some(part) = rest.get(end..end + length) else { break };
        name = part;
        rest = &rest[end + length..];
        if !is_nested {
            break;
        }
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_what_the_compiler_added() {
        for (raw, name) in [
            ("add", "add"),
            ("_Z7load_16IfE6Words4PKT_", "load_16"),
            ("_ZN10kernwright4callIJPfEEEvPFvDpT_EPKPv", "call"),
            ("_ZL9team_sumsRA2_f", "team_sums"),
            ("_Z", "_Z"),
        ] {
            assert_eq!(bare(raw), name);
        }
    }

    #[test]
    fn the_kernel_begins_behind_the_vocabulary() {
        assert_eq!(first_line("a\nb\n"), 1);
        assert_eq!(first_line("// k\n// --- device/types.cuh\nx\n// --- ops/add/sum.cu.tera\ny\n"), 4);
    }
}
