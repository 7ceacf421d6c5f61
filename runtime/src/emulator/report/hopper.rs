//! The words for what the units of sm_90 are misused for: mbarriers, TMA, products of warpgroups.
//!
//! In: the facts of a fault. Out: the end of its report. The numbers are those of `Fault` in device/faults.h.

use super::{Scene, operation, triple};
use crate::emulator::binding::{Report, Waiting};
use std::fmt::Write as _;

/// Appends what is wrong. `access` says what the thread did and where.
pub(super) fn fault(scene: &Scene<'_>, text: &mut String, report: &Report, access: &str, number: u32) {
    let other = triple(report.other_thread);
    let line = |known| scene.line_of(report.other_site, known);
    let (found, allowed) = (report.detail, report.other_detail);
    let place = scene.place(report).0;
    let _ = match number {
        15 => write!(text, "uses {place} as an mbarrier: `mbarrier_init` was not called for it"),
        16 if found > 0 => {
            write!(text, "makes one mbarrier more than the {found} that a block may have here")
        }
        16 => write!(
            text,
            "makes an mbarrier of {place}, where thread {other} made one at {}: each is made once",
            line("mbarrier_init")
        ),
        17 => write!(
            text,
            "gives `{found}` to the mbarrier at {place}: a parity must be 0 or 1, arrivals 1 to 1048575, bytes up to \
             1048575"
        ),
        18 => write!(
            text,
            "arrives once too often at the mbarrier at {place}: `mbarrier_init` of {} allows {found} in a phase",
            line("mbarrier_init")
        ),
        19 => write!(
            text,
            "ends a phase of the mbarrier at {place}, to which {found} bytes more came than it expects: name them with \
             `mbarrier_expect_bytes` before they are copied"
        ),
        20 => write!(
            text,
            "makes the mbarrier at {place}, which expects {found} bytes that no copy has brought when the block ends"
        ),
        21 => write!(
            text,
            "{access}, where a copy of thread {other}, {}, arrives: wait for it with `mbarrier_wait`",
            line("")
        ),
        22 => write!(text, "{access}, where an mbarrier lies"),
        23 => write!(
            text,
            "{access} by an asynchronous unit, which is not shown what thread {other} wrote at {}: call \
             `fence_proxy_async` there, then pass a barrier",
            line("")
        ),
        24 => write!(
            text,
            "copies to arrive at an mbarrier that thread {other} made at {} without `fence_mbarrier_init` behind it",
            line("mbarrier_init")
        ),
        25 => write!(
            text,
            "{access}, which an asynchronous unit still reads for thread {other}, {}: wait for that, then pass a barrier",
            line("")
        ),
        26 => write!(
            text,
            "returns while its copy still reads shared memory: call `bulk_commit`, then `bulk_wait_read`"
        ),
        27 => write!(
            text,
            "{} registers of the product of {}, which is under way: wait for its group with `wgmma_wait`",
            if report.access == 0 { "reads" } else { "writes" },
            line("wgmma_m64k16")
        ),
        28 if found == 1 => write!(
            text,
            "multiplies registers that may have changed since the last product: call `wgmma_fence` before it"
        ),
        28 => write!(
            text,
            "adds to registers that may have been used since the last product: call `wgmma_fence` before it"
        ),
        29 => no_warpgroup(scene, text, report),
        30 => write!(
            text,
            "multiplies a matrix at shared memory + {found}, which is not in the first row of its swizzle's pattern"
        ),
        31 if found == 0 => write!(
            text,
            "copies by a tensor map that is none: pass a parameter `const __grid_constant__ TensorMap` by reference"
        ),
        31 => write!(text, "gives {allowed} coordinates for a tensor of {found} dimensions"),
        32 => write!(
            text,
            "`{}` of `{found}` registers by threads that have {allowed}",
            operation(report.operation)
        ),
        33 if allowed == 0 => write!(
            text,
            "reaches into the shared memory of block {found} of its cluster, which has ended: pass a `cluster_barrier` \
             before blocks return"
        ),
        33 => write!(text, "asks for block {found} of a cluster of {allowed}"),
        34 => write!(
            text,
            "copies {} bytes to {place}, for which nobody has waited when the block ends: wait with `mbarrier_wait`",
            report.bytes
        ),
        number => write!(text, "fault {number}"),
    };
}

fn no_warpgroup(scene: &Scene<'_>, text: &mut String, report: &Report) -> std::fmt::Result {
    let name = operation(report.operation);
    let other = triple(report.other_thread);
    match report.detail {
        1 => {
            write!(text, "threads of one warpgroup give different matrices to `{name}`: thread {other} does")
        }
        2 => write!(
            text,
            "warps of one warpgroup diverge: this one is at `{name}`, thread {other} at `{}` of {}",
            operation(report.other_operation),
            scene.line_of(report.other_site, operation(report.other_operation))
        ),
        3 => write!(text, "`{name}` takes a multiple of 4 registers up to 128"),
        threads => {
            write!(text, "`{name}` needs a warpgroup of 128 threads, which a block of {threads} lacks here")
        }
    }
}

/// What an mbarrier waits for, in brackets.
pub(super) fn missing(one: &Waiting) -> String {
    if operation(one.operation) != "mbarrier_wait" {
        return String::new();
    }
    let arrivals = if one.detail == 1 { "arrival" } else { "arrivals" };
    format!(" ({} {arrivals} and {} bytes are missing)", one.detail, one.bytes)
}
