//! The table of GPUs the generator knows, with the card that stands for each in rooflines.
//!
//! In: a name such as `sm_90a`. Out: limits for tiles, families for the choice of template, speeds for the cost
//! table. A `match` on an arch outside this file is a smell: add a column instead.

/// A GPU target and its limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Arch {
    /// NVIDIA's name with its suffix: `sm_90a`.
    pub name: &'static str,
    /// Names a template file may carry to be chosen for this GPU (`forward.hopper.cu.tera`), best first.
    pub families: &'static [&'static str],
    /// Most shared memory one block may ask for, bytes.
    pub shared_memory_block: u32,
    /// Shared memory of one multiprocessor, bytes.
    pub shared_memory_multiprocessor: u32,
    /// Most resident threads of one multiprocessor.
    pub threads_multiprocessor: u32,
    /// The card whose speeds the cost table uses.
    pub card: Card,
}

/// Speeds of one card, from its maker's data sheet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Its name in the shops.
    pub name: &'static str,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Dense bf16 tensor-core rate with fp32 sums, FLOP/s.
    pub tensor_flops: f64,
    /// fp32 rate outside the tensor cores, FLOP/s.
    pub fp32_flops: f64,
    /// Device memory bandwidth, bytes/s.
    pub bandwidth: f64,
    /// Device memory, bytes.
    pub memory: u64,
}

const KIB: u32 = 1024;
const GIB: u64 = 1 << 30;

/// Every GPU target. Limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
/// Speeds: NVIDIA's data sheets of the A100, H200, and the GA102, Ada and Blackwell RTX architecture papers.
pub const ALL: &[Arch] = &[
    Arch {
        name: "sm_80",
        families: &[],
        shared_memory_block: 163 * KIB,
        shared_memory_multiprocessor: 164 * KIB,
        threads_multiprocessor: 2048,
        card: Card {
            name: "A100 SXM 80 GB",
            multiprocessors: 108,
            tensor_flops: 312e12,
            fp32_flops: 19.5e12,
            bandwidth: 2.039e12,
            memory: 80 * GIB,
        },
    },
    Arch {
        name: "sm_86",
        families: &[],
        shared_memory_block: 99 * KIB,
        shared_memory_multiprocessor: 100 * KIB,
        threads_multiprocessor: 1536,
        card: Card {
            name: "RTX 3060 12 GB",
            multiprocessors: 28,
            tensor_flops: 25.5e12,
            fp32_flops: 12.7e12,
            bandwidth: 0.360e12,
            memory: 12 * GIB,
        },
    },
    Arch {
        name: "sm_89",
        families: &[],
        shared_memory_block: 99 * KIB,
        shared_memory_multiprocessor: 100 * KIB,
        threads_multiprocessor: 1536,
        card: Card {
            name: "RTX 4090",
            multiprocessors: 128,
            tensor_flops: 165.2e12,
            fp32_flops: 82.6e12,
            bandwidth: 1.008e12,
            memory: 24 * GIB,
        },
    },
    Arch {
        name: "sm_90a",
        families: &["hopper"],
        shared_memory_block: 227 * KIB,
        shared_memory_multiprocessor: 228 * KIB,
        threads_multiprocessor: 2048,
        card: Card {
            name: "H200 SXM",
            multiprocessors: 132,
            tensor_flops: 989e12,
            fp32_flops: 67e12,
            bandwidth: 4.8e12,
            memory: 141 * 1_000_000_000,
        },
    },
    Arch {
        name: "sm_120a",
        families: &[],
        shared_memory_block: 99 * KIB,
        shared_memory_multiprocessor: 100 * KIB,
        threads_multiprocessor: 1536,
        card: Card {
            name: "RTX 5090",
            multiprocessors: 170,
            tensor_flops: 209.5e12,
            fp32_flops: 104.8e12,
            bandwidth: 1.792e12,
            memory: 32 * GIB,
        },
    },
];

/// The target of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Arch> {
    ALL.iter().find(|arch| arch.name == name)
}

/// Every name, for messages: "`sm_80`, `sm_86`, ...".
#[must_use]
pub fn names() -> String {
    ALL.iter().map(|arch| format!("`{}`", arch.name)).collect::<Vec<_>>().join(", ")
}
