//! A GPU as a user names it: a target, a card, or the fields of a file.
//!
//! In: a word, or fields. Out: an [`Arch`] for kernels with a [`Card`] for speeds, or what is wrong and what there is.

use crate::arch::{self, Arch, custom};
use crate::card::{self, Card};
use crate::field::{Field, Place, Problem, Value};
use crate::nearest::nearest;
use std::borrow::Cow;

/// A target, and the card whose speeds count.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// What kernels are generated for.
    pub arch: Arch,
    /// What they are timed on.
    pub card: Card,
}

impl Gpu {
    /// A target on the card that stands for it.
    #[must_use]
    pub fn of(arch: &Arch) -> Self {
        let card = card::ALL.iter().find(|card| card.name == arch.card).unwrap_or(&card::ALL[0]);
        Self { arch: arch.clone(), card: card.clone() }
    }

    fn of_card(card: &Card) -> Self {
        let arch = arch::find(card.arch).unwrap_or(&arch::ALL[0]);
        Self { arch: arch.clone(), card: card.clone() }.with_own_multiprocessors()
    }

    /// Kernels share work among the multiprocessors of the card that is named.
    fn with_own_multiprocessors(mut self) -> Self {
        self.arch.multiprocessors = self.card.multiprocessors;
        self
    }
}

/// Letters and digits alone, so that `RTX 4090`, `rtx-4090` and `GeForce RTX4090` are one.
fn plain(name: &str) -> String {
    let name = name.to_lowercase().replace("nvidia", "").replace("geforce", "");
    name.chars().filter(|sign| sign.is_alphanumeric()).collect()
}

/// The target `sm_90a` or the card `rtx-4090`; case, spaces and dashes do not matter.
///
/// # Errors
/// A line on what was probably meant, or what there is.
pub fn find(name: &str) -> Result<Gpu, String> {
    let wanted = plain(name);
    if let Some(arch) = arch::ALL.iter().find(|arch| plain(&arch.name) == wanted) {
        return Ok(Gpu::of(arch));
    }
    if let Some(card) = card::ALL.iter().find(|card| plain(&card.name) == wanted) {
        return Ok(Gpu::of_card(card));
    }
    if name.to_lowercase().starts_with("sm") {
        return Err(arch::unknown(name));
    }
    let quoted = |cards: &[&Card]| {
        cards.iter().map(|card| format!("`{}`", card.slug())).collect::<Vec<_>>().join(", ")
    };
    let alike: Vec<&Card> =
        card::ALL.iter().filter(|card| !wanted.is_empty() && plain(&card.name).contains(&wanted)).collect();
    if let [_, _, ..] = &alike[..] {
        return Err(format!("`{name}` may be one of {}: say which", quoted(&alike)));
    }
    let slugs: Vec<String> = card::ALL.iter().map(Card::slug).collect();
    let near = nearest(&name.to_lowercase().replace(' ', "-"), slugs.iter().map(String::as_str));
    match alike.first().map(|card| card.slug()).or(near.map(str::to_owned)) {
        Some(meant) => Err(format!("`{name}` is not a known GPU: did you mean `{meant}`?")),
        None => {
            let cards = quoted(&card::ALL.iter().collect::<Vec<_>>());
            Err(format!("`{name}` is not a known GPU: allowed are {}, and the cards {cards}", arch::names()))
        }
    }
}

