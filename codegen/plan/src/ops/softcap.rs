//! A bound on scores and logits (Gemma 2, 2024).

use crate::float::Float;

/// `c tanh(x / c)` for a cap c, or x itself without one; and its derivative by x.
pub(super) fn softcap<F: Float>(x: F, cap: Option<f64>) -> (F, F) {
    let Some(cap) = cap.map(F::of) else { return (x, F::of(1.0)) };
    let t = (x / cap).tanh();
    (cap * t, F::of(1.0) - t * t)
}
