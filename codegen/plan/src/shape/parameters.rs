//! The trained values of a Shape: names, dimensions and how they begin.
//!
//! A weight of a linear is [outputs, inputs]. Query, key and value share one matrix, in that order of rows; so do
//! gate and up. A plan holds each with its dimensions padded (see `padding`); everywhere else they are as here.

use super::{Parallel, Shape};
use crate::ops::norm::{NormKind, NormWeight};
use std::borrow::Cow;

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
    /// Dimensions in a plan: as `shape`, or larger.
    pub padded: Vec<usize>,
    /// How it begins.
    pub initial: Initial,
    /// Equal parts of each dimension, each padded by itself (the heads of a projection).
    parts: Vec<usize>,
}

/// A dimension: its size, its padded size, and the number of equal parts that are padded each by itself.
#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    padded: usize,
    parts: usize,
}

/// A dimension that is never padded.
fn plain(size: usize) -> Axis {
    Axis { size, padded: size, parts: 1 }
}

/// `parts` times a dimension that may be.
fn times(parts: usize, size: usize, padded: usize) -> Axis {
    Axis { size: parts * size, padded: parts * padded, parts }
}

impl Parameter {
    /// Does weight decay apply? Only to matrices.
    #[must_use]
    pub fn decays(&self) -> bool {
        self.shape.len() > 1
    }

    /// `values`, which have the dimensions `shape`, with zeros where a plan holds padding.
    #[must_use]
    pub fn pad<'a, T: Copy + Default>(&self, values: &'a [T]) -> Cow<'a, [T]> {
        if self.shape == self.padded {
            return Cow::Borrowed(values);
        }
        let mut padded = vec![T::default(); self.padded.iter().product()];
        self.each_run(|from, to, n| padded[to..to + n].copy_from_slice(&values[from..from + n]));
        Cow::Owned(padded)
    }

    /// What `pad` made larger, as it was: the padding is left out.
    #[must_use]
    pub fn unpad<T: Copy + Default>(&self, padded: Vec<T>) -> Vec<T> {
        if self.shape == self.padded {
            return padded;
        }
        let mut values = vec![T::default(); self.shape.iter().product()];
        self.each_run(|from, to, n| values[from..from + n].copy_from_slice(&padded[to..to + n]));
        values
    }

    /// Calls `visit` with (place, padded place, length) of every run of neighbours that padding leaves together.
    fn each_run(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let last = self.shape.len() - 1;
        let (columns, padded_columns) = (self.shape[last], self.padded[last]);
        let run = columns / self.parts[last];
        let padded_run = padded_columns / self.parts[last];
        let (rows, padded_rows, row_parts) = match last {
            0 => (1, 1, 1),
            _ => (self.shape[0], self.padded[0], self.parts[0]),
        };
        let (part_rows, padded_part_rows) = (rows / row_parts, padded_rows / row_parts);
        for row in 0..rows {
            let padded_row = row / part_rows * padded_part_rows + row % part_rows;
            for part in 0..self.parts[last] {
                let from = row * columns + part * run;
                visit(from, padded_row * padded_columns + part * padded_run, run);
            }
        }
    }
}

/// Standard deviation of every matrix at the start (GPT-2's), before the 1/sqrt(2 layers) of those that write to the
/// residual stream.
const DEVIATION: f64 = 0.02;

