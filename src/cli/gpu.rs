//! GPUs as flags name them.

use clap::builder::{PossibleValue, PossibleValuesParser};
use kernwright_plan::arch::{self, Arch};

/// What `--arch` takes, each with the card that stands for it.
pub(super) fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(
        arch::ALL.iter().map(|arch| PossibleValue::new(arch.name).help(format!("as {}", arch.card.name))),
    )
}

/// The row for a compute capability, `(9, 0)`: the one whose digits are the same.
pub(super) fn of_capability((major, minor): (u32, u32)) -> Option<&'static Arch> {
    let digits = format!("{major}{minor}");
    arch::ALL.iter().find(|arch| {
        arch.name.strip_prefix("sm_").is_some_and(|rest| rest.trim_end_matches(char::is_alphabetic) == digits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_finds_its_row_with_or_without_a_suffix() {
        let name = |capability| of_capability(capability).map(|arch| arch.name);
        assert_eq!(name((9, 0)), Some("sm_90a"));
        assert_eq!(name((8, 6)), Some("sm_86"));
        assert_eq!(name((12, 0)), Some("sm_120a"));
        assert_eq!(name((7, 5)), None);
    }
}
