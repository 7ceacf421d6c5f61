//! What ptxas says about each kernel, read from NVRTC's log.
//!
//! The log comes from `--ptxas-options=-v` and `--ptxas-options=--warn-on-spills`; one [`Resources`] per entry
//! function and the remarks worth showing go out. Lines that are not understood are skipped.

use serde::{Deserialize, Serialize};

/// What one kernel takes of a multiprocessor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// The entry function's name.
    pub entry: String,
    /// Registers per thread.
    pub registers: u32,
    /// Bytes per thread written to local memory because registers ran out.
    pub spill_stores_bytes: u32,
    /// Bytes per thread read back.
    pub spill_loads_bytes: u32,
    /// Local memory per thread: spills and arrays indexed at run time.
    pub stack_bytes: u32,
    /// Static shared memory per block; dynamic shared memory is set at launch and not known here.
    pub static_shared_bytes: u32,
    /// Named barriers.
    pub barriers: u32,
}

impl Resources {
    /// Whether registers ran out.
    pub fn spills(&self) -> bool {
        self.spill_stores_bytes + self.spill_loads_bytes > 0
    }
}

/// The resources of each entry function, in the order of the log.
pub fn resources(log: &str) -> Vec<Resources> {
    let mut out: Vec<Resources> = Vec::new();
    // Properties of device functions that were not inlined are printed too, after `Function properties for`.
    let mut of_entry = false;
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let entry = rest.split('\'').next().unwrap_or(rest).to_owned();
            out.push(Resources { entry, ..Resources::default() });
            of_entry = true;
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            of_entry = out.last().is_some_and(|last| last.entry == name.trim().trim_matches('\''));
        }
        let Some(last) = out.last_mut() else { continue };
        if line.contains("bytes stack frame") && of_entry {
            last.stack_bytes = number_before(line, " bytes stack frame");
            last.spill_stores_bytes = number_before(line, " bytes spill stores");
            last.spill_loads_bytes = number_before(line, " bytes spill loads");
        } else if line.contains(" registers") && line.contains("Used ") {
            last.registers = number_before(line, " registers");
            last.barriers = number_before(line, " barriers");
            last.static_shared_bytes = number_before(line, " bytes smem");
        }
    }
    out
}

/// The lines of a log that deserve a reader: warnings of the compiler and of ptxas, and ptxas's numbered remarks,
/// such as `C7509` (wgmma instructions are serialised). Each once, without ptxas's own prefix.
pub fn notes(log: &str) -> Vec<String> {
    let mut out = Vec::new();
    for line in log.lines() {
        let remark = line.starts_with("ptxas") && (line.contains("(C7") || line.contains("Performance Loss"));
        if !(remark || line.contains("warning")) {
            continue;
        }
        let text = match line.split_once(" : ").or_else(|| line.split_once(": ")) {
            Some((prefix, rest)) if prefix.starts_with("ptxas") => rest,
            _ => line,
        };
        let text = text.trim().to_owned();
        if !text.is_empty() && !out.contains(&text) {
            out.push(text);
        }
    }
    out
}

/// The number that ends right before `unit`, 0 when there is none.
fn number_before(line: &str, unit: &str) -> u32 {
    let Some((before, _)) = line.split_once(unit) else { return 0 };
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
    digits.parse().unwrap_or(0)
}
