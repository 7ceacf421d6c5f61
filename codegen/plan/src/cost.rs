//! What a step costs, and the least time a card needs for it.

use crate::card::Card;

/// Work and traffic of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Floating-point operations of matrix products (a multiply-add is two).
    pub tensor_flops: f64,
    /// Other floating-point operations.
    pub vector_flops: f64,
    /// Bytes read and written, each tensor once.
    pub bytes: f64,
}

impl Cost {
    /// All floating-point operations.
    #[must_use]
    pub fn flops(&self) -> f64 {
        self.tensor_flops + self.vector_flops
    }

    /// Roofline time on `card`, seconds: the larger of traffic over bandwidth and work over the rate of the unit that
    /// does it. (S. Williams, A. Waterman, D. Patterson: "Roofline", CACM 52(4), 2009.) With `tensor_cores` false,
    /// matrix products run at the fp32 rate.
    #[must_use]
    pub fn roofline_seconds(&self, card: &Card, tensor_cores: bool) -> f64 {
        let tensor_rate = if tensor_cores { card.tensor_flops } else { card.fp32_flops };
        let work = self.tensor_flops / tensor_rate + self.vector_flops / card.fp32_flops;
        work.max(self.bytes / card.bandwidth)
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.tensor_flops += other.tensor_flops;
        self.vector_flops += other.vector_flops;
        self.bytes += other.bytes;
    }
}
