//! The table of GPUs the generator knows.
//!
//! In: a name such as `sm_90a`. Out: limits for tiles and occupancy, families for the choice of template. What cards
//! there are and how fast they are is `card`'s. A `match` on an arch outside this file is a smell: add a column
//! instead. A GPU without a row is declared by one it is like ([`custom`]).

pub mod custom;

use crate::card;
use crate::tuning::{self, TILES, Table};
use std::borrow::Cow;
use std::sync::Arc;

/// A GPU target and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arch {
    /// NVIDIA's name with its suffix: `sm_90a`.
    pub name: Cow<'static, str>,
    /// The row that one without a row of its own was declared by; `None` for a row.
    pub like: Option<Cow<'static, str>>,
    /// Names a template file may carry to be chosen for this GPU (`forward.hopper.cu.tera`), best first.
    pub families: &'static [&'static str],
    /// Most shared memory one block may ask for, bytes.
    pub shared_memory: u32,
    /// Shared memory of one multiprocessor, bytes.
    pub shared_memory_multiprocessor: u32,
    /// Most resident threads of one multiprocessor.
    pub threads_multiprocessor: u32,
    /// Most resident blocks of one multiprocessor.
    pub blocks_multiprocessor: u32,
    /// 32-bit registers of one multiprocessor.
    pub registers_multiprocessor: u32,
    /// The first NVRTC that compiles for it, major and minor; `None` where nobody knows.
    pub nvrtc: Option<(u32, u32)>,
    /// The card that stands for it where none is named, a name in `card::ALL`.
    pub card: &'static str,
    /// Multiprocessors of the GPU at hand; `None`: those of `card`.
    pub multiprocessors: Option<u32>,
    /// Tiles that somebody measured for it, which come before those that Kernwright has.
    pub tuned: Option<Arc<Table>>,
    /// Of the tiles that come into question for an op the one of that number, by preference, for who enumerates what any batch may
    /// choose; where there is none, the best for the batch.
    pub nth_tile: Option<usize>,
}

/// What CUDA keeps for itself of the shared memory of each block, bytes.
pub const RESERVED_SHARED_MEMORY: u32 = 1024;

/// Shared memory is given out in pieces of so many bytes.
const GRAIN: u32 = 128;

const KIB: u32 = 1024;

/// Every GPU target. Limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the same
/// numbers are in `cuda/__device/arch_traits.h` of NVIDIA's CCCL. First NVRTC: PTX ISA, "Release Notes", by the CUDA
/// version of each PTX version. NVRTC 13.0 compiles for all of them.
pub const ALL: &[Arch] = &[
    row("sm_80", &[], 164, 2048, 32, (11, 0), "A100 SXM 80GB"),
    row("sm_86", &[], 100, 1536, 16, (11, 1), "RTX 3060"),
    row("sm_87", &[], 164, 1536, 16, (11, 4), "Jetson AGX Orin 64GB"),
    row("sm_89", &[], 100, 1536, 24, (11, 8), "RTX 4090"),
    row("sm_90a", &["hopper"], 228, 2048, 32, (12, 0), "H200 SXM"),
    row("sm_100a", &["blackwell"], 228, 2048, 32, (12, 8), "B200"),
    row("sm_103a", &["blackwell"], 228, 2048, 32, (12, 9), "B300"),
    row("sm_120a", &[], 100, 1536, 24, (12, 8), "RTX 5090"),
    row("sm_121a", &[], 100, 1536, 24, (12, 9), "GB10"),
];

/// All of them have 64 Ki registers, and give a block all shared memory but what CUDA keeps for itself.
const fn row(
    name: &'static str,
    families: &'static [&'static str],
    shared_memory_kib: u32,
    threads_multiprocessor: u32,
    blocks_multiprocessor: u32,
    nvrtc: (u32, u32),
    card: &'static str,
) -> Arch {
    Arch {
        name: Cow::Borrowed(name),
        like: None,
        families,
        shared_memory: shared_memory_kib * KIB - RESERVED_SHARED_MEMORY,
        shared_memory_multiprocessor: shared_memory_kib * KIB,
        threads_multiprocessor,
        blocks_multiprocessor,
        registers_multiprocessor: 64 * KIB,
        nvrtc: Some(nvrtc),
        card,
        multiprocessors: None,
        tuned: None,
        nth_tile: None,
    }
}

/// The target of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Arch> {
    ALL.iter().find(|arch| arch.name == name)
}

/// The target for a compute capability, `(9, 0)`: the one whose digits are the same.
#[must_use]
pub fn of_capability((major, minor): (u32, u32)) -> Option<&'static Arch> {
    let digits = format!("{major}{minor}");
    ALL.iter().find(|arch| arch.number() == digits)
}

/// Every name, for messages: "`sm_80`, `sm_86`, ...".
#[must_use]
pub fn names() -> String {
    ALL.iter().map(|arch| format!("`{}`", arch.name)).collect::<Vec<_>>().join(", ")
}

/// The target that a name without its letter stands for: `sm_90a` for `sm_90`, since GPUs are known by their number.
#[must_use]
pub fn meant(name: &str) -> Option<&'static Arch> {
    let is_letter = |rest: &str| rest.chars().all(char::is_alphabetic);
    ALL.iter().find(|arch| arch.name.strip_prefix(name).is_some_and(is_letter))
}

