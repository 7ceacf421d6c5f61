//! Launches of the fused backward, in one pass or in two.

use super::AttentionBackward;
use crate::arch::Arch;
use crate::launch::Lowered;
use crate::plan::Io;

pub(super) fn lower(_op: &AttentionBackward, _io: &Io, _arch: &Arch) -> Lowered {
    Lowered::NoKernel("no kernel yet")
}
