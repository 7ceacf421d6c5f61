//! How a plan is to be made, apart from the Shape: plain data, read by passes.

use crate::dtype::Dtype;
use crate::shape::Shape;

/// Options of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Element type of matrix operands; `None` takes the Shape's precision.
    pub precision: Option<Dtype>,
    /// Element type of the gradients of weights, which are summed over micro-batches: fp32, or the precision. The sums
    /// are formed in fp32 and rounded once for each micro-batch.
    pub gradient: Dtype,
    /// Names of passes to leave out; see `passes::SWITCHES`.
    pub without: Vec<String>,
    /// Names of forms to take in place of faster ones, to measure those; see `passes::ABLATIONS`.
    pub with: Vec<String>,
    /// The optimizer's constants.
    pub adamw: AdamWOptions,
    /// Greatest global gradient norm; `None` does not clip.
    pub clip: Option<f32>,
    /// How the loss is scaled, where the precision needs it (see `dtype::Row::scales_loss`).
    pub loss_scaling: LossScaling,
    /// Rows of logits that exist at once in `head_loss`; `None` leaves it to the plan.
    pub head_chunk: Option<usize>,
    /// Weight of the squared log-sum-exp in the loss of a training step; 0 leaves it out.
    pub z_loss: f32,
    /// Are dimensions rounded up to what kernels like?
    pub padded: bool,
    /// What will run the plan.
    pub runs_on: RunsOn,
    /// Multiprocessors of the GPU, where they are known: sums in two stages have as many parts as those work on, and blocks of
    /// attention's gradient are made for so many.
    pub multiprocessors: Option<usize>,
    /// How attention is computed on a GPU.
    pub attention: AttentionPath,
    /// Must the same step give the same bits every time? Else what is faster may add in any order.
    pub deterministic: bool,
    /// Does the GPU add up the gradient of attention's queries in turns, in one pass where it has one (see
    /// `tile::attention_backward_hopper::takes_turns`)? Else an ordered one has a pass of its own.
    pub in_turns: bool,
}

/// What runs a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunsOn {
    /// The host's cores, which need no scratch for attention.
    Host,
    /// Generated kernels.
    Gpu,
}

/// How attention is computed on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionPath {
    /// In one kernel that never writes the scores, where operands are narrow; else split.
    Fused,
    /// Scores written to memory: a product, a softmax, a product. What the fused one is measured against.
    Split,
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

/// Dynamic scaling of the loss, for gradients of a type with a narrow range: the scale is doubled after some updates in a
/// row, and halved when a gradient overflows; that step updates nothing. (P. Micikevicius et al.: "Mixed Precision
/// Training", 2018.)
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaling {
    /// The first scale; a power of two.
    pub initial: f32,
    /// Updates in a row before the scale is doubled.
    pub interval: i32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            precision: None,
            gradient: Dtype::Fp32,
            without: Vec::new(),
            with: Vec::new(),
            adamw: AdamWOptions { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 },
            clip: Some(1.0),
            loss_scaling: LossScaling { initial: 65_536.0, interval: 2000 },
            head_chunk: None,
            z_loss: 0.0,
            padded: true,
            runs_on: RunsOn::Gpu,
            multiprocessors: None,
            attention: AttentionPath::Fused,
            deterministic: true,
            in_turns: false,
        }
    }
}

impl Options {
    /// Element type of matrix operands of this Shape's plans.
    #[must_use]
    pub fn precision(&self, shape: &Shape) -> Dtype {
        self.precision.unwrap_or(shape.precision)
    }

    /// May gradients have the type that was asked for? Products write fp32 or the type of their operands.
    ///
    /// # Errors
    /// What was found and what is allowed, in words.
    pub fn check_gradient(&self, shape: &Shape) -> Result<(), String> {
        let precision = self.precision(shape);
        if [Dtype::Fp32, precision].contains(&self.gradient) {
            return Ok(());
        }
        let (fp32, precision, found) = (Dtype::Fp32.name(), precision.name(), self.gradient.name());
        let or = if precision == fp32 { String::new() } else { format!(" or the precision, `{precision}`") };
        Err(format!("the type of gradients must be `{fp32}`{or}, found `{found}`"))
    }

    /// How the loss of a training step is scaled, if it is.
    #[must_use]
    pub fn scaling(&self, shape: &Shape) -> Option<LossScaling> {
        self.precision(shape).row().scales_loss.then_some(self.loss_scaling)
    }

    /// Is this pass, one of `passes::SWITCHES`, to run?
    #[must_use]
    pub fn runs(&self, pass: &str) -> bool {
        !self.without.iter().any(|name| name == pass)
    }

    /// Was this form, one of `passes::ABLATIONS`, asked for?
    #[must_use]
    pub fn asks_for(&self, form: &str) -> bool {
        self.with.iter().any(|name| name == form)
    }

    /// The options of a plan for the host's cores, which compute in fp32.
    #[must_use]
    pub fn host() -> Self {
        Self { precision: Some(Dtype::Fp32), runs_on: RunsOn::Host, ..Self::default() }
    }
}