/// Reads a GPU from the fields of a file: `name`, `like` and limits as in `#[target(...)]`, and `card`, with its speeds.
/// With a name that has a row only the card is the file's; without a card the one it is like has the speeds.
///
/// # Errors
/// Every problem there is.
pub fn read(fields: &[Field]) -> Result<Gpu, Vec<Problem>> {
    let mut problems = Vec::new();
    let is_of_card = |field: &&Field| field.path == "card" || field.path.starts_with("card.");
    let name = fields.iter().find(|field| field.path == "name");
    let arch = match name.map(|field| (&field.value, field)) {
        Some((Value::Word(name), field)) => {
            let settings: Vec<(&str, &Field)> = fields
                .iter()
                .filter(|field| field.path != "name" && !is_of_card(field))
                .map(|field| (field.path.as_str(), field))
                .collect();
            custom::read(name, field.at, &settings, &mut problems)
        }
        Some((value, field)) => {
            let message = format!("`name` must be a GPU such as `sm_130`, found `{value}`");
            problems.push(Problem { at: Some(field.value_at), message });
            None
        }
        None => {
            let message = "`name` is missing: the GPU's, such as `sm_130`".to_owned();
            problems.push(Problem { at: None, message });
            None
        }
    };
    let of_card: Vec<&Field> = fields.iter().filter(is_of_card).collect();
    let base = arch.as_ref().map(Gpu::of);
    let card = match of_card.first() {
        Some(first) => read_card(&of_card, first.at, base.as_ref(), &mut problems),
        None => base.as_ref().map(|base| base.card.clone()),
    };
    match (arch, card) {
        (Some(arch), Some(card)) if problems.is_empty() => Ok(Gpu { arch, card }.with_own_multiprocessors()),
        _ => {
            problems.sort_by_key(|problem| problem.at.map_or(usize::MAX, |Place(at)| at));
            Err(problems)
        }
    }
}

/// The speeds of a card, all of which must be there.
const SPEEDS: [(&str, &str); 4] = [
    ("tensor_flops", "dense bf16 rate of the tensor cores with fp32 sums, FLOP/s"),
    ("fp32_flops", "fp32 rate outside the tensor cores, FLOP/s"),
    ("bandwidth", "of its memory, bytes/s"),
    ("memory", "bytes"),
];

