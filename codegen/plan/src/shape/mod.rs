//! The shape of a transformer: everything that is constant in its kernels.
//!
//! In: fields from a front end. Out: a [`Shape`], or every problem with its place. Batch size and sequence length
//! are not here: one set of kernels serves all of them.

mod alone;
mod attention;
mod change;
mod fields;
mod miniature;
mod padding;
mod parameters;
mod parse;
pub mod presets;
mod suggestion;
mod targets;
mod text;

pub use alone::{ATTENTION_FIELDS, ATTENTION_SECTIONS, AttentionShape, Layout};
pub use attention::{Attention, LayerKind, LayerName, QkNorm, QkNormOrder, Rope};
pub use fields::{FIELDS, FieldRow, Kind, PLANNED, SECTIONS};
pub use miniature::Miniature;
pub use parameters::{Initial, Parameter};
pub use parse::{parse, parse_attention, parse_attention_text, parse_text};

use crate::arch::Arch;
use crate::dtype::Dtype;
use crate::ops::activation::ActivationKind;
use crate::ops::norm::{NormKind, NormWeight};

/// A transformer: blocks of attention and feed-forward over one residual stream.
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
    /// Kinds of layer, repeated over the depth; not empty.
    pub pattern: Vec<LayerName>,
    /// Is the head the embedding's transpose?
    pub tied: bool,
    /// Every norm but that of queries and keys.
    pub norm: Norm,
    /// Are there learned position embeddings?
    pub learned_positions: bool,
    /// Which linears have biases.
    pub biases: Biases,
    /// How attention and feed-forward of a block follow each other.
    pub parallel: Parallel,
    /// Element type of matrix operands.
    pub precision: Dtype,
    /// Element type of the residual stream.
    pub residual: Dtype,
    /// What embeddings of tokens are multiplied by.
    pub embedding_scale: f64,
    /// What attention and feed-forward are multiplied by before they are added to the stream.
    pub residual_scale: f64,
    /// What the products of the head are multiplied by.
    pub logits_scale: f64,
    /// Bound of the logits.
    pub softcap: Option<f64>,
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
    /// The learned factor.
    pub weight: NormWeight,
    /// Where in a block it stands.
    pub placement: Placement,
    /// Is there one more after the embedding?
    pub embedding: bool,
}

/// Where the norms of a block stand, for each half f of it. Before the head there is always one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// `x + f(norm(x))`.
    Pre,
    /// `x + norm(f(x))`.
    Post,
    /// `x + norm(f(norm(x)))`.
    Both,
}

impl Placement {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Pre, Self::Post, Self::Both];

    /// Its name in the attribute.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Post => "post",
            Self::Both => "both",
        }
    }

    /// Is there a norm before each half?
    #[must_use]
    pub fn before(self) -> bool {
        self != Self::Post
    }

    /// Is there a norm after each half?
    #[must_use]
    pub fn after(self) -> bool {
        self != Self::Pre
    }
}

/// Which linears have biases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// The joint query, key and value projection.
    pub qkv: bool,
    /// The other linears of a block.
    pub others: bool,
    /// The head.
    pub head: bool,
}

/// How the two halves of a block follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// Feed-forward reads what attention added to.
    No,
    /// Both read the block's input, each through a norm of its own.
    TwoNorms,
    /// Both read the block's input through one norm.
    OneNorm,
}

/// Feed-forward of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedForward {
    /// The activation, gated or plain.
    pub activation: ActivationKind,
    /// Width of the hidden layer.
    pub d_ff: usize,
}

/// Eight hexadecimal digits of a text's FNV-1a hash (G. Fowler, L. Noll, K.-P. Vo), for folder names.
#[must_use]
pub fn hash(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{:08x}", (hash ^ (hash >> 32)) & 0xffff_ffff)
}

impl Shape {
    /// The targets in the flat text form, empty where none is declared. [`Self::text`] leaves them out: what a model is
    /// does not depend on the GPUs it is compiled for.
    #[must_use]
    pub fn targets_text(&self) -> String {
        self.targets.iter().map(Arch::text).collect()
    }

    /// The [`hash`] of its text.
    #[must_use]
    pub fn hash(&self) -> String {
        hash(&self.text())
    }

    /// Number of trained values.
    #[must_use]
    pub fn n_parameters(&self) -> usize {
        self.parameters().iter().map(|parameter| parameter.shape.iter().product::<usize>()).sum()
    }

    /// The kind of a layer.
    #[must_use]
    pub fn layer_kind(&self, layer: usize) -> LayerKind {
        self.attention.kind(self.pattern[layer % self.pattern.len()])
    }

    /// Does the pattern name more than the one kind there is without it?
    #[must_use]
    pub fn has_pattern(&self) -> bool {
        self.pattern != [LayerName::Global]
    }
}
