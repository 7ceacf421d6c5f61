//! Buffers of a plan: named tensors with a role, possibly a view of some columns of another.
//!
//! In: nothing. Out: [`Buffer`] and its layout. A view never copies: it names columns of its base.

use crate::dtype::Dtype;

/// Index of a buffer in `Plan::buffers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub usize);

/// What a buffer is for; decides how long it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Written from outside before a run: tokens, targets, learning rate.
    Input,
    /// A weight, kept in fp32.
    Parameter,
    /// The narrow working copy of a weight, written by the optimizer.
    Working,
    /// The gradient of a weight; kept over the micro-batches of a step.
    Gradient,
    /// First or second moment of the optimizer.
    Moment,
    /// What a step leaves to the next one besides: whether training goes on, the scale of the loss.
    State,
    /// Read from outside after a run: loss, logits, gradient norm.
    Output,
    /// Lives from its first writer to its last reader: activations and their gradients.
    Activation,
    /// Room that one step needs while it runs; holds nothing afterwards.
    Scratch,
}

impl Role {
    /// Every role, in the order tables list them.
    pub const ALL: [Self; 9] = [
        Self::Parameter,
        Self::Working,
        Self::Gradient,
        Self::Moment,
        Self::State,
        Self::Input,
        Self::Output,
        Self::Activation,
        Self::Scratch,
    ];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Parameter => "parameter",
            Self::Working => "working copy",
            Self::Gradient => "gradient",
            Self::Moment => "moment",
            Self::State => "state",
            Self::Output => "output",
            Self::Activation => "activation",
            Self::Scratch => "scratch",
        }
    }

    /// Does it keep its content between runs?
    #[must_use]
    pub fn is_persistent(self) -> bool {
        !matches!(self, Self::Activation | Self::Scratch)
    }

    /// Do the plans of one executor share it, by name? Inputs and outputs are each plan's own: their sizes depend on
    /// batch and length.
    #[must_use]
    pub fn is_shared(self) -> bool {
        self.is_persistent() && !matches!(self, Self::Input | Self::Output)
    }
}

/// Columns of another buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The buffer that owns the memory; never itself a view.
    pub of: BufferId,
    /// First column.
    pub column: usize,
}

/// A tensor of a plan, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Unique in its plan: `layers.3.attention.qkv`.
    pub name: String,
    /// Dimensions, the contiguous one last.
    pub shape: Vec<usize>,
    /// Element type.
    pub dtype: Dtype,
    /// What it is for.
    pub role: Role,
    /// Set when it is columns of another buffer.
    pub view: Option<View>,
    /// Byte offset in the arena, once the memory pass has run; views have none.
    pub offset: Option<usize>,
    /// What every element of a shared buffer is before it is first written.
    pub initial: f32,
}

impl Buffer {
    /// Elements of the contiguous dimension.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Product of all dimensions but the last.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape.split_last().map_or(1, |(_, rest)| rest.iter().product())
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Has it no element?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.bytes()
    }
}
