//! The table of cards: what a GPU that can be bought does per second.
//!
//! In: nothing. Out: speeds for rooflines, each with its source. Limits of a kernel are not here: those are `arch`'s.
//! A card whose speeds nobody publishes has no row.

use std::borrow::Cow;

/// Speeds of one card, from its maker.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// Its name in the shops.
    pub name: Cow<'static, str>,
    /// Name of the row in `arch::ALL` that it belongs to.
    pub arch: &'static str,
    /// Streaming multiprocessors, where they are published.
    pub multiprocessors: Option<u32>,
    /// Dense bf16 tensor-core rate with fp32 sums, FLOP/s.
    pub tensor_flops: f64,
    /// fp32 rate outside the tensor cores, FLOP/s.
    pub fp32_flops: f64,
    /// Device memory bandwidth, bytes/s.
    pub bandwidth: f64,
    /// Device memory, bytes.
    pub memory: u64,
    /// Where the numbers are from.
    pub source: Cow<'static, str>,
}

const GIB: u64 = 1 << 30;
const GB: u64 = 1_000_000_000;

const GA102: &str = "NVIDIA Ampere GA102 GPU Architecture, v2.0; clocks and memory from the card's page";
const ADA: &str = "NVIDIA Ada GPU Architecture, v2.1; clocks and memory from the card's page";
const RTX_BLACKWELL: &str =
    "NVIDIA RTX Blackwell GPU Architecture, v1.1; clocks and memory from the card's page";
const A100: &str = "NVIDIA A100 data sheet";
const HOPPER: &str = "NVIDIA H100 Tensor Core GPU Architecture, v1.04";

