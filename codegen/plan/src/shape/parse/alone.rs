//! A declaration of attention alone.

use super::{Reader, in_lines, read};
use crate::dtype::Dtype;
use crate::field::{Field, Problem, read_text};
use crate::shape::alone::ATTENTION;
use crate::shape::targets;
use crate::shape::{AttentionShape, Layout};

/// Reads a whole declaration of attention alone.
///
/// # Errors
/// Every problem there is, in the order of their places.
pub fn parse_attention(fields: &[Field]) -> Result<AttentionShape, Vec<Problem>> {
    read(fields, ATTENTION, Reader::attention_alone)
}

/// Reads the flat text form, as `AttentionShape::text` writes it.
///
/// # Errors
/// As [`parse_attention`], each problem with its line number in front, joined by line ends.
pub fn parse_attention_text(text: &str) -> Result<AttentionShape, String> {
    parse_attention(&read_text(text)).map_err(|problems| in_lines(&problems))
}

impl Reader<'_> {
    fn attention_alone(&mut self) -> Option<AttentionShape> {
        let heads = self.count("attention.heads");
        let kv_heads = self.kv_heads(heads);
        let head_dim = self.count("attention.head_dim");
        let causal = self.causal();
        let window = self.bounds("attention", causal);
        let softcap = self.real("attention.softcap");
        let scale = self.real("attention.scale");
        let dtypes: Vec<_> = AttentionShape::dtypes().map(|dtype| (dtype.name(), dtype)).collect();
        let dtype = self.choice("attention.dtype", &dtypes, Dtype::Bf16);
        let layout = self.choice("attention.layout", &Layout::ALL.map(|one| (one.name(), one)), Layout::Bshd);
        let deterministic = !self.flag("attention.nondeterministic");
        let (targets, problems) = targets::read(self.fields);
        self.problems.extend(problems);
        let (heads, kv_heads, head_dim) = (heads?, kv_heads?, head_dim?);
        // The default is not kept as a number, so that equal declarations have equal text.
        #[allow(clippy::cast_precision_loss)]
        let scale = scale.filter(|scale| *scale != (head_dim as f64).sqrt().recip());
        Some(AttentionShape {
            heads,
            kv_heads,
            head_dim,
            causal,
            window,
            softcap,
            scale,
            dtype,
            layout,
            deterministic,
            targets,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::attention::Window;
    use crate::shape::ATTENTION_FIELDS;

    const SMALL: &str = "attention.heads = 4\nattention.head_dim = 64\n";

    #[test]
    fn what_is_not_said_has_its_default() {
        let shape = parse_attention_text(SMALL).expect("it is whole");
        let expected = AttentionShape {
            heads: 4,
            kv_heads: 4,
            head_dim: 64,
            causal: true,
            window: None,
            softcap: None,
            scale: None,
            dtype: Dtype::Bf16,
            layout: Layout::Bshd,
            deterministic: true,
            targets: Vec::new(),
        };
        assert_eq!(shape, expected);
        assert_eq!(parse_attention_text(&format!("{SMALL}attention.scale = 0.125")), Ok(expected));
    }

    #[test]
    fn text_is_read_as_it_is_written() {
        for layout in Layout::ALL {
            for dtype in AttentionShape::dtypes() {
                let shape = AttentionShape {
                    heads: 6,
                    kv_heads: 3,
                    head_dim: 40,
                    causal: false,
                    window: Some(Window { left: Some(70), right: Some(3) }),
                    softcap: Some(2.5),
                    scale: Some(0.3),
                    dtype,
                    layout,
                    deterministic: false,
                    targets: crate::arch::ALL[..2].to_vec(),
                };
                let text = shape.text() + &shape.targets_text();
                let other = ["attention.causal", "attention.window"];
                for row in ATTENTION_FIELDS.iter().filter(|row| !other.contains(&row.path)) {
                    assert!(text.contains(&format!("{} = ", row.path)), "{text} has no {}", row.path);
                }
                assert_eq!(parse_attention_text(&text), Ok(shape));
            }
        }
    }

    #[test]
    fn every_mistake_is_said_with_what_is_allowed() {
        for (text, wanted) in [
            ("", "`#[attention(...)]` is missing"),
            (
                "attention.heads = 4",
                "line 1: `head_dim` is missing: width of a head (a multiple of 8 up to 256)",
            ),
            (
                "attention.heads = 4\nattention.head_dim = 300",
                "line 2: `head_dim` must be a multiple of 8 up to 256, found `300`",
            ),
            (
                "attention.heads = 4\nattention.kv_heads = 3\nattention.head_dim = 12",
                "line 2: `kv_heads` must divide `heads` (`4`), found `3`\n\
                 line 3: `head_dim` must be a multiple of 8 up to 256, found `12`",
            ),
            (
                "attention.heads = 4\nattention.head_dim = 8\nattention.dtype = fp32",
                "line 3: `dtype` must be one of `bf16`, `fp16`, found `fp32`",
            ),
            (
                "attention.heads = 4\nattention.head_dim = 8\nattention.layout = sbhd",
                "line 3: `layout` must be one of `bshd`, `bhsd`, `packed`, found `sbhd`",
            ),
            (
                "attention.heads = 4\nattention.head_dim = 8\nattention.window.right = 4",
                "line 3: `right` has a meaning only with `full`: a `causal` query sees nothing behind it",
            ),
            (
                "attention.heads = 4\nattention.head_dim = 8\nattention.rope",
                "line 3: `rope` is not a field of `attention`: allowed are `heads`, `kv_heads`, `head_dim`, `causal`, \
                 `full`, `window`, `softcap`, `scale`, `dtype`, `layout`, `nondeterministic`",
            ),
        ] {
            let found = parse_attention_text(text).expect_err(text);
            assert!(found.starts_with(wanted), "{text}\n{found}");
        }
    }
}