fn read_card(fields: &[&Field], at: Place, base: Option<&Gpu>, problems: &mut Vec<Problem>) -> Option<Card> {
    let n_before = problems.len();
    let mut problem = |at, message| problems.push(Problem { at: Some(at), message });
    let find = |key: &str| fields.iter().copied().find(|field| field.path == format!("card.{key}"));
    for field in fields.iter().filter(|field| field.path != "card") {
        let key = field.path.trim_start_matches("card.");
        if !SPEEDS.iter().any(|(name, _)| *name == key) && !["name", "multiprocessors"].contains(&key) {
            let names: Vec<_> = SPEEDS.iter().map(|(name, _)| format!("`{name}`")).collect();
            let names = names.join(", ");
            let message =
                format!("`{key}` is not a field of `card`: allowed are `name`, `multiprocessors`, {names}");
            problem(field.at, message);
        }
    }
    let speeds = SPEEDS.map(|(name, about)| {
        let field = find(name);
        match field.map(|field| &field.value) {
            #[allow(clippy::cast_precision_loss)]
            Some(Value::Int(value)) if *value > 0 => *value as f64,
            Some(Value::Float(value)) if *value >= 1.0 && value.is_finite() => *value,
            Some(value) => {
                let at = field.map_or(at, |field| field.value_at);
                problem(at, format!("`{name}` must be a number above 0 ({about}), found `{value}`"));
                0.0
            }
            None => {
                problem(at, format!("`{name}` of `card` is missing: {about}"));
                0.0
            }
        }
    });
    let multiprocessors = find("multiprocessors").and_then(|field| match field.value {
        Value::Int(value @ 1..=65_536) => u32::try_from(value).ok(),
        _ => {
            let found = &field.value;
            let message =
                format!("`multiprocessors` must be a whole number from 1 to 65536, found `{found}`");
            problem(field.value_at, message);
            None
        }
    });
    let name = match find("name").map(|field| &field.value) {
        Some(Value::Word(name) | Value::Text(name)) => name.clone(),
        Some(value) => value.to_string(),
        None => base.map(|base| format!("{} card", base.arch.name)).unwrap_or_default(),
    };
    let [tensor_flops, fp32_flops, bandwidth, memory] = speeds;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let card = Card {
        name: Cow::Owned(name),
        arch: base?.card.arch,
        multiprocessors,
        tensor_flops,
        fp32_flops,
        bandwidth,
        memory: memory as u64,
        source: Cow::Borrowed("its user"),
    };
    (problems.len() == n_before).then_some(card)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::read_text;

    #[test]
    fn case_spaces_and_the_makers_name_do_not_matter() {
        for name in ["rtx-4090", "RTX 4090", "NVIDIA GeForce RTX 4090", "rtx4090"] {
            let gpu = find(name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((&*gpu.arch.name, &*gpu.card.name), ("sm_89", "RTX 4090"), "{name}");
        }
        assert_eq!(find("SM_90A").map(|gpu| gpu.card.name), Ok("H200 SXM".into()));
        for card in card::ALL {
            let gpu = find(&card.slug()).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(gpu.card, *card);
            let own = card.multiprocessors.map(|n| n as usize);
            assert!(own.is_none_or(|own| gpu.arch.multiprocessors() == own), "{}", card.name);
        }
    }

    #[test]
    fn a_name_nobody_knows_is_answered_with_those_alike() {
        let error = |name: &str| find(name).expect_err("nobody knows it");
        assert_eq!(error("sm_90"), "`sm_90` is not a known GPU: did you mean `sm_90a`?");
        assert_eq!(error("rtx-409O"), "`rtx-409O` is not a known GPU: did you mean `rtx-4090`?");
        assert_eq!(error("4090"), "`4090` is not a known GPU: did you mean `rtx-4090`?");
        assert_eq!(error("h100"), "`h100` may be one of `h100-sxm`, `h100-pcie`, `h100-nvl`: say which");
        assert!(error("radeon").contains("`sm_80`") && error("radeon").contains("`rtx-3060`"));
        assert!(error("").contains("`rtx-3060`"));
    }

    const FILE: &str = "name = sm_130\nlike = sm_120a\nshared_memory = 131072\ncard\ncard.name = \"RTX 6090\"\n\
        card.multiprocessors = 200\ncard.tensor_flops = 4e14\ncard.fp32_flops = 150e12\ncard.bandwidth = 2.5e12\n\
        card.memory = 34359738368\n";

    #[test]
    fn a_file_gives_limits_and_speeds() {
        let gpu = read(&read_text(FILE)).expect("it is whole");
        assert_eq!((&*gpu.arch.name, gpu.arch.shared_memory), ("sm_130", 131_072));
        assert_eq!((&*gpu.card.name, gpu.card.multiprocessors), ("RTX 6090", Some(200)));
        assert_eq!(gpu.arch.multiprocessors(), 200, "work is shared among those of the card that is named");
        assert_eq!((gpu.card.tensor_flops, gpu.card.memory), (4e14, 32 << 30));
        let without = &FILE[..FILE.find("card\n").expect("it has a card")];
        assert_eq!(read(&read_text(without)).map(|gpu| gpu.card.name), Ok("RTX 5090".into()));
        let of_row = FILE.replace("sm_130\nlike = sm_120a\nshared_memory = 131072", "sm_89");
        assert_eq!(read(&read_text(&of_row)).map(|gpu| gpu.arch.shared_memory), Ok(99 << 10));
    }

    #[test]
    fn every_problem_of_a_file_is_reported_at_once() {
        let text = FILE.replace("card.memory", "card.memmory").replace("2.5e12", "fast").replace("200", "0");
        let problems = read(&read_text(&text)).expect_err("four things are wrong");
        let messages: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(
            messages,
            [
                "`memory` of `card` is missing: bytes",
                "`multiprocessors` must be a whole number from 1 to 65536, found `0`",
                "`bandwidth` must be a number above 0 (of its memory, bytes/s), found `fast`",
                "`memmory` is not a field of `card`: allowed are `name`, `multiprocessors`, `tensor_flops`, \
                 `fp32_flops`, `bandwidth`, `memory`",
            ]
        );
        let nameless = read(&read_text("like = sm_80\n")).expect_err("it has no name");
        assert_eq!(nameless[0].message, "`name` is missing: the GPU's, such as `sm_130`");
        let number = read(&read_text("name = 130\n")).expect_err("it is a number");
        assert_eq!(number[0].message, "`name` must be a GPU such as `sm_130`, found `130`");
    }
}
