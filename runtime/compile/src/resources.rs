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
        let warning = line.contains("warning") && !line.starts_with("Remark");
        if !(remark || warning) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// NVRTC 13.0 on two kernels in one text, the first of which spills.
    const SPILL: &str = "\
ptxas warning : Registers are spilled to local memory in function 'spill', 168 bytes spill stores, 172 bytes spill loads
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'spill' for 'sm_86'
ptxas info    : Function properties for spill
ptxas         .     160 bytes stack frame, 168 bytes spill stores, 172 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 160 bytes cumulative stack size, 368 bytes cmem[0]
ptxas info    : Compile time = 45.599 ms
ptxas info    : Compiling entry function 'sum' for 'sm_86'
ptxas info    : Function properties for sum
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 1 barriers, 384 bytes smem, 368 bytes cmem[0]
ptxas info    : Compile time = 1.721 ms";

    /// NVRTC 13.0 on kernels that call a function which is not inlined, with a warning of the front end.
    const DEVICE: &str = "\
fixture.cu(3): warning #177-D: variable \"unused\" was declared but never referenced
  extern \"C\" __global__ void uses(float* out, const float* in, int n) { int unused; out[threadIdx.x] = deep(in, n); }
                                                                            ^

Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"

ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'second' for 'sm_86'
ptxas info    : Function properties for second
ptxas         .     80 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 21 registers, used 4 barriers, 80 bytes cumulative stack size, 256 bytes smem, 372 bytes cmem[0]
ptxas info    : Compile time = 5.412 ms
ptxas info    : Function properties for _Z4deepPKfi
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";

    /// NVRTC 13.0 on wgmma whose accumulators are touched between the instructions.
    const WGMMA: &str = "\
ptxas info    : (C7519) warpgroup.arrive is injected in around line 40 by compiler to allow use of registers in GMMA in function 'serial'
ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function 'serial'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'serial' for 'sm_90a'
ptxas info    : Function properties for serial
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers
ptxas info    : Compile time = 4.078 ms";

    fn of(entry: &str, numbers: [u32; 6]) -> Resources {
        let [registers, spill_stores_bytes, spill_loads_bytes, stack_bytes, static_shared_bytes, barriers] =
            numbers;
        let entry = entry.to_owned();
        Resources {
            entry,
            registers,
            spill_stores_bytes,
            spill_loads_bytes,
            stack_bytes,
            static_shared_bytes,
            barriers,
        }
    }

    #[test]
    fn real_logs_are_read() {
        let spill = [of("spill", [64, 168, 172, 160, 0, 1]), of("sum", [14, 0, 0, 0, 384, 1])];
        assert_eq!(resources(SPILL), spill);
        assert!(spill[0].spills() && !spill[1].spills());
        assert_eq!(resources(DEVICE), [of("second", [21, 0, 0, 80, 256, 4])]);
        assert_eq!(resources(WGMMA), [of("serial", [30, 0, 0, 0, 0, 0])]);
    }

    #[test]
    fn notes_are_what_deserves_a_reader() {
        let spill = "Registers are spilled to local memory in function 'spill', 168 bytes spill stores, 172 bytes spill loads";
        assert_eq!(notes(SPILL), [spill]);
        let unused = "fixture.cu(3): warning #177-D: variable \"unused\" was declared but never referenced";
        assert_eq!(notes(DEVICE), [unused]);
        let found = notes(&format!("{WGMMA}\n{WGMMA}"));
        assert_eq!(found.len(), 2, "each once: {found:?}");
        assert!(
            found[0].starts_with("(C7519) warpgroup.arrive") && found[1].contains("are serialized"),
            "{found:?}"
        );
    }

    #[test]
    fn a_log_that_says_nothing_gives_nothing() {
        for log in ["", "\n\n", "0 bytes stack frame", "ptxas info    : Used 14 registers", "Used registers"]
        {
            assert_eq!((resources(log), notes(log)), (vec![], vec![]), "{log}");
        }
    }
}
