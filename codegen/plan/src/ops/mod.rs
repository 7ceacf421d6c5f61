//! The ops: one file each, holding its buffers, gradient, cost, kernels and naive reference.
//!
//! A new op is a file here, a line in the list below, and its use in `passes/forward.rs`.

pub mod activation;
pub mod adamw;
pub mod add;
pub mod attention;
pub mod cast;
pub mod embedding;
pub mod gradient_norm;
pub mod head;
pub mod head_loss;
pub mod linear;
pub mod norm;
pub mod positions;
pub mod rope;
mod rowwise;
pub mod scale;
mod softcap;
pub mod zero;

use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::Lowered;
use crate::plan::{Io, Step};
use crate::tape::Tape;

#[cfg(feature = "reference")]
use crate::{
    case::Case,
    float::Float,
    reference::{Inputs, Outputs},
};

/// What every op answers.
pub trait Operation: Clone + PartialEq + std::fmt::Debug {
    /// Its name in tables and messages.
    const NAME: &'static str;

    /// Slots it reads that may be narrow (bf16) without loss beyond what a matrix operand suffers: operands of
    /// matrix products, and elementwise inputs that stand beside them.
    const NARROW: &'static [&'static str] = &[];

    /// Slots that hold the residual stream, or the gradient of it, when the op stands in a block's main line.
    const STREAM: &'static [&'static str] = &[];

    /// Work and traffic.
    fn cost(&self, io: &Io) -> Cost;

    /// Emits the steps that compute the gradients of what `step` read. Nothing, for an op that has none.
    fn backward(&self, _step: &Step, _index: usize, _tape: &mut Tape) {}

    /// The launches of this step on `arch`.
    fn lower(&self, io: &Io, arch: &Arch) -> Lowered;

    /// The definition of the op, naive on purpose.
    ///
    /// # Errors
    /// When an index in the data is out of range.
    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String>;

    /// Small steps with odd sizes and non-default values, which every sweep runs through every executor.
    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case>;
}

/// An op in the list of all.
#[derive(Clone, Copy, Debug)]
pub struct OpRow {
    /// Its name.
    pub name: &'static str,
    /// Its test cases.
    #[cfg(feature = "reference")]
    pub cases: fn() -> Vec<Case>,
}

macro_rules! ops {
    ($($module:ident::$name:ident),* $(,)?) => {
        /// One op with its parameters.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)]
        pub enum Op {
            $($name($module::$name)),*
        }

        $(impl From<$module::$name> for Op {
            fn from(op: $module::$name) -> Self {
                Self::$name(op)
            }
        })*

        /// Every op.
        pub const ALL: &[OpRow] = &[$(OpRow {
            name: <$module::$name as Operation>::NAME,
            #[cfg(feature = "reference")]
            cases: <$module::$name as Operation>::cases,
        }),*];

        impl Op {
            /// Its name in tables and messages.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => <$module::$name as Operation>::NAME),* }
            }

            /// See [`Operation::NARROW`].
            #[must_use]
            pub fn narrow_slots(&self) -> &'static [&'static str] {
                match self { $(Self::$name(_) => <$module::$name as Operation>::NARROW),* }
            }

            /// See [`Operation::STREAM`].
            #[must_use]
            pub fn stream_slots(&self) -> &'static [&'static str] {
                match self { $(Self::$name(_) => <$module::$name as Operation>::STREAM),* }
            }

            /// See [`Operation::cost`].
            #[must_use]
            pub fn cost(&self, io: &Io) -> Cost {
                match self { $(Self::$name(op) => op.cost(io)),* }
            }

            /// See [`Operation::backward`].
            pub fn backward(&self, step: &Step, index: usize, tape: &mut Tape) {
                match self { $(Self::$name(op) => op.backward(step, index, tape)),* }
            }

            /// See [`Operation::lower`]. A step of more rows than 32 bits count has no kernel, whatever its op.
            #[must_use]
            pub fn lower(&self, io: &Io, arch: &Arch) -> Lowered {
                if !io.buffers().all(|buffer| buffer.rows() <= rowwise::ROWS) {
                    return rowwise::TOO_LARGE;
                }
                match self { $(Self::$name(op) => op.lower(io, arch)),* }
            }

            /// See [`Operation::reference`].
            ///
            /// # Errors
            /// When an index in the data is out of range.
            #[cfg(feature = "reference")]
            pub fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
                match self { $(Self::$name(op) => op.reference(inputs)),* }
            }
        }
    };
}

ops! {
    embedding::Embedding,
    embedding::EmbeddingBackward,
    positions::Positions,
    positions::PositionsBackward,
    norm::Norm,
    norm::NormBackward,
    linear::Linear,
    linear::LinearBackward,
    rope::Rope,
    attention::Attention,
    attention::AttentionBackward,
    activation::Activation,
    activation::ActivationBackward,
    add::Add,
    scale::Scale,
    cast::Cast,
    zero::Zero,
    head_loss::HeadLoss,
    head::Head,
    gradient_norm::GradientNorm,
    adamw::AdamW,
}
