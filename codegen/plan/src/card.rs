//! The table of cards: what a GPU that can be bought does per second.
//!
//! In: nothing. Out: speeds for rooflines, each with its source. Limits of a kernel are not here: those are `arch`'s.
//! A rate is its maker's where a data sheet has it, and else follows from units and clocks; the tests hold the first
//! kind against the second. A card whose speeds nobody publishes has no row.

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
    /// Device memory, bytes. Most makers' GB are GiB, of which a program sees a little less.
    pub memory: u64,
    /// Where the numbers are from.
    pub source: Cow<'static, str>,
}

const GIB: u64 = 1 << 30;
const GB: u64 = 1_000_000_000;

const GA102: &str =
    "computed; units by NVIDIA Ampere GA102 GPU Architecture v2.0, clocks by the TechPowerUp GPU database";
const ADA: &str =
    "computed; units by NVIDIA Ada GPU Architecture v2.1, clocks by the TechPowerUp GPU database";
const RTX_BLACKWELL: &str =
    "computed; units by NVIDIA RTX Blackwell GPU Architecture, clocks by the TechPowerUp GPU database";
const RTX_PRO: &str =
    "computed; units by NVIDIA RTX Blackwell PRO GPU Architecture, clocks by the TechPowerUp GPU database";
const ORIN: &str =
    "computed; units by Jetson AGX Orin Series technical brief, clocks by the TechPowerUp GPU database";
const A100: &str = "NVIDIA A100 data sheet";
const H100: &str = "NVIDIA H100 Tensor Core GPU Architecture and data sheet";
const H200: &str = "NVIDIA H200 data sheet";
const GH200: &str = "NVIDIA GH200 data sheet";

