//! The trained values of a Shape: names, dimensions and how they begin.
//!
//! A weight of a linear is [outputs, inputs]. Query, key and value share one matrix, in that order of rows; so do
//! gate and up.

use super::{Biases, Shape};
use crate::ops::norm::NormKind;

/// How a parameter begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// Normal with this standard deviation, around 0.
    Normal(f64),
    /// All ones.
    Ones,
    /// All zeros.
    Zeros,
}

/// A trained tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// `layers.3.attention.qkv.weight`.
    pub name: String,
    /// Dimensions, the contiguous one last.
    pub shape: Vec<usize>,
    /// How it begins.
    pub initial: Initial,
}

impl Parameter {
    /// Does weight decay apply? Only to matrices.
    #[must_use]
    pub fn decays(&self) -> bool {
        self.shape.len() > 1
    }
}

/// Standard deviation of every matrix at the start (GPT-2's), before the 1/sqrt(2 layers) of those that write to the
/// residual stream.
const DEVIATION: f64 = 0.02;

impl Shape {
    /// Every trained tensor, in the order of the forward pass.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut list = List(Vec::new());
        let Self { vocab, d_model, attention, feed_forward, .. } = *self;
        #[allow(clippy::cast_precision_loss)]
        let to_residual = DEVIATION / (2.0 * self.layers as f64).sqrt();
        list.add("embedding.weight", vec![vocab, d_model], Initial::Normal(DEVIATION));
        if self.learned_positions {
            list.add("positions.weight", vec![self.context, d_model], Initial::Normal(DEVIATION));
        }
        for layer in 0..self.layers {
            let at = |rest: &str| format!("layers.{layer}.{rest}");
            list.norm(&at("attention_norm"), self.norm.kind, d_model);
            let qkv_bias = self.biases != Biases::None;
            list.linear(&at("attention.qkv"), attention.qkv_columns(), d_model, DEVIATION, qkv_bias);
            if attention.qk_norm {
                list.norm(&at("attention.q_norm"), NormKind::Rms, attention.head_dim);
                list.norm(&at("attention.k_norm"), NormKind::Rms, attention.head_dim);
            }
            let bias = self.biases == Biases::All;
            list.linear(&at("attention.output"), d_model, attention.q_columns(), to_residual, bias);
            list.norm(&at("feed_forward_norm"), self.norm.kind, d_model);
            let hidden = feed_forward.activation.inputs() * feed_forward.d_ff;
            list.linear(&at("feed_forward.up"), hidden, d_model, DEVIATION, bias);
            list.linear(&at("feed_forward.down"), d_model, feed_forward.d_ff, to_residual, bias);
        }
        list.norm("final_norm", self.norm.kind, d_model);
        if !self.tied {
            list.add("head.weight", vec![vocab, d_model], Initial::Normal(DEVIATION));
        }
        list.0
    }
}

struct List(Vec<Parameter>);

impl List {
    fn add(&mut self, name: &str, shape: Vec<usize>, initial: Initial) {
        self.0.push(Parameter { name: name.to_owned(), shape, initial });
    }

    fn norm(&mut self, name: &str, kind: NormKind, columns: usize) {
        self.add(&format!("{name}.weight"), vec![columns], Initial::Ones);
        if kind.has_bias() {
            self.add(&format!("{name}.bias"), vec![columns], Initial::Zeros);
        }
    }

    fn linear(&mut self, name: &str, outputs: usize, inputs: usize, deviation: f64, bias: bool) {
        self.add(&format!("{name}.weight"), vec![outputs, inputs], Initial::Normal(deviation));
        if bias {
            self.add(&format!("{name}.bias"), vec![outputs], Initial::Zeros);
        }
    }
}
