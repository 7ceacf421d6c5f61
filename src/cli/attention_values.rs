//! Values of flags that say what attention is computed of: one parser each, for every command that has the flag.
//!
//! In: what was typed. Out: a value, or what is allowed. A declaration of attention alone decides what that is.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::shape::{ATTENTION_FIELDS, AttentionShape, FieldRow, Kind};
use std::ops::RangeInclusive;

/// Sequences of a step or of a case.
pub(super) const BATCHES: RangeInclusive<i64> = 1..=65_535;

/// Tokens of a sequence, and keys.
pub(super) const LENGTHS: RangeInclusive<i64> = 1..=1_048_576;

/// A value of `--head-dim`.
pub(super) fn head_dim(text: &str) -> Result<u32, String> {
    count("attention.head_dim", text)
}

/// A value of `--window`.
pub(super) fn window(text: &str) -> Result<u32, String> {
    count("attention.window", text)
}

/// A value of `--softcap`.
pub(super) fn softcap(text: &str) -> Result<f64, String> {
    value("attention.softcap", |kind| match *kind {
        Kind::Real { above, most } => text.parse().ok().filter(|cap| *cap > above && *cap <= most),
        _ => None,
    })
}

/// An element type that a GPU's fused kernels of attention take.
pub(super) fn narrow() -> impl TypedValueParser<Value = Dtype> {
    PossibleValuesParser::new(AttentionShape::dtypes().map(Dtype::name))
        .try_map(|name| Dtype::precision(&name).ok_or_else(|| format!("`{name}` is no element type")))
}

fn count(path: &str, text: &str) -> Result<u32, String> {
    value(path, |kind| match *kind {
        Kind::Count { least, greatest, multiple } => {
            let number = text.parse::<u32>().ok();
            let is_allowed = |n: usize| (least..=greatest).contains(&n) && n.is_multiple_of(multiple);
            number.filter(|number| is_allowed(*number as usize))
        }
        _ => None,
    })
}

/// What a field of this path may be, if it is so.
fn value<T>(path: &str, read: impl Fn(&Kind) -> Option<T>) -> Result<T, String> {
    let row = ATTENTION_FIELDS.iter().find(|row| row.path == path);
    let allowed = || row.map_or_else(String::new, FieldRow::allowed);
    row.and_then(|row| read(&row.kind)).ok_or_else(|| format!("it must be {}", allowed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_within_what_a_declaration_may_say() {
        assert_eq!((head_dim("8"), head_dim("256")), (Ok(8), Ok(256)));
        for wrong in ["0", "12", "264", "-8", "8.0", ""] {
            let expected = "it must be a multiple of 8 up to 256".to_owned();
            assert_eq!(head_dim(wrong), Err(expected), "{wrong}");
        }
        assert_eq!((window("1"), window("1048576")), (Ok(1), Ok(1 << 20)));
        for wrong in ["0", "1048577", "4294967296"] {
            let expected = "it must be a whole number from 1 to 1048576".to_owned();
            assert_eq!(window(wrong), Err(expected), "{wrong}");
        }
        assert_eq!((softcap("50"), softcap("1e6")), (Ok(50.0), Ok(1e6)));
        for wrong in ["0", "-1", "1e-6", "1e7", "1e300", "inf", "nan", "fifty"] {
            let expected = "it must be a number above 1e-6 up to 1000000.0".to_owned();
            assert_eq!(softcap(wrong), Err(expected), "{wrong}");
        }
    }
}