/// Every card, by architecture. A rate that a data sheet gives with sparsity is halved.
pub const ALL: &[Card] = &[
    given("A100 SXM 80GB", "sm_80", 108, (312e12, 19.5e12), 2039e9, 80 * GIB, A100),
    given("A100 SXM 40GB", "sm_80", 108, (312e12, 19.5e12), 1555e9, 40 * GIB, A100),
    given("A100 PCIe 80GB", "sm_80", 108, (312e12, 19.5e12), 1935e9, 80 * GIB, A100),
    given("A100 PCIe 40GB", "sm_80", 108, (312e12, 19.5e12), 1555e9, 40 * GIB, A100),
    given("A30", "sm_80", 56, (165e12, 10.3e12), 933e9, 24 * GIB, "NVIDIA A30 data sheet"),
    geforce("RTX 3060", "sm_86", (28, 1777), 360e9, 12, GA102),
    geforce("RTX 3060 Ti", "sm_86", (38, 1665), 448e9, 8, GA102),
    geforce("RTX 3070", "sm_86", (46, 1725), 448e9, 8, GA102),
    geforce("RTX 3070 Ti", "sm_86", (48, 1770), 608.3e9, 8, GA102),
    geforce("RTX 3080", "sm_86", (68, 1710), 760.3e9, 10, GA102),
    geforce("RTX 3080 Ti", "sm_86", (80, 1665), 912.4e9, 12, GA102),
    geforce("RTX 3090", "sm_86", (82, 1695), 936.2e9, 24, GA102),
    geforce("RTX 3090 Ti", "sm_86", (84, 1860), 1008e9, 24, GA102),
    professional("RTX A6000", "sm_86", (84, 1800), 768e9, 48, GA102),
    given("A10", "sm_86", 72, (125e12, 31.2e12), 600e9, 24 * GIB, "NVIDIA A10 data sheet"),
    given("A40", "sm_86", 84, (149.7e12, 37.4e12), 696e9, 48 * GIB, "NVIDIA A40 data sheet"),
    // The tensor cores do a quarter of the sparse INT8 rate of the GPU alone, without the two DLAs.
    given(
        "Jetson AGX Orin 64GB",
        "sm_87",
        16,
        (42.5e12, 5.3e12),
        204.8e9,
        64 * GIB,
        "Jetson AGX Orin Series technical brief, v1.2: 170 sparse INT8 TOPS of the GPU",
    ),
    geforce("RTX 4060", "sm_89", (24, 2460), 272e9, 8, ADA),
    geforce("RTX 4060 Ti 8GB", "sm_89", (34, 2535), 288e9, 8, ADA),
    geforce("RTX 4060 Ti 16GB", "sm_89", (34, 2535), 288e9, 16, ADA),
    geforce("RTX 4070", "sm_89", (46, 2475), 504.2e9, 12, ADA),
    geforce("RTX 4070 Super", "sm_89", (56, 2475), 504.2e9, 12, ADA),
    geforce("RTX 4070 Ti", "sm_89", (60, 2610), 504.2e9, 12, ADA),
    geforce("RTX 4070 Ti Super", "sm_89", (66, 2610), 672.3e9, 16, ADA),
    geforce("RTX 4080", "sm_89", (76, 2505), 716.8e9, 16, ADA),
    geforce("RTX 4080 Super", "sm_89", (80, 2550), 736.3e9, 16, ADA),
    geforce("RTX 4090", "sm_89", (128, 2520), 1008e9, 24, ADA),
    professional("RTX 6000 Ada", "sm_89", (142, 2505), 960e9, 48, ADA),
    given("L4", "sm_89", 58, (121e12, 30.3e12), 300e9, 24 * GIB, "NVIDIA L4 data sheet"),
    given("L40", "sm_89", 142, (181.05e12, 90.5e12), 864e9, 48 * GIB, "NVIDIA L40 data sheet"),
    given("L40S", "sm_89", 142, (362.05e12, 91.6e12), 864e9, 48 * GIB, "NVIDIA L40S data sheet"),
    given("H100 SXM", "sm_90a", 132, (989.4e12, 66.9e12), 3350e9, 80 * GIB, HOPPER),
    given("H100 PCIe", "sm_90a", 114, (756e12, 51.2e12), 2000e9, 80 * GIB, HOPPER),
    given("H100 NVL", "sm_90a", 132, (835.5e12, 60e12), 3900e9, 94 * GB, "NVIDIA H100 data sheet"),
    given("H200 SXM", "sm_90a", 132, (989e12, 67e12), 4800e9, 141 * GB, "NVIDIA H200 data sheet"),
    given("H200 NVL", "sm_90a", 132, (835.5e12, 60e12), 4800e9, 141 * GB, "NVIDIA H200 data sheet"),
    given("GH200 96GB", "sm_90a", 132, (989e12, 67e12), 4000e9, 96 * GB, "NVIDIA GH200 data sheet"),
    given("GH200 144GB", "sm_90a", 132, (989e12, 67e12), 4900e9, 144 * GB, "NVIDIA GH200 data sheet"),
    given(
        "B200",
        "sm_100a",
        148,
        (2250e12, 75e12),
        7700e9,
        180 * GB,
        "NVIDIA Blackwell data sheet, HGX B200",
    ),
    // The whole chip has 160 multiprocessors; how many of them are sold nobody says.
    given("B300", "sm_103a", 0, (2250e12, 75e12), 8000e9, 288 * GB, "NVIDIA HGX B300 data sheet"),
    geforce("RTX 5070", "sm_120a", (48, 2512), 672e9, 12, RTX_BLACKWELL),
    geforce("RTX 5070 Ti", "sm_120a", (70, 2452), 896e9, 16, RTX_BLACKWELL),
    geforce("RTX 5080", "sm_120a", (84, 2617), 960e9, 16, RTX_BLACKWELL),
    geforce("RTX 5090", "sm_120a", (170, 2407), 1792e9, 32, RTX_BLACKWELL),
    given(
        "RTX PRO 6000",
        "sm_120a",
        188,
        (500e12, 125e12),
        1792e9,
        96 * GIB,
        "NVIDIA RTX PRO 6000 Blackwell data sheet: 4000 sparse FP4 TOPS, an eighth in dense bf16",
    ),
    given(
        "GB10",
        "sm_121a",
        48,
        (125e12, 29.7e12),
        273e9,
        128 * GB,
        "NVIDIA DGX Spark data sheet: 1000 sparse FP4 TOPS, an eighth in dense bf16; fp32 at 2418 MHz",
    ),
];

