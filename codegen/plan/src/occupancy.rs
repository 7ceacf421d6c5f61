//! How many blocks of a kernel a multiprocessor runs at a time, and what keeps it from running more.
//!
//! In: what one block takes, and a GPU's limits. Out: [`Occupancy`]. The units in which registers and shared memory are
//! handed out are those of NVIDIA's `cuda_occupancy.h` (CUDA 13.0), alike for compute capability 8.0 to 12.1.

use crate::arch::{Arch, RESERVED_SHARED_MEMORY};

const WARP: u32 = 32;
/// Registers are given to a warp in units of this many.
const REGISTER_UNIT: u32 = 256;
/// A multiprocessor has so many parts, each with its share of the registers; a warp lives in one of them.
const PARTS: u32 = 4;
/// Shared memory is given to a block in units of this many bytes.
const SHARED_MEMORY_UNIT: u32 = 128;

/// What one block of a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its threads.
    pub threads: u32,
    /// Registers of each thread.
    pub registers: u32,
    /// Shared memory, static and dynamic, bytes.
    pub shared_memory: u32,
}

/// How full a multiprocessor is.
#[derive(Clone, Debug, PartialEq)]
pub struct Occupancy {
    /// Blocks it runs at a time; none where even one does not fit.
    pub blocks: u32,
    /// Their threads as a share of the most it can run.
    pub share: f64,
    /// What runs out first: `threads`, `blocks`, `registers`, `shared memory`; several where they agree.
    pub limits: Vec<&'static str>,
}

/// The occupancy of a kernel.
#[must_use]
pub fn occupancy(arch: &Arch, block: Block) -> Occupancy {
    let warps = block.threads.div_ceil(WARP).max(1);
    let registers_of_warp = (block.registers * WARP).next_multiple_of(REGISTER_UNIT).max(REGISTER_UNIT);
    let warps_by_registers = arch.registers_multiprocessor / PARTS / registers_of_warp * PARTS;
    let shared_memory = (block.shared_memory + RESERVED_SHARED_MEMORY).next_multiple_of(SHARED_MEMORY_UNIT);
    let fits = block.shared_memory <= arch.shared_memory;
    let limits = [
        ("threads", arch.threads_multiprocessor / WARP / warps),
        ("blocks", arch.blocks_multiprocessor),
        ("registers", warps_by_registers / warps),
        ("shared memory", if fits { arch.shared_memory_multiprocessor / shared_memory } else { 0 }),
    ];
    let blocks = limits.iter().map(|(_, blocks)| *blocks).min().unwrap_or(0);
    Occupancy {
        blocks,
        share: f64::from(blocks * warps * WARP) / f64::from(arch.threads_multiprocessor),
        limits: limits.into_iter().filter(|(_, most)| *most == blocks).map(|(name, _)| name).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::find;

    fn of(arch: &str, threads: u32, registers: u32, shared_memory: u32) -> (u32, f64, Vec<&'static str>) {
        let arch = find(arch).expect("it is a row");
        let Occupancy { blocks, share, limits } =
            occupancy(arch, Block { threads, registers, shared_memory });
        (blocks, share, limits)
    }

    #[test]
    fn what_runs_out_first_is_the_limit() {
        assert_eq!(of("sm_80", 256, 32, 0), (8, 1.0, vec!["threads", "registers"]));
        assert_eq!(of("sm_86", 256, 32, 0), (6, 1.0, vec!["threads"]));
        assert_eq!(of("sm_80", 32, 16, 0), (32, 0.5, vec!["blocks"]));
        assert_eq!(of("sm_86", 32, 16, 0), (16, 1.0 / 3.0, vec!["blocks"]));
        // 41 registers take as much room as 48.
        assert_eq!(of("sm_80", 128, 41, 0), of("sm_80", 128, 48, 0));
        assert_eq!(of("sm_80", 128, 48, 0), (10, 0.625, vec!["registers"]));
        // 168 registers: 5376 of a warp, 3 warps in each of four parts.
        assert_eq!(of("sm_90a", 384, 168, 0), (1, 0.1875, vec!["registers"]));
        // With what CUDA keeps, 50 KiB are 51.
        assert_eq!(of("sm_80", 128, 32, 50 << 10), (3, 0.1875, vec!["shared memory"]));
    }

    #[test]
    fn a_block_that_does_not_fit_runs_nowhere() {
        assert_eq!(of("sm_86", 128, 32, 100 << 10).0, 0);
        assert_eq!(of("sm_86", 1024, 128, 0), (0, 0.0, vec!["registers"]));
    }
}
