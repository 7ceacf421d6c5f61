//! Attention alone: what `#[derive(Attention)]` declares.
//!
//! In: fields from a front end, through `parse`. Out: an [`AttentionShape`], its canonical text, and the op it stands for.
//! As with a model, batch and length are not here.

use super::fields::{BOUND, FieldRow, Kind, Language, POSITIVE, count, row};
use super::text::Lines;
use crate::arch::Arch;
use crate::dtype::{self, Dtype};
use crate::ops::attention::{Attention, Form, Window};

/// One attention: everything that is constant in its kernels, and how its tensors lie in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionShape {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Does a query see only itself and what is before it?
    pub causal: bool,
    /// How far a query sees, if not as far as there are keys; a causal mask leaves of it what is not behind the query.
    pub window: Option<Window>,
    /// Bound of the scores.
    pub softcap: Option<f64>,
    /// Factor of the scores, where it is not 1 / sqrt(head_dim).
    pub scale: Option<f64>,
    /// Element type of everything but the log-sum-exp.
    pub dtype: Dtype,
    /// How tensors lie in memory.
    pub layout: Layout,
    /// Must the gradient have the same bits every time?
    pub deterministic: bool,
    /// GPUs to generate for; empty means all.
    pub targets: Vec<Arch>,
}

/// How tensors lie in memory, the outermost dimension first. The log-sum-exp is [batch, heads, length] in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// [batch, length, heads, `head_dim`].
    Bshd,
    /// [batch, heads, length, `head_dim`].
    Bhsd,
    /// Queries, keys and values of a token in one row, [batch, length, heads + 2 `kv_heads`, `head_dim`], and their gradients
    /// likewise; the output as [`Layout::Bshd`].
    Packed,
}

impl Layout {
    /// Every layout.
    pub const ALL: [Self; 3] = [Self::Bshd, Self::Bhsd, Self::Packed];

    /// Its name in the attribute.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bshd => "bshd",
            Self::Bhsd => "bhsd",
            Self::Packed => "packed",
        }
    }
}

/// The sections of a declaration of attention alone.
pub const ATTENTION_SECTIONS: &[&str] = &["attention", "target"];

fn dtypes() -> Vec<&'static str> {
    AttentionShape::dtypes().map(Dtype::name).collect()
}

fn layouts() -> Vec<&'static str> {
    Layout::ALL.iter().map(|layout| layout.name()).collect()
}

/// Every field of attention alone but the targets.
pub const ATTENTION_FIELDS: &[FieldRow] = &[
    row("attention.heads", count(1, 1024, 1), None, "query heads"),
    row("attention.kv_heads", count(1, 1024, 1), Some("`heads`"), "key and value heads; divides `heads`"),
    row("attention.head_dim", count(8, 256, 8), None, "width of a head"),
    row("attention.causal", Kind::Flag, Some("this one"), "a query sees itself and what is before it"),
    row("attention.full", Kind::Flag, Some("absent"), "a query sees every position"),
    row(
        "attention.window",
        count(1, 1 << 20, 1),
        Some("absent"),
        "a query sees only positions nearer than this",
    ),
    row("attention.window.left", BOUND, Some("absent: all"), "positions that a query sees before its own"),
    row(
        "attention.window.right",
        BOUND,
        Some("absent: all"),
        "positions that it sees after its own, with `full`",
    ),
    row("attention.softcap", POSITIVE, Some("absent"), "bound c of the scores: c tanh(x / c)"),
    row("attention.scale", POSITIVE, Some("1 / sqrt(`head_dim`)"), "factor of the scores"),
    row("attention.dtype", Kind::Choice(dtypes), Some("bf16"), "element type of all tensors"),
    row("attention.layout", Kind::Choice(layouts), Some("bshd"), "order of dimensions in memory"),
    row("attention.nondeterministic", Kind::Flag, Some("absent"), "the gradient may add in any order"),
];

fn find(path: &str) -> Option<&'static FieldRow> {
    ATTENTION_FIELDS.iter().find(|row| row.path == path)
}

fn paths() -> Vec<String> {
    let fields = ATTENTION_FIELDS.iter().map(|row| row.path);
    ATTENTION_SECTIONS.iter().copied().chain(fields).map(str::to_owned).collect()
}

/// What a declaration of attention alone may say.
pub(super) const ATTENTION: Language = Language { find, paths };

impl AttentionShape {
    /// The element types it may have: what tensor cores take.
    pub fn dtypes() -> impl Iterator<Item = Dtype> {
        dtype::ALL.iter().filter(|row| row.is_precision && row.bytes == 2).map(|row| row.dtype)
    }

    /// The op over sequences of so many queries and keys.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn op(&self, [length, key_length]: [usize; 2]) -> Attention {
        let &Self { heads, kv_heads, head_dim, causal, softcap, scale, .. } = self;
        let window = self.window.unwrap_or_default();
        let window = if causal { window.causal() } else { window };
        let scale = scale.unwrap_or_else(|| (head_dim as f64).sqrt().recip());
        Attention { heads, kv_heads, head_dim, length, key_length, window, softcap, scale, form: Form::Fused }
    }

    /// The canonical text: every field but the targets, one per line, defaults spelled out. It parses back to the same
    /// declaration.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = Lines(String::new());
        lines.add("attention.heads", self.heads);
        lines.add("attention.kv_heads", self.kv_heads);
        lines.add("attention.head_dim", self.head_dim);
        lines.add(if self.causal { "attention.causal" } else { "attention.full" }, true);
        if let Some(window) = self.window {
            lines.window("attention.window", window);
        }
        if let Some(cap) = self.softcap {
            lines.real("attention.softcap", cap);
        }
        if let Some(scale) = self.scale {
            lines.real("attention.scale", scale);
        }
        lines.add("attention.dtype", self.dtype.name());
        lines.add("attention.layout", self.layout.name());
        if !self.deterministic {
            lines.add("attention.nondeterministic", true);
        }
        lines.0
    }

    /// The targets in the same form, empty where none is declared.
    #[must_use]
    pub fn targets_text(&self) -> String {
        self.targets.iter().map(Arch::text).collect()
    }
}
