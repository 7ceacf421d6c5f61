//! Dimensions as kernels and matrix products like them: rounded up, the added rows and columns full of zeros.
//!
//! Zeros stay zeros: what reads them yields zeros, which yield no gradient, and no weight decay moves a zero. Only the
//! softmax over tokens and the means of norms must be told of the true sizes. Nothing padded leaves the plan: see
//! `Parameter::pad` and `unpad`.

use super::{Attention, FeedForward, Shape};

/// Columns in 16 bytes of a two-byte type: what vector loads and tensor cores ask of a row.
const ALIGNED: usize = 8;

/// Tokens: whole tiles of the largest matrix product there is, where they are few beside the vocabulary.
const TILE: usize = 64;

impl Shape {
    /// The same with `vocab`, `d_ff` and `head_dim` rounded up.
    #[must_use]
    pub fn padded(&self) -> Self {
        let multiple = if self.vocab < 16 * TILE { ALIGNED } else { TILE };
        Self {
            vocab: self.vocab.next_multiple_of(multiple),
            attention: Attention {
                head_dim: self.attention.head_dim.next_multiple_of(ALIGNED),
                ..self.attention
            },
            feed_forward: FeedForward {
                d_ff: self.feed_forward.d_ff.next_multiple_of(ALIGNED),
                ..self.feed_forward
            },
            ..self.clone()
        }
    }
}
