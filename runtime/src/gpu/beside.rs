//! Memory that a GPU's driver takes: for plans, counted; when it is opened, whatever plans come, known before.

use super::{Gpu, products, staging};

/// Bytes of the GPU's memory, by what for.
#[must_use]
pub fn beside(capability: (u32, u32)) -> [(&'static str, usize); 2] {
    [
        ("workspace of matrix products", products::workspace_bytes(capability)),
        ("uploads under way", staging::RING),
    ]
}

/// Bytes of the host's memory that are pinned for what is on its way from and to a GPU.
#[must_use]
pub fn pinned() -> usize {
    staging::PINNED
}

impl Gpu {
    /// Bytes of its memory that were free when it was opened, before anything was taken.
    #[must_use]
    pub fn free_at_first(&self) -> Option<u64> {
        self.free
    }

    /// Allocations made so far, those given back included.
    #[must_use]
    pub fn n_allocations(&self) -> usize {
        self.rooms.0.len()
    }

    /// Bytes that are allocated now.
    #[must_use]
    pub fn bytes_in_use(&self) -> usize {
        self.rooms.0.iter().flatten().map(|held| held.memory.bytes()).sum()
    }

    /// Bytes that it took beside plans.
    pub(super) fn bytes_beside(&self) -> usize {
        beside(self.facts.capability).iter().map(|(_, bytes)| bytes).sum()
    }
}
