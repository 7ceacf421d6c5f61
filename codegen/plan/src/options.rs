//! How a plan is to be made, apart from the Shape: plain data, read by passes.

use crate::dtype::Dtype;

/// Options of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Element type of matrix operands; `None` takes the Shape's precision.
    pub precision: Option<Dtype>,
    /// Names of passes to leave out; see `passes::SWITCHES`.
    pub without: Vec<String>,
    /// The optimizer's constants.
    pub adamw: AdamWOptions,
    /// Greatest global gradient norm; `None` does not clip.
    pub clip: Option<f32>,
    /// Rows of logits that exist at once in `head_loss`.
    pub head_chunk: usize,
    /// Weight of the squared log-sum-exp in the loss of a training step; 0 leaves it out.
    pub z_loss: f32,
    /// Are dimensions rounded up to what kernels like?
    pub padded: bool,
}

/// Constants of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWOptions {
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Decoupled decay of matrices, times the learning rate.
    pub weight_decay: f32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            precision: None,
            without: Vec::new(),
            adamw: AdamWOptions { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 },
            clip: Some(1.0),
            head_chunk: 512,
            z_loss: 0.0,
            padded: true,
        }
    }
}
