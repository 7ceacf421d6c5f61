//! The shape of a transformer: everything that is constant in its kernels.
//!
//! In: fields from a front end. Out: a [`Shape`], or every problem with its place. Batch size and sequence length
//! are not here: one set of kernels serves all of them.

mod fields;
mod parameters;
mod parse;
pub mod presets;
mod suggestion;
mod targets;

pub use fields::{FIELDS, FieldRow, Kind, PLANNED, SECTIONS};
pub use parameters::{Initial, Parameter};
pub use parse::{parse, parse_text};

use crate::arch::Arch;
use crate::dtype::Dtype;
use crate::ops::activation::ActivationKind;
use crate::ops::norm::NormKind;
use std::fmt::Write as _;

/// A decoder-only transformer: pre-norm blocks of attention and feed-forward.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Number of tokens.
    pub vocab: usize,
    /// Greatest sequence length.
    pub context: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Is the head the embedding's transpose?
    pub tied: bool,
    /// The norm of every block and the last one.
    pub norm: Norm,
    /// Are there learned position embeddings?
    pub learned_positions: bool,
    /// Which linears have biases.
    pub biases: Biases,
    /// Element type of matrix operands.
    pub precision: Dtype,
    /// Attention of every block.
    pub attention: Attention,
    /// Feed-forward of every block.
    pub feed_forward: FeedForward,
    /// GPUs to generate for; empty means all.
    pub targets: Vec<Arch>,
}

/// A normalisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Which one.
    pub kind: NormKind,
    /// Added under the root.
    pub epsilon: f64,
}

/// Which linears have biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Biases {
    /// None of them.
    None,
    /// The joint query, key and value projection only.
    Qkv,
    /// Every linear but the head.
    All,
}

/// Attention of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Base of the rotary angles, if there are any.
    pub rope_theta: Option<f64>,
    /// Does a query see only itself and what is before it?
    pub causal: bool,
    /// Are queries and keys normalised per head (RMS, before rope)?
    pub qk_norm: bool,
}

impl Attention {
    /// Columns of the queries.
    #[must_use]
    pub fn q_columns(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Columns of the keys, and of the values.
    #[must_use]
    pub fn kv_columns(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Columns of the joint projection.
    #[must_use]
    pub fn qkv_columns(&self) -> usize {
        self.q_columns() + 2 * self.kv_columns()
    }
}

/// Feed-forward of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedForward {
    /// The activation, gated or plain.
    pub activation: ActivationKind,
    /// Width of the hidden layer.
    pub d_ff: usize,
}

impl Shape {
    /// The canonical text: every field but the targets, one per line, defaults spelled out. It parses back to the
    /// same Shape, and equal Shapes have equal text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |path: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(text, "{path} = {value}");
        };
        line("model.vocab", &self.vocab);
        line("model.context", &self.context);
        line("model.d_model", &self.d_model);
        line("model.layers", &self.layers);
        line("model.tied", &self.tied);
        line("model.norm", &self.norm.kind.name());
        line("model.norm.eps", &format!("{:e}", self.norm.epsilon));
        line("model.positions", &if self.learned_positions { "learned" } else { "none" });
        line("model.biases", &self.biases.name());
        line("model.precision", &self.precision.name());
        line("attention.heads", &self.attention.heads);
        line("attention.kv_heads", &self.attention.kv_heads);
        line("attention.head_dim", &self.attention.head_dim);
        line("attention.rope", &self.attention.rope_theta.is_some());
        if let Some(theta) = self.attention.rope_theta {
            line("attention.rope.theta", &format!("{theta:?}"));
        }
        line(if self.attention.causal { "attention.causal" } else { "attention.full" }, &true);
        line("attention.qk_norm", &self.attention.qk_norm);
        line(&format!("feed_forward.{}", self.feed_forward.activation.name()), &true);
        line("feed_forward.d_ff", &self.feed_forward.d_ff);
        text
    }

    /// The targets in the flat text form, empty where none is declared. [`Self::text`] leaves them out: what a model is
    /// does not depend on the GPUs it is compiled for.
    #[must_use]
    pub fn targets_text(&self) -> String {
        self.targets.iter().map(Arch::text).collect()
    }

    /// Eight hexadecimal digits of the text's FNV-1a hash (G. Fowler, L. Noll, K.-P. Vo), for folder names.
    #[must_use]
    pub fn hash(&self) -> String {
        let hash = self.text().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{:08x}", (hash ^ (hash >> 32)) & 0xffff_ffff)
    }

    /// Number of trained values.
    #[must_use]
    pub fn n_parameters(&self) -> usize {
        self.parameters().iter().map(|parameter| parameter.shape.iter().product::<usize>()).sum()
    }
}

impl Biases {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::None, Self::Qkv, Self::All];

    /// Its name in the attribute.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Qkv => "qkv",
            Self::All => "all",
        }
    }
}
