//! The table of every field a declaration may have: its kind, bounds, default and meaning.
//!
//! Messages and documentation print allowed values from here; `parse` decides with it.

use super::{LayerName, Placement};
use crate::dtype;
use crate::ops::activation::ActivationKind;
use crate::ops::norm::{NormKind, NormWeight};

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
    /// A flag that may also be one of some words.
    FlagOrChoice(fn() -> Vec<&'static str>),
    /// A list of some words; a single one needs no brackets.
    List(fn() -> Vec<&'static str>),
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

pub(super) const fn count(least: usize, greatest: usize, multiple: usize) -> Kind {
    Kind::Count { least, greatest, multiple }
}

pub(super) const fn row(
    path: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    about: &'static str,
) -> FieldRow {
    FieldRow { path, kind, default, about }
}

fn norms() -> Vec<&'static str> {
    NormKind::ALL.iter().map(|kind| kind.name()).collect()
}

fn positions() -> Vec<&'static str> {
    vec!["none", "learned"]
}

fn biases() -> Vec<&'static str> {
    vec!["none", "qkv", "all", "head"]
}

fn norm_weights() -> Vec<&'static str> {
    NormWeight::ALL.iter().map(|weight| weight.name()).collect()
}

fn placements() -> Vec<&'static str> {
    Placement::ALL.iter().map(|placement| placement.name()).collect()
}

fn layer_names() -> Vec<&'static str> {
    LayerName::ALL.iter().map(|name| name.name()).collect()
}

fn scalings() -> Vec<&'static str> {
    vec!["none", "llama3", "yarn"]
}

fn qk_norms() -> Vec<&'static str> {
    vec!["head", "whole"]
}

fn orders() -> Vec<&'static str> {
    vec!["before", "after"]
}

fn precisions() -> Vec<&'static str> {
    dtype::ALL.iter().filter(|row| row.is_precision).map(|row| row.name).collect()
}

/// The sections of a declaration.
pub const SECTIONS: &[&str] = &["model", "attention", "feed_forward", "target"];

const fn real(above: f64, most: f64) -> Kind {
    Kind::Real { above, most }
}

/// A factor or a bound: far from where fp32 loses what it multiplies.
pub(super) const POSITIVE: Kind = real(1e-6, 1e6);

/// Positions to one side.
pub(super) const BOUND: Kind = count(0, 1 << 20, 1);

/// Every field but the targets and the activations, whose tables are their own (`arch`, `ops::activation`). Those of
/// [`PER_KIND`] may also be said of one kind of layer: `attention.local.window`.
pub const FIELDS: &[FieldRow] = &[
    row("model.vocab", count(2, 1 << 20, 1), None, "number of tokens"),
    row("model.context", count(1, 1 << 20, 1), Some("2048"), "greatest sequence length"),
    row("model.d_model", count(8, 1 << 16, 8), None, "width of the residual stream"),
    row("model.layers", count(1, 1024, 1), None, "number of blocks"),
    row("model.pattern", Kind::List(layer_names), Some("global"), "kinds of layer, repeated over the depth"),
    row("model.tied", Kind::Flag, Some("absent: a head of its own"), "the head is the embedding's transpose"),
    row("model.norm", Kind::Choice(norms), Some("rms"), "root-mean-square norm, or layer norm with a bias"),
    row("model.norm.eps", real(1e-20, 1.0), Some("1e-5"), "added under the root"),
    row("model.norm.weight", Kind::Choice(norm_weights), Some("w"), "the learned factor: w, 1 + w, or none"),
    row("model.norm.placement", Kind::Choice(placements), Some("pre"), "before a half, after it, or both"),
    row("model.norm.embedding", Kind::Flag, Some("absent"), "one more norm after the embedding"),
    row("model.positions", Kind::Choice(positions), Some("none"), "learned position embeddings"),
    row(
        "model.biases",
        Kind::List(biases),
        Some("none"),
        "which linears have biases; `all` leaves out the head",
    ),
    row("model.parallel", Kind::Flag, Some("absent"), "attention and feed-forward read the same input"),
    row("model.parallel.shared_norm", Kind::Flag, Some("absent: one each"), "they read it through one norm"),
    row(
        "model.precision",
        Kind::Choice(precisions),
        Some("bf16"),
        "element type of matrix operands on a GPU",
    ),
    row(
        "model.residual",
        Kind::Choice(precisions),
        Some("fp32"),
        "element type of the residual stream on a GPU",
    ),
    row("model.embedding_scale", POSITIVE, Some("1.0"), "factor of the tokens' embeddings"),
    row("model.residual_scale", POSITIVE, Some("1.0"), "factor of what a half adds to the stream"),
    row("model.logits_scale", POSITIVE, Some("1.0"), "factor of the logits"),
    row("model.softcap", POSITIVE, Some("absent"), "bound c of the logits: c tanh(x / c)"),
    row("attention.heads", count(1, 1024, 1), None, "query heads"),
    row("attention.kv_heads", count(1, 1024, 1), Some("`heads`"), "key and value heads; divides `heads`"),
    row("attention.head_dim", count(1, 256, 1), Some("`d_model` / `heads`"), "width of a head"),
    row("attention.rope", Kind::Flag, Some("absent"), "rotary positions on queries and keys"),
    row("attention.rope.theta", real(1.0, 1e12), Some("10000.0"), "base of the angles"),
    row("attention.rope.fraction", real(0.0, 1.0), Some("1.0"), "share of each head that rotates"),
    row("attention.rope.scaling", Kind::Choice(scalings), Some("none"), "frequencies for longer contexts"),
    row(
        "attention.rope.scaling.factor",
        real(1.0, 1e6),
        Some("required"),
        "how much low frequencies are slowed",
    ),
    row(
        "attention.rope.scaling.original_context",
        count(1, 1 << 24, 1),
        Some("required"),
        "context before the scaling",
    ),
    row(
        "attention.rope.scaling.low_freq_factor",
        POSITIVE,
        Some("1.0"),
        "llama3: turns below which all is slowed",
    ),
    row(
        "attention.rope.scaling.high_freq_factor",
        POSITIVE,
        Some("4.0"),
        "llama3: turns above which all is kept",
    ),
    row("attention.rope.scaling.beta_fast", POSITIVE, Some("32.0"), "yarn: turns above which all is kept"),
    row("attention.rope.scaling.beta_slow", POSITIVE, Some("1.0"), "yarn: turns below which all is slowed"),
    row(
        "attention.rope.scaling.attention_factor",
        POSITIVE,
        Some("0.1 ln(factor) + 1"),
        "yarn: factor of rotated queries and keys",
    ),
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
    row("attention.qk_norm", Kind::FlagOrChoice(qk_norms), Some("absent"), "RMS norm of queries and of keys"),
    row("attention.qk_norm.order", Kind::Choice(orders), Some("before"), "before or after rope"),
    row("attention.softcap", POSITIVE, Some("absent"), "bound c of the scores: c tanh(x / c)"),
    row("attention.scale", POSITIVE, Some("1 / sqrt(`head_dim`)"), "factor of the scores"),
    row("attention.no_rope", Kind::Flag, Some("absent"), "no rope in this kind of layer"),
    row("attention.no_window", Kind::Flag, Some("absent"), "no window in this kind of layer"),
    row("feed_forward.d_ff", count(1, 1 << 18, 1), None, "width of the hidden layer"),
    row("feed_forward.experts", count(1, 4096, 1), Some("absent"), "experts of a mixture"),
    row("feed_forward.active", count(1, 4096, 1), Some("absent"), "experts that a token uses"),
];

