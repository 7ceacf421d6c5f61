//! A bound on scores and logits: `c tanh(x / c)`.

use super::exp::tanh;

/// The bound and its inverse.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Softcap {
    cap: f32,
    inverse: f32,
}

impl Softcap {
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn new(cap: f64) -> Self {
        Self { cap: cap as f32, inverse: (1.0 / cap) as f32 }
    }

    #[inline(always)]
    pub(crate) fn value(self, x: f32) -> f32 {
        self.cap * tanh(x * self.inverse)
    }

    /// The derivative where the value is `value`.
    #[inline(always)]
    pub(crate) fn slope(self, value: f32) -> f32 {
        let t = value * self.inverse;
        1.0 - t * t
    }
}
