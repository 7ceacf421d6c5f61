//! Numbers that look random, and how close others are to them.

use kernwright::{Element, bf16, f16};

/// An element that is some number.
pub(crate) trait Number: Element {
    /// Distance between 1 and the next number.
    const EPSILON: f64;
    fn of(value: f32) -> Self;
    fn value(self) -> f64;
}

impl Number for bf16 {
    const EPSILON: f64 = 1.0 / 128.0;
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn value(self) -> f64 {
        self.to_f64()
    }
}

impl Number for f16 {
    const EPSILON: f64 = 1.0 / 1024.0;
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn value(self) -> f64 {
        self.to_f64()
    }
}

impl Number for f32 {
    const EPSILON: f64 = f32::EPSILON as f64;
    fn of(value: f32) -> Self {
        value
    }
    fn value(self) -> f64 {
        self.into()
    }
}

/// So many numbers around 0 with a deviation of about 1.
pub(crate) fn random(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u64 << 24) as f32
    };
    let mut normal = || ((0..6).map(|_| uniform()).sum::<f32>() - 3.0) * std::f32::consts::SQRT_2;
    (0..n).map(|_| normal()).collect()
}

/// The very bits.
pub(crate) fn to_bits<T: Number>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.value().to_bits()).collect()
}

/// Are they the same, bit by bit?
pub(crate) fn same<T: Number>(name: &str, what: &str, left: &[T], right: &[T]) {
    let differs = to_bits(left).into_iter().zip(to_bits(right)).position(|(left, right)| left != right);
    assert!(left.len() == right.len() && differs.is_none(), "{name}: {what} differ at {differs:?}");
}

/// Are they close? An operand that is rounded is off by half a unit, and a sum of such by some: `factor` units of the greatest
/// number are allowed, and half of one in the mean.
pub(crate) fn close<T: Number>(what: &str, found: &[T], wanted: &[T], factor: f64) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let greatest = wanted.iter().map(|value| value.value().abs()).fold(0.0, f64::max);
    assert!(greatest > 0.0, "{what} is zero throughout");
    let unit = T::EPSILON * greatest;
    let mut squares = 0.0;
    for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let (found, wanted) = (found.value(), wanted.value());
        let units = (found - wanted).abs() / unit;
        assert!(
            units <= factor,
            "{what}: element {index} is {found}, not {wanted}: {units:.2} of {factor} units"
        );
        squares += units * units;
    }
    let mean = (squares / found.len() as f64).sqrt();
    assert!(mean <= factor / 8.0, "{what} is off by {mean:.3} units in the mean, of {}", factor / 8.0);
}