/// What to say of a name nobody knows.
#[must_use]
pub fn unknown(name: &str) -> String {
    match meant(name) {
        Some(arch) => format!("`{name}` is not a known GPU: did you mean `{}`?", arch.name),
        None => format!("`{name}` is not a known GPU: allowed are {}", names()),
    }
}

impl Arch {
    /// The number in its name: 90 of `sm_90a`.
    #[must_use]
    pub fn number(&self) -> &str {
        self.name.trim_start_matches("sm_").trim_end_matches(char::is_alphabetic)
    }

    /// Its compute capability, major and minor.
    #[must_use]
    pub fn capability(&self) -> (u32, u32) {
        let number: u32 = self.number().parse().unwrap_or(0);
        (number / 10, number % 10)
    }

    /// Multiprocessors of the GPU at hand, or of the card that stands for it; as many as large ones have where nobody knows.
    #[must_use]
    pub fn multiprocessors(&self) -> usize {
        let of_card =
            || card::ALL.iter().find(|card| card.name == self.card).and_then(|card| card.multiprocessors);
        self.multiprocessors.or_else(of_card).map_or(128, |n| n as usize)
    }

    /// Bytes of shared memory that a block is to ask for here, so that a multiprocessor runs no more of its like at a time than one
    /// of `other` would: for who measures kernels of `other` on this GPU.
    #[must_use]
    pub fn shared_memory_as_on(&self, other: &Self, threads: u32, bytes: u32) -> u32 {
        let own = bytes + RESERVED_SHARED_MEMORY;
        let blocks = (other.shared_memory_multiprocessor / own)
            .min(other.threads_multiprocessor / threads.max(1))
            .min(other.blocks_multiprocessor)
            .max(1);
        // Of one byte more than such a share there is room for `blocks` alone.
        let share = self.shared_memory_multiprocessor / (blocks + 1) + 1;
        bytes
            .max(share.next_multiple_of(GRAIN).saturating_sub(RESERVED_SHARED_MEMORY))
            .min(self.shared_memory)
    }

    /// Its lines of the flat text form, below `target`. A row is named alone; another spells its limits.
    #[must_use]
    pub fn text(&self) -> String {
        let name = &self.name;
        let mut text = format!("target.{name} = true\n");
        if let Some(like) = &self.like {
            text.push_str(&format!("target.{name}.like = {like}\n"));
            for limit in custom::LIMITS {
                text.push_str(&format!("target.{name}.{} = {}\n", limit.name, (limit.of)(self)));
            }
        }
        if let Some(table) = &self.tuned {
            text.push_str(&format!("target.{name}.{TILES} = {}\n", tuning::in_one_line(table)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_its_letter_is_understood() {
        assert_eq!(unknown("sm_90"), "`sm_90` is not a known GPU: did you mean `sm_90a`?");
        assert!(unknown("sm_9").ends_with(&names()));
        assert_eq!(find("sm_121a").map(Arch::number), Some("121"));
    }

    #[test]
    fn a_capability_finds_its_row_with_or_without_a_suffix() {
        let name = |capability| of_capability(capability).map(|arch| &*arch.name);
        assert_eq!(name((9, 0)), Some("sm_90a"));
        assert_eq!(name((8, 6)), Some("sm_86"));
        assert_eq!(name((12, 0)), Some("sm_120a"));
        assert_eq!(name((12, 1)), Some("sm_121a"));
        assert_eq!(name((7, 5)), None);
    }

    #[test]
    fn a_gpu_that_stands_in_for_another_runs_as_many_blocks() {
        let here = find("sm_90a").expect("it is a row");
        for other in ALL.iter().filter(|other| other.shared_memory <= here.shared_memory) {
            for threads in [64, 128, 256, 1024] {
                for bytes in (0..=other.shared_memory).step_by(1000) {
                    let asked = here.shared_memory_as_on(other, threads, bytes);
                    let blocks = |arch: &Arch, bytes: u32| {
                        let of_memory = arch.shared_memory_multiprocessor / (bytes + RESERVED_SHARED_MEMORY);
                        of_memory.min(arch.threads_multiprocessor / threads).min(arch.blocks_multiprocessor)
                    };
                    let place = format!("{bytes} bytes, {threads} threads, {}: {asked}", other.name);
                    assert_eq!(blocks(here, asked), blocks(other, bytes), "{place}");
                    assert!(asked >= bytes && asked <= here.shared_memory, "{place}");
                }
            }
        }
    }

    #[test]
    fn each_row_has_a_card_of_its_own_and_limits_that_agree() {
        for arch in ALL {
            let card = card::ALL.iter().find(|card| card.name == arch.card);
            assert_eq!(card.map(|card| card.arch), Some(&*arch.name), "{}", arch.name);
            assert_eq!(arch.shared_memory + RESERVED_SHARED_MEMORY, arch.shared_memory_multiprocessor);
            assert_eq!(arch.threads_multiprocessor % 512, 0, "{}", arch.name);
            assert_eq!(ALL.iter().filter(|other| other.number() == arch.number()).count(), 1);
        }
    }
}
