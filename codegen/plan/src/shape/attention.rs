//! Attention as a Shape declares it: one part that all layers share, and one per kind of layer.

use crate::ops::attention::Window;
use crate::ops::rope::RopeScaling;

/// Attention of every block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Does a query see only itself and what is before it?
    pub causal: bool,
    /// How queries and keys are normalised (RMS, with the model's epsilon and kind of weight).
    pub qk_norm: Option<QkNorm>,
    /// Bound of the scores.
    pub softcap: Option<f64>,
    /// What products of queries and keys are multiplied by; `None` is 1 / sqrt(head_dim).
    pub scale: Option<f64>,
    /// Layers called `local` in the pattern; the default where there are none.
    pub local: LayerKind,
    /// Layers called `global` in the pattern; the default where there are none.
    pub global: LayerKind,
}

/// The name of a kind of layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerName {
    /// Usually with a window.
    Local,
    /// Usually without one; every layer, where there is no pattern.
    Global,
}

/// What sets the attention of one kind of layer apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LayerKind {
    /// How far a query sees, if not as far as there are keys; a causal mask leaves of it what is not behind the query.
    pub window: Option<Window>,
    /// Rotary positions, if there are any.
    pub rope: Option<Rope>,
}

/// Rotary positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the angles.
    pub theta: f64,
    /// Share of each head that rotates.
    pub fraction: f64,
    /// How frequencies are changed for longer contexts.
    pub scaling: RopeScaling,
}

impl Rope {
    /// Columns of a head that rotate: even, `None` where `fraction` of `head_dim` is not.
    #[must_use]
    pub fn rotary(&self, head_dim: usize) -> Option<usize> {
        let columns = self.fraction * head_dim as f64;
        let rotary = columns.round();
        // Fractions such as 0.4 are not exact in binary.
        ((columns - rotary).abs() < 1e-6 && rotary % 2.0 == 0.0 && rotary > 0.0).then_some(rotary as usize)
    }
}

/// How queries and keys are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QkNorm {
    /// All heads of a token as one vector, or each head by itself?
    pub whole: bool,
    /// Before or after rope.
    pub order: QkNormOrder,
}

/// Where the norm of queries and keys stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNormOrder {
    /// Before rope.
    Before,
    /// After rope.
    After,
}

impl LayerName {
    /// Every name.
    pub const ALL: [Self; 2] = [Self::Local, Self::Global];

    /// It in the attribute.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Global => "global",
        }
    }
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

    /// What products of queries and keys are multiplied by.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale.unwrap_or_else(|| (self.head_dim as f64).sqrt().recip())
    }

    /// What is particular to a kind of layer.
    #[must_use]
    pub fn kind(&self, name: LayerName) -> LayerKind {
        match name {
            LayerName::Local => self.local,
            LayerName::Global => self.global,
        }
    }
}
