//! What calls have done, and how fast.

/// Of each kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Output and log-sum-exp.
    pub forward: Figures,
    /// Output alone.
    pub inference: Figures,
    /// Gradients.
    pub backward: Figures,
}

/// Of one kind of call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Calls so far.
    pub calls: u64,
    /// Those that were timed.
    pub timed: u64,
    /// What those took, by the device's clock.
    pub seconds: f64,
    /// Floating-point operations of a call's matrix products, over the pairs of query and key that the mask leaves.
    pub flops: f64,
    /// Bytes that a call must read and write at least: each tensor once, and what scratch adds to that.
    pub bytes: f64,
}

impl Figures {
    /// Mean time of a call; `None` where none was timed.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn seconds_per_call(&self) -> Option<f64> {
        (self.timed > 0).then(|| self.seconds / self.timed as f64)
    }

    /// 10^12 floating-point operations per second.
    #[must_use]
    pub fn tflops(&self) -> Option<f64> {
        Some(self.flops * 1e-12 / self.seconds_per_call()?)
    }

    /// 10^9 bytes per second.
    #[must_use]
    pub fn gigabytes_per_second(&self) -> Option<f64> {
        Some(self.bytes * 1e-9 / self.seconds_per_call()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_calls_that_were_timed() {
        let figures = Figures { calls: 7, timed: 2, seconds: 0.5, flops: 1e12, bytes: 5e9 };
        assert_eq!(figures.seconds_per_call(), Some(0.25));
        assert_eq!((figures.tflops(), figures.gigabytes_per_second()), (Some(4.0), Some(20.0)));
        let untimed = Figures { timed: 0, ..figures };
        assert_eq!((untimed.seconds_per_call(), untimed.tflops()), (None, None));
    }
}