impl Shape {
    /// Every trained tensor, in the order of the forward pass.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut list = List { parameters: Vec::new(), kind: self.norm.kind, weight: self.norm.weight };
        let padded = self.padded();
        let (attention, biases) = (self.attention, self.biases);
        #[allow(clippy::cast_precision_loss)]
        let to_residual = DEVIATION / (2.0 * self.layers as f64).sqrt();
        let d_model = plain(self.d_model);
        let vocab = times(1, self.vocab, padded.vocab);
        let heads = |n: usize| times(n, attention.head_dim, padded.attention.head_dim);
        let d_ff = |n: usize| times(n, self.feed_forward.d_ff, padded.feed_forward.d_ff);
        list.add("embedding.weight", &[vocab, d_model], Initial::Normal(DEVIATION));
        if self.learned_positions {
            list.add("positions.weight", &[plain(self.context), d_model], Initial::Normal(DEVIATION));
        }
        if self.norm.embedding {
            list.norm("embedding_norm", d_model);
        }
        for layer in 0..self.layers {
            let at = |rest: &str| format!("layers.{layer}.{rest}");
            if self.norm.placement.before() {
                list.norm(&at("attention_norm"), d_model);
            }
            let qkv = heads(attention.heads + 2 * attention.kv_heads);
            list.linear(&at("attention.qkv"), qkv, d_model, DEVIATION, biases.qkv);
            if let Some(norm) = attention.qk_norm {
                let of = |n: usize| heads(if norm.whole { n } else { 1 });
                list.rms_norm(&at("attention.q_norm"), of(attention.heads));
                list.rms_norm(&at("attention.k_norm"), of(attention.kv_heads));
            }
            list.linear(&at("attention.output"), d_model, heads(attention.heads), to_residual, biases.others);
            if self.norm.placement.after() {
                list.norm(&at("attention_post_norm"), d_model);
            }
            if self.norm.placement.before() && self.parallel != Parallel::OneNorm {
                list.norm(&at("feed_forward_norm"), d_model);
            }
            let hidden = d_ff(self.feed_forward.activation.inputs());
            list.linear(&at("feed_forward.up"), hidden, d_model, DEVIATION, biases.others);
            list.linear(&at("feed_forward.down"), d_model, d_ff(1), to_residual, biases.others);
            if self.norm.placement.after() {
                list.norm(&at("feed_forward_post_norm"), d_model);
            }
        }
        list.norm("final_norm", d_model);
        if !self.tied {
            list.add("head.weight", &[vocab, d_model], Initial::Normal(DEVIATION));
        }
        if biases.head {
            list.add("head.bias", &[vocab], Initial::Zeros);
        }
        list.parameters
    }
}

struct List {
    parameters: Vec<Parameter>,
    kind: NormKind,
    weight: NormWeight,
}

impl List {
    fn add(&mut self, name: &str, axes: &[Axis], initial: Initial) {
        self.parameters.push(Parameter {
            name: name.to_owned(),
            shape: axes.iter().map(|axis| axis.size).collect(),
            padded: axes.iter().map(|axis| axis.padded).collect(),
            initial,
            parts: axes.iter().map(|axis| axis.parts).collect(),
        });
    }

    fn rms_norm(&mut self, name: &str, columns: Axis) {
        let initial = match self.weight {
            NormWeight::None => return,
            NormWeight::W => Initial::Ones,
            NormWeight::OnePlusW => Initial::Zeros,
        };
        self.add(&format!("{name}.weight"), &[columns], initial);
    }

    fn norm(&mut self, name: &str, columns: Axis) {
        self.rms_norm(name, columns);
        if self.kind.has_bias() && self.weight != NormWeight::None {
            self.add(&format!("{name}.bias"), &[columns], Initial::Zeros);
        }
    }

    fn linear(&mut self, name: &str, outputs: Axis, inputs: Axis, deviation: f64, bias: bool) {
        self.add(&format!("{name}.weight"), &[outputs, inputs], Initial::Normal(deviation));
        if bias {
            self.add(&format!("{name}.bias"), &[outputs], Initial::Zeros);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_put_in_and_taken_out_part_by_part() {
        let parameter = |axes: &[Axis]| {
            let mut list = List { parameters: Vec::new(), kind: NormKind::Rms, weight: NormWeight::W };
            list.add("p", axes, Initial::Zeros);
            list.parameters.remove(0)
        };
        for (axes, values, padded) in [
            (vec![times(2, 1, 2), plain(2)], vec![1, 2, 3, 4], vec![1, 2, 0, 0, 3, 4, 0, 0]),
            (vec![plain(1), times(2, 2, 3)], vec![1, 2, 3, 4], vec![1, 2, 0, 3, 4, 0]),
            (vec![times(1, 3, 4)], vec![1, 2, 3], vec![1, 2, 3, 0]),
            (vec![plain(2), plain(2)], vec![1, 2, 3, 4], vec![1, 2, 3, 4]),
        ] {
            let parameter = parameter(&axes);
            assert_eq!(parameter.pad(&values), padded);
            assert_eq!(parameter.unpad(padded), values);
        }
    }

    #[test]
    fn what_is_added_of_the_weights_offset_is_one() {
        for weight in NormWeight::ALL {
            let mut list = List { parameters: Vec::new(), kind: NormKind::Layer, weight };
            list.norm("n", plain(8));
            let factors = list.parameters.iter().filter(|p| p.name == "n.weight").map(|p| match p.initial {
                Initial::Ones => 1.0,
                _ => weight.offset(),
            });
            assert!(factors.clone().all(|factor| factor == 1.0), "{}", weight.name());
            assert_eq!(list.parameters.len(), if weight == NormWeight::None { 0 } else { 2 });
        }
    }
}