/// Every card, by architecture. A rate that a data sheet gives with sparsity is halved.
pub const ALL: &[Card] = &[
    given("A100 SXM 80GB", "sm_80", 108, (312e12, 19.5e12), 2039e9, 80 * GIB, A100),
    given("A100 SXM 40GB", "sm_80", 108, (312e12, 19.5e12), 1555e9, 40 * GIB, A100),
    given("A100 PCIe 80GB", "sm_80", 108, (312e12, 19.5e12), 1935e9, 80 * GIB, A100),
    given("A100 PCIe 40GB", "sm_80", 108, (312e12, 19.5e12), 1555e9, 40 * GIB, A100),
    given("A30", "sm_80", 56, (165e12, 10.3e12), 933e9, 24 * GIB, "NVIDIA A30 data sheet"),
    geforce("RTX 3060", "sm_86", (28, 1777), (192, 15.0, 12 * GIB), GA102),
    geforce("RTX 3060 Ti", "sm_86", (38, 1665), (256, 14.0, 8 * GIB), GA102),
    geforce("RTX 3070", "sm_86", (46, 1725), (256, 14.0, 8 * GIB), GA102),
    geforce("RTX 3070 Ti", "sm_86", (48, 1770), (256, 19.0, 8 * GIB), GA102),
    geforce("RTX 3080", "sm_86", (68, 1710), (320, 19.0, 10 * GIB), GA102),
    geforce("RTX 3080 Ti", "sm_86", (80, 1665), (384, 19.0, 12 * GIB), GA102),
    geforce("RTX 3090", "sm_86", (82, 1695), (384, 19.5, 24 * GIB), GA102),
    geforce("RTX 3090 Ti", "sm_86", (84, 1860), (384, 21.0, 24 * GIB), GA102),
    professional("RTX A6000", "sm_86", (84, 1800), (384, 16.0, 48 * GIB), GA102),
    given("A10", "sm_86", 72, (125e12, 31.2e12), 600e9, 24 * GIB, "NVIDIA A10 data sheet"),
    given("A40", "sm_86", 84, (149.7e12, 37.4e12), 696e9, 48 * GIB, "NVIDIA A40 data sheet"),
    // Tensor cores as wide as an A100's: 170 sparse INT8 TOPS of the GPU alone, without the DLAs, are 4 times this.
    clocked("Jetson AGX Orin 64GB", "sm_87", (16, 1300), 8.0, (256, 6.4, 64 * GIB), ORIN),
    geforce("RTX 4060", "sm_89", (24, 2460), (128, 17.0, 8 * GIB), ADA),
    geforce("RTX 4060 Ti 8GB", "sm_89", (34, 2535), (128, 18.0, 8 * GIB), ADA),
    geforce("RTX 4060 Ti 16GB", "sm_89", (34, 2535), (128, 18.0, 16 * GIB), ADA),
    geforce("RTX 4070", "sm_89", (46, 2475), (192, 21.0, 12 * GIB), ADA),
    geforce("RTX 4070 Super", "sm_89", (56, 2475), (192, 21.0, 12 * GIB), ADA),
    geforce("RTX 4070 Ti", "sm_89", (60, 2610), (192, 21.0, 12 * GIB), ADA),
    geforce("RTX 4070 Ti Super", "sm_89", (66, 2610), (256, 21.0, 16 * GIB), ADA),
    geforce("RTX 4080", "sm_89", (76, 2505), (256, 22.4, 16 * GIB), ADA),
    geforce("RTX 4080 Super", "sm_89", (80, 2550), (256, 23.0, 16 * GIB), ADA),
    geforce("RTX 4090", "sm_89", (128, 2520), (384, 21.0, 24 * GIB), ADA),
    professional("RTX 6000 Ada", "sm_89", (142, 2505), (384, 20.0, 48 * GIB), ADA),
    given("L4", "sm_89", 58, (121e12, 30.3e12), 300e9, 24 * GIB, "NVIDIA L4 data sheet"),
    // Its maker gives it half the rate of the other cards with this chip that are not GeForce.
    given("L40", "sm_89", 142, (181.05e12, 90.5e12), 864e9, 48 * GIB, "NVIDIA L40 data sheet"),
    // Its data sheet has 362.05 dense TFLOPS, which are an L40's sparse ones, next to 733 sparse ones, twice these.
    professional("L40S", "sm_89", (142, 2520), (384, 18.0, 48 * GIB), ADA),
    given("H100 SXM", "sm_90a", 132, (989.4e12, 66.9e12), 3350e9, 80 * GIB, H100),
    given("H100 PCIe", "sm_90a", 114, (756.5e12, 51.2e12), 2000e9, 80 * GIB, H100),
    given("H100 NVL", "sm_90a", 132, (835.5e12, 60e12), 3900e9, 94 * GIB, H100),
    given("H200 SXM", "sm_90a", 132, (989.5e12, 67e12), 4800e9, 141 * GIB, H200),
    given("H200 NVL", "sm_90a", 132, (835.5e12, 60e12), 4800e9, 141 * GIB, H200),
    given("GH200 96GB", "sm_90a", 132, (989.5e12, 67e12), 4000e9, 96 * GIB, GH200),
    given("GH200 144GB", "sm_90a", 132, (989.5e12, 67e12), 4900e9, 144 * GIB, GH200),
    // How many multiprocessors of a B200 and a B300 are sold only the cards themselves say.
    given(
        "B200",
        "sm_100a",
        148,
        (2250e12, 75e12),
        7700e9,
        180 * GIB,
        "NVIDIA Blackwell data sheet, HGX B200; multiprocessors by the card's own properties",
    ),
    // A program sees 275040 MiB: its GB are not GiB.
    given(
        "B300",
        "sm_103a",
        148,
        (2250e12, 75e12),
        8000e9,
        288 * GB,
        "NVIDIA HGX B300 data sheet, an eighth; multiprocessors by the card's own properties",
    ),
    geforce("RTX 5070", "sm_120a", (48, 2512), (192, 28.0, 12 * GIB), RTX_BLACKWELL),
    geforce("RTX 5070 Ti", "sm_120a", (70, 2452), (256, 28.0, 16 * GIB), RTX_BLACKWELL),
    geforce("RTX 5080", "sm_120a", (84, 2617), (256, 30.0, 16 * GIB), RTX_BLACKWELL),
    geforce("RTX 5090", "sm_120a", (170, 2407), (512, 28.0, 32 * GIB), RTX_BLACKWELL),
    // The Workstation Edition.
    professional("RTX PRO 6000", "sm_120a", (188, 2617), (512, 28.0, 96 * GIB), RTX_PRO),
    // NVIDIA publishes 1000 sparse FP4 TOPS, an eighth of which is near this rate. It is not a GeForce's half: that is
    // below the 92 TFLOPS measured (huggingface/kernels, pull request 283). A program sees 130.6 GB.
    professional(
        "GB10",
        "sm_121a",
        (48, 2418),
        (256, 8.533, 128 * GB),
        "computed; units as those of RTX PRO Blackwell, clocks by the TechPowerUp GPU database",
    ),
];

/// By its data sheet.
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
        multiprocessors: Some(multiprocessors),
        tensor_flops,
        fp32_flops,
        bandwidth,
        memory,
        source: Cow::Borrowed(source),
    }
}

