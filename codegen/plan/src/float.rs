//! The numbers a reference computes with: f32 or f64.

use std::fmt::{Debug, Display};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

/// f32 or f64.
pub trait Float:
    Copy
    + Debug
    + Display
    + PartialOrd
    + Default
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + Sum
    + Send
    + Sync
    + 'static
{
    /// The nearest number to an f64.
    fn of(value: f64) -> Self;
    /// The same number as f64.
    fn f64(self) -> f64;
    /// e^x.
    #[must_use]
    fn exp(self) -> Self;
    /// Natural logarithm.
    #[must_use]
    fn ln(self) -> Self;
    /// Square root.
    #[must_use]
    fn sqrt(self) -> Self;
    /// Hyperbolic tangent.
    #[must_use]
    fn tanh(self) -> Self;
    /// The error function.
    #[must_use]
    fn erf(self) -> Self;
}

macro_rules! float {
    ($type:ident, $erf:path) => {
        #[allow(clippy::cast_possible_truncation, clippy::cast_lossless)]
        impl Float for $type {
            fn of(value: f64) -> Self {
                value as $type
            }
            fn f64(self) -> f64 {
                self as f64
            }
            fn exp(self) -> Self {
                $type::exp(self)
            }
            fn ln(self) -> Self {
                $type::ln(self)
            }
            fn sqrt(self) -> Self {
                $type::sqrt(self)
            }
            fn tanh(self) -> Self {
                $type::tanh(self)
            }
            fn erf(self) -> Self {
                $erf(self)
            }
        }
    };
}

float!(f32, libm::erff);
float!(f64, libm::erf);