/// Fields of attention that may be said of one kind of layer, with their settings.
pub(super) const PER_KIND: &[&str] = &["window", "no_window", "rope", "no_rope"];

/// Fields that make no sense but for one kind of layer.
const ONLY_PER_KIND: [&str; 2] = ["attention.no_rope", "attention.no_window"];

/// Fields that are read and checked, and whose meaning is not built yet.
pub const PLANNED: &[&str] = &["feed_forward.experts", "feed_forward.active"];

/// What one kind of declaration may say.
#[derive(Clone, Copy)]
pub(super) struct Language {
    /// The row of a path.
    pub(super) find: fn(&str) -> Option<&'static FieldRow>,
    /// Every path but those below `target`.
    pub(super) paths: fn() -> Vec<String>,
}

/// That of a model.
pub(super) const MODEL: Language = Language { find, paths: all_paths };

/// The row of a path; that of a kind of layer is the row of all.
fn find(path: &str) -> Option<&'static FieldRow> {
    let of_all = LayerName::ALL.iter().find_map(|name| {
        let rest = path.strip_prefix("attention.")?.strip_prefix(name.name())?.strip_prefix('.')?;
        Some(format!("attention.{rest}"))
    });
    let path = of_all.as_deref().unwrap_or(path);
    FIELDS.iter().find(|row| row.path == path)
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
            Kind::Real { above, most } if above.fract() == 0.0 => {
                format!("a number above {above} up to {most:?}")
            }
            Kind::Real { above, most } => format!("a number above {above:?} up to {most:?}"),
            Kind::Flag => "a flag: named alone, or `= true` or `= false`".to_owned(),
            Kind::Choice(words) => format!("one of {}", quoted(&words())),
            Kind::FlagOrChoice(words) => format!("a flag or one of {}", quoted(&words())),
            Kind::List(words) => format!("one or a list of {}", quoted(&words())),
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

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// Every path a declaration may use, activations included. `targets` knows those below `target`.
fn all_paths() -> Vec<String> {
    let sections = SECTIONS.iter().map(|section| (*section).to_owned());
    let activations = ActivationKind::ALL.iter().map(|kind| format!("feed_forward.{}", kind.name()));
    let fields =
        FIELDS.iter().map(|row| row.path.to_owned()).filter(|path| !ONLY_PER_KIND.contains(&path.as_str()));
    let kinds = LayerName::ALL.iter().flat_map(|name| {
        let kind = format!("attention.{}", name.name());
        let settings = FIELDS.iter().filter_map(|row| row.path.strip_prefix("attention."));
        let settings = settings.filter(|rest| PER_KIND.contains(&rest.split('.').next().unwrap_or(rest)));
        let settings: Vec<_> = settings.map(|rest| format!("{kind}.{rest}")).collect();
        std::iter::once(kind).chain(settings)
    });
    sections.chain(fields).chain(kinds).chain(activations).collect()
}