/// By its multiprocessors and boost clock in MHz: 128 multiply-adds per clock and multiprocessor outside the tensor
/// cores, and `tensor_factor` times as many inside; and by the bits of its memory bus and Gbit/s of each.
const fn clocked(
    name: &'static str,
    arch: &'static str,
    (multiprocessors, clock): (u32, u32),
    tensor_factor: f64,
    (bus, rate, memory): (u32, f64, u64),
    source: &'static str,
) -> Card {
    let fp32 = 128.0 * 2.0 * multiprocessors as f64 * clock as f64 * 1e6;
    let bandwidth = bus as f64 * rate * 1e9 / 8.0;
    given(name, arch, multiprocessors, (tensor_factor * fp32, fp32), bandwidth, memory, source)
}

/// GeForce: tensor cores that sum in fp32 run at half of their rate.
const fn geforce(
    name: &'static str,
    arch: &'static str,
    chip: (u32, u32),
    memory: (u32, f64, u64),
    source: &'static str,
) -> Card {
    clocked(name, arch, chip, 2.0, memory, source)
}

/// The same chips in workstations: at their full rate.
const fn professional(
    name: &'static str,
    arch: &'static str,
    chip: (u32, u32),
    memory: (u32, f64, u64),
    source: &'static str,
) -> Card {
    clocked(name, arch, chip, 4.0, memory, source)
}

