//! The table of every field a declaration may have: its kind, bounds, default and meaning.
//!
//! Messages and documentation print allowed values from here; `parse` decides with it.

use super::Biases;
use crate::dtype;
use crate::ops::activation::ActivationKind;
use crate::ops::norm::NormKind;

/// What values a field takes.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number within bounds, a multiple of something.
    Count {
        /// Least value.
        least: usize,
        /// Greatest value.
        greatest: usize,
        /// It must be a multiple of this.
        multiple: usize,
    },
    /// A real number above `above`, at most `most`.
    Real {
        /// Exclusive lower bound.
        above: f64,
        /// Inclusive upper bound.
        most: f64,
    },
    /// Present or absent; `= true` and `= false` are taken too.
    Flag,
    /// One of some words.
    Choice(fn() -> Vec<&'static str>),
}

/// A field of the attribute language.
#[derive(Clone, Copy, Debug)]
pub struct FieldRow {
    /// Dotted path: `model.norm.eps`.
    pub path: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What holds when it is absent, in words; `None` when it must be there.
    pub default: Option<&'static str>,
    /// What it means.
    pub about: &'static str,
}

const fn count(least: usize, greatest: usize, multiple: usize) -> Kind {
    Kind::Count { least, greatest, multiple }
}

const fn row(path: &'static str, kind: Kind, default: Option<&'static str>, about: &'static str) -> FieldRow {
    FieldRow { path, kind, default, about }
}

fn norms() -> Vec<&'static str> {
    NormKind::ALL.iter().map(|kind| kind.name()).collect()
}

fn positions() -> Vec<&'static str> {
    vec!["none", "learned"]
}

fn biases() -> Vec<&'static str> {
    Biases::ALL.iter().map(|biases| biases.name()).collect()
}

fn precisions() -> Vec<&'static str> {
    dtype::ALL.iter().filter(|row| row.is_precision).map(|row| row.name).collect()
}

/// The sections of a declaration.
pub const SECTIONS: &[&str] = &["model", "attention", "feed_forward", "target"];

/// Every field but the targets and the activations, whose tables are their own (`arch`, `ops::activation`).
pub const FIELDS: &[FieldRow] = &[
    row("model.vocab", count(2, 1 << 20, 1), None, "number of tokens"),
    row("model.context", count(1, 1 << 20, 1), Some("2048"), "greatest sequence length"),
    row("model.d_model", count(8, 1 << 16, 8), None, "width of the residual stream"),
    row("model.layers", count(1, 1024, 1), None, "number of blocks"),
    row("model.tied", Kind::Flag, Some("absent: a head of its own"), "the head is the embedding's transpose"),
    row("model.norm", Kind::Choice(norms), Some("rms"), "root-mean-square norm, or layer norm with a bias"),
    row("model.norm.eps", Kind::Real { above: 0.0, most: 1.0 }, Some("1e-5"), "added under the root"),
    row("model.positions", Kind::Choice(positions), Some("none"), "learned position embeddings"),
    row("model.biases", Kind::Choice(biases), Some("none"), "which linears have biases (never the head)"),
    row(
        "model.precision",
        Kind::Choice(precisions),
        Some("bf16"),
        "element type of matrix operands on a GPU",
    ),
    row("attention.heads", count(1, 1024, 1), None, "query heads"),
    row("attention.kv_heads", count(1, 1024, 1), Some("`heads`"), "key and value heads; divides `heads`"),
    row("attention.head_dim", count(8, 256, 8), Some("`d_model` / `heads`"), "width of a head"),
    row("attention.rope", Kind::Flag, Some("absent"), "rotary positions on queries and keys"),
    row("attention.rope.theta", Kind::Real { above: 1.0, most: 1e12 }, Some("10000.0"), "base of the angles"),
    row("attention.causal", Kind::Flag, Some("this one"), "a query sees itself and what is before it"),
    row("attention.full", Kind::Flag, Some("absent"), "a query sees every position"),
    row("attention.qk_norm", Kind::Flag, Some("absent"), "RMS norm of each query and key head, before rope"),
    row("feed_forward.d_ff", count(8, 1 << 18, 8), None, "width of the hidden layer"),
];

/// Fields, and words of fields there are, whose names are settled and whose meaning is not built yet.
pub const PLANNED: &[&str] = &[
    "model.precision = fp16",
    "model.residual",
    "model.norm.weight",
    "model.norm.placement",
    "model.norm.embedding",
    "model.biases = head",
    "model.pattern",
    "model.parallel",
    "model.embedding_scale",
    "model.residual_scale",
    "model.logits_scale",
    "model.softcap",
    "model.crate",
    "attention.rope.fraction",
    "attention.rope.scaling",
    "attention.qk_norm = whole",
    "attention.qk_norm = head",
    "attention.qk_norm.order",
    "attention.window",
    "attention.softcap",
    "attention.scale",
    "attention.local",
    "attention.global",
    "feed_forward.geglu",
    "feed_forward.relu2",
    "feed_forward.relu",
    "feed_forward.experts",
    "feed_forward.active",
];

/// The planned field that `path` names, or a setting of.
pub(super) fn planned(path: &str) -> Option<&'static str> {
    let is_it = |rest: &str| rest.is_empty() || rest.starts_with('.');
    PLANNED.iter().copied().find(|planned| path.strip_prefix(planned).is_some_and(is_it))
}

impl Kind {
    /// What is allowed, for messages and documentation: "a whole number from 1 to 1024".
    #[must_use]
    pub fn allowed(&self) -> String {
        match self {
            Kind::Count { least, greatest, multiple: 1 } => {
                format!("a whole number from {least} to {greatest}")
            }
            Kind::Count { greatest, multiple, .. } => format!("a multiple of {multiple} up to {greatest}"),
            Kind::Real { above, most } => format!("a number above {above} up to {most:?}"),
            Kind::Flag => "a flag: named alone, or `= true` or `= false`".to_owned(),
            Kind::Choice(words) => {
                let words: Vec<_> = words().iter().map(|word| format!("`{word}`")).collect();
                format!("one of {}", words.join(", "))
            }
        }
    }
}

impl FieldRow {
    /// What the field allows: as its kind.
    #[must_use]
    pub fn allowed(&self) -> String {
        self.kind.allowed()
    }

    /// The last part of the path: `eps` of `model.norm.eps`.
    #[must_use]
    pub fn key(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }
}

/// Every path a declaration may use, activations included. `targets` knows those below `target`.
pub(super) fn all_paths() -> Vec<String> {
    let sections = SECTIONS.iter().map(|section| (*section).to_owned());
    let activations = ActivationKind::ALL.iter().map(|kind| format!("feed_forward.{}", kind.name()));
    let fields = FIELDS.iter().map(|row| row.path.to_owned());
    sections.chain(fields).chain(activations).collect()
}
