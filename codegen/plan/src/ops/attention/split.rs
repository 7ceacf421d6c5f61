//! Launches of attention with its scores in memory: products by the vendor's library and a softmax between them.

use super::Attention;
use crate::launch::Lowered;
use crate::plan::Io;

pub(super) fn lower(_op: &Attention, _sequences: usize, _io: &Io) -> Lowered {
    Lowered::NoKernel("no kernel yet")
}

pub(super) fn lower_backward(_op: &Attention, _sequences: usize, _io: &Io) -> Lowered {
    Lowered::NoKernel("no kernel yet")
}