/// By its data sheet; 0 multiprocessors where that is silent.
const fn given(
    name: &'static str,
    arch: &'static str,
    multiprocessors: u32,
    (tensor_flops, fp32_flops): (f64, f64),
    bandwidth: f64,
    memory: u64,
    source: &'static str,
) -> Card {
    Card {
        name: Cow::Borrowed(name),
        arch,
        multiprocessors: if multiprocessors == 0 { None } else { Some(multiprocessors) },
        tensor_flops,
        fp32_flops,
        bandwidth,
        memory,
        source: Cow::Borrowed(source),
    }
}

/// By its multiprocessors and boost clock in MHz: 128 multiply-adds per clock and multiprocessor outside the tensor
/// cores, and `tensor_factor` times as many inside.
const fn clocked(
    name: &'static str,
    arch: &'static str,
    (multiprocessors, clock): (u32, u32),
    tensor_factor: f64,
    memory: (f64, u64),
    source: &'static str,
) -> Card {
    let fp32 = 128.0 * 2.0 * multiprocessors as f64 * clock as f64 * 1e6;
    let rates = (tensor_factor * fp32, fp32);
    given(name, arch, multiprocessors, rates, memory.0, memory.1 * GIB, source)
}

/// GeForce: tensor cores that sum in fp32 run at half of their rate.
const fn geforce(
    name: &'static str,
    arch: &'static str,
    chip: (u32, u32),
    bandwidth: f64,
    gib: u64,
    source: &'static str,
) -> Card {
    clocked(name, arch, chip, 2.0, (bandwidth, gib), source)
}

/// The same chips in workstations: at their full rate.
const fn professional(
    name: &'static str,
    arch: &'static str,
    chip: (u32, u32),
    bandwidth: f64,
    gib: u64,
    source: &'static str,
) -> Card {
    clocked(name, arch, chip, 4.0, (bandwidth, gib), source)
}

impl Card {
    /// What flags call it: `rtx-4090`.
    #[must_use]
    pub fn slug(&self) -> String {
        self.name.to_lowercase().replace(' ', "-")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch;

    #[test]
    fn every_card_belongs_to_a_row_and_has_a_source() {
        for card in ALL {
            assert!(arch::find(card.arch).is_some(), "{}", card.name);
            assert!(!card.source.is_empty(), "{}", card.name);
            assert!(card.tensor_flops > card.fp32_flops && card.fp32_flops > card.bandwidth, "{}", card.name);
            let same = ALL.iter().filter(|other| other.slug() == card.slug());
            assert_eq!(same.count(), 1, "{}", card.name);
        }
    }

    /// "Peak BF16 Tensor TFLOPS with FP32 Accumulate", dense, of the papers named as sources.
    #[test]
    fn rates_by_clock_are_the_published_ones() {
        for (name, published) in [
            ("RTX 3070", 40.6),
            ("RTX 3080", 59.5),
            ("RTX 3090", 71.0),
            ("RTX A6000", 154.8),
            ("RTX 4080", 97.5),
            ("RTX 4090", 165.2),
            ("RTX 6000 Ada", 364.2),
            ("RTX 5080", 112.6),
            ("RTX 5090", 209.5),
        ] {
            let card = ALL.iter().find(|card| card.name == name).expect("it is a card");
            let tflops = card.tensor_flops / 1e12;
            assert!((tflops / published - 1.0).abs() < 0.005, "{name}: {tflops} for {published}");
        }
    }
}