impl Card {
    /// The card that a driver calls `name` and says has so many bytes; `None` where the table lacks it. A driver's name
    /// has more words than a shop's, and leaves out the memory where there is one size only.
    #[must_use]
    pub fn of(name: &str, memory: u64) -> Option<&'static Self> {
        let words = |text: &str| -> Vec<String> {
            text.to_lowercase().split([' ', '-']).map(ToOwned::to_owned).collect()
        };
        let is_size = |word: &str| word.strip_suffix("gb").is_some_and(|size| size.parse::<u32>().is_ok());
        let is_filler = |word: &str| {
            let fillers =
                ["nvidia", "geforce", "generation", "blackwell", "workstation", "server", "edition"];
            fillers.contains(&word) || ["sxm", "hbm"].iter().any(|one| word.starts_with(one)) || is_size(word)
        };
        let found = words(name);
        let fits = |card: &&Self| {
            let of_card = words(&card.name);
            let is_named = of_card.iter().all(|word| is_filler(word) || found.contains(word));
            // A part of the memory is the driver's own, and some makers count in powers of ten.
            let share = memory as f64 / card.memory as f64;
            is_named
                && found.iter().all(|word| is_filler(word) || of_card.contains(word))
                && (0.88..1.08).contains(&share)
        };
        ALL.iter().find(fits)
    }

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

    #[test]
    fn a_card_is_known_by_what_its_driver_calls_it() {
        let mib = 1 << 20;
        for (name, memory, card) in [
            ("NVIDIA H200", 143_771 * mib, Some("H200 SXM")),
            ("NVIDIA H200 NVL", 143_771 * mib, Some("H200 NVL")),
            ("NVIDIA H100 80GB HBM3", 81_559 * mib, Some("H100 SXM")),
            ("NVIDIA H100 PCIe", 81_559 * mib, Some("H100 PCIe")),
            ("NVIDIA A100-SXM4-80GB", 81_920 * mib, Some("A100 SXM 80GB")),
            ("NVIDIA A100-SXM4-40GB", 40_960 * mib, Some("A100 SXM 40GB")),
            ("NVIDIA A100-PCIE-40GB", 40_960 * mib, Some("A100 PCIe 40GB")),
            ("NVIDIA GeForce RTX 3060", 12_288 * mib, Some("RTX 3060")),
            ("NVIDIA GeForce RTX 3060", 8_192 * mib, None),
            ("NVIDIA GeForce RTX 4060 Ti", 16_380 * mib, Some("RTX 4060 Ti 16GB")),
            ("NVIDIA GeForce RTX 4060 Ti", 8_188 * mib, Some("RTX 4060 Ti 8GB")),
            ("NVIDIA GeForce RTX 4070 Ti SUPER", 16_376 * mib, Some("RTX 4070 Ti Super")),
            ("NVIDIA RTX 6000 Ada Generation", 49_140 * mib, Some("RTX 6000 Ada")),
            ("NVIDIA L4", 23_034 * mib, Some("L4")),
            ("NVIDIA H800", 81_559 * mib, None),
            ("NVIDIA GeForce RTX 3060 Laptop GPU", 6_144 * mib, None),
        ] {
            assert_eq!(Card::of(name, memory).map(|card| &*card.name), card, "{name}");
        }
    }

    fn close(name: &str, what: &str, found: f64, derived: f64, tolerance: f64) {
        let ratio = found / derived;
        assert!((ratio - 1.0).abs() < tolerance, "{name}: {what} {found:e} for {derived:e}");
    }

    /// Units of a multiprocessor: fp32 lanes, and FLOPs per clock of its tensor cores. Boost clock in MHz. Bits of the
    /// memory bus, and Gbit/s of each, where they are published.
    type Units = (f64, f64, f64, Option<(f64, f64)>);
    const DATA_SHEETS: [(&str, Units); 18] = [
        ("A100 SXM 80GB", (64.0, 2048.0, 1410.0, Some((5120.0, 2.0 * 1.593)))),
        ("A100 SXM 40GB", (64.0, 2048.0, 1410.0, Some((5120.0, 2.0 * 1.215)))),
        ("A100 PCIe 80GB", (64.0, 2048.0, 1410.0, Some((5120.0, 2.0 * 1.512)))),
        ("A100 PCIe 40GB", (64.0, 2048.0, 1410.0, Some((5120.0, 2.0 * 1.215)))),
        ("A30", (64.0, 2048.0, 1440.0, Some((3072.0, 2.0 * 1.215)))),
        ("A10", (128.0, 1024.0, 1695.0, Some((384.0, 12.5)))),
        ("A40", (128.0, 1024.0, 1740.0, Some((384.0, 14.5)))),
        ("L4", (128.0, 1024.0, 2040.0, Some((192.0, 12.5)))),
        ("L40", (128.0, 512.0, 2490.0, Some((384.0, 18.0)))),
        ("H100 SXM", (128.0, 4096.0, 1980.0, Some((5120.0, 2.0 * 2.619)))),
        ("H100 PCIe", (128.0, 4096.0, 1755.0, Some((5120.0, 2.0 * 1.593)))),
        ("H100 NVL", (128.0, 4096.0, 1785.0, Some((6016.0, 2.0 * 2.619)))),
        ("H200 SXM", (128.0, 4096.0, 1980.0, Some((6144.0, 4.0 * 1.593)))),
        ("H200 NVL", (128.0, 4096.0, 1785.0, Some((6144.0, 4.0 * 1.593)))),
        ("GH200 96GB", (128.0, 4096.0, 1980.0, None)),
        ("GH200 144GB", (128.0, 4096.0, 1980.0, None)),
        ("B200", (128.0, 8192.0, 1965.0, Some((7680.0, 2.0 * 3.996)))),
        ("B300", (128.0, 8192.0, 2032.0, Some((8192.0, 2.0 * 3.996)))),
    ];

    #[test]
    fn rates_of_data_sheets_follow_from_units_and_clocks() {
        for card in ALL.iter().filter(|card| !card.source.starts_with("computed")) {
            let name = &*card.name;
            let row = DATA_SHEETS.iter().find(|(row, _)| *row == name);
            let &(_, (lanes, tensor, clock, bus)) = row.unwrap_or_else(|| panic!("{name} has no row"));
            let per_second = f64::from(card.multiprocessors.expect("it is published")) * clock * 1e6;
            close(name, "fp32", card.fp32_flops, 2.0 * lanes * per_second, 0.03);
            // From Hopper on the rate is at the lower clock that busy tensor cores keep.
            let (expected, tolerance) = if tensor < 4096.0 { (1.0, 0.005) } else { (0.92, 0.07) };
            close(name, "tensor", card.tensor_flops, expected * tensor * per_second, tolerance);
            if let Some((bits, rate)) = bus {
                close(name, "bandwidth", card.bandwidth, bits * rate * 1e9 / 8.0, 0.025);
            }
        }
    }

    /// "Peak BF16 Tensor TFLOPS with FP32 Accumulate", dense, and GB/s of the papers on the architectures.
    #[test]
    fn rates_by_clock_are_those_of_the_papers() {
        for (name, tflops, bandwidth) in [
            ("RTX 3090", 71.0, 936.0),
            ("RTX A6000", 154.8, 768.0),
            ("RTX 4090", 165.2, 1008.0),
            ("RTX 6000 Ada", 364.2, 960.0),
            ("RTX 5080", 112.6, 960.0),
            ("RTX 5090", 209.5, 1792.0),
            ("RTX PRO 6000", 503.8, 1792.0),
        ] {
            let card = ALL.iter().find(|card| card.name == name).expect("it is a card");
            close(name, "tensor", card.tensor_flops, tflops * 1e12, 0.003);
            close(name, "bandwidth", card.bandwidth, bandwidth * 1e9, 0.001);
        }
    }
}
