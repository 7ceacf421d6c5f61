//! Algorithms that were chosen, as plain data: what a run records, what a file remembers.
//!
//! In: an algorithm in cuBLASLt's own words, and how fast it was. Out: the same, readable. Must not know how it was chosen.

use super::functions::Words;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The choices of one GPU and library, by shape of product.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Choices {
    /// Name of the GPU.
    pub gpu: String,
    /// Version of cuBLASLt: an algorithm means something to this one only.
    pub library: String,
    /// A choice per shape of product; its name spells all that the choice depends on.
    pub shapes: BTreeMap<String, Choice>,
}

/// One algorithm for one shape of product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The algorithm in cuBLASLt's own words, as 128 hexadecimal digits.
    pub algorithm: String,
    /// What it is, as far as the library tells.
    #[serde(default)]
    pub traits: Traits,
    /// Time of one product; none where it was not measured.
    #[serde(default)]
    pub microseconds: Option<f64>,
    /// The same of the library's own first choice.
    #[serde(default)]
    pub first_microseconds: Option<f64>,
    /// Algorithms that were tried.
    #[serde(default)]
    pub candidates: usize,
}

/// Numbers of an algorithm, in cuBLASLt's enumerations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traits {
    /// Which kernel family.
    pub id: u32,
    /// Tile.
    pub tile: u32,
    /// Pipeline stages.
    pub stages: u32,
    /// Parts that the summed dimension is split into.
    pub split_k: u32,
    /// How the parts are added: 0 not at all, 1 in place, 2 in fp32 in the workspace, 4 in the result's type there.
    pub reduction: u32,
    /// Order of the tiles.
    pub swizzle: u32,
    /// A variant of the family's own.
    pub option: u32,
    /// Shape of the instruction.
    pub inner_shape: u32,
    /// Blocks that share memory.
    pub cluster: u32,
}

impl Choice {
    /// The algorithm; none where the text is damaged.
    pub(super) fn words(&self) -> Option<Words> {
        let mut words = Words::default();
        let is_whole = self.algorithm.len() == 16 * words.len() && self.algorithm.is_ascii();
        for (index, word) in words.iter_mut().enumerate() {
            let digits = is_whole.then(|| &self.algorithm[16 * index..16 * (index + 1)])?;
            *word = u64::from_str_radix(digits, 16).ok()?;
        }
        Some(words)
    }

    /// The text of an algorithm.
    pub(super) fn text(words: &Words) -> String {
        words.iter().map(|word| format!("{word:016x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_survives_its_text_and_damage_is_noticed() {
        let words: Words = [1, u64::MAX, 0, 0x0123_4567_89ab_cdef, 4, 5, 6, 7];
        let text = Choice::text(&words);
        let of = |algorithm: String| Choice {
            algorithm,
            traits: Traits::default(),
            microseconds: None,
            first_microseconds: None,
            candidates: 0,
        };
        assert_eq!(of(text.clone()).words(), Some(words));
        for damaged in [&text[1..], "", &text.replace("cdef", "cdeg"), &text.replace("cdef", "cd\u{e9}f")[..]]
        {
            assert_eq!(of(damaged.to_owned()).words(), None, "{damaged}");
        }
    }
}
