//! The table of element types. Everything that depends on one is a column here.
//!
//! In: a name. Out: size, CUDA name, rounding, tolerance unit. A `match` on [`Dtype`] outside this file is a smell:
//! add a column instead.

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    /// IEEE single precision.
    Fp32,
    /// bfloat16: the upper half of an fp32.
    Bf16,
    /// Signed 32-bit whole number: tokens, positions, counters.
    I32,
}

/// What the table says of one element type.
#[derive(Debug)]
pub struct Row {
    /// The type itself.
    pub dtype: Dtype,
    /// Its name in attributes, kernel names and tables.
    pub name: &'static str,
    /// Its name in the generated CUDA.
    pub cuda: &'static str,
    /// Its name in a safetensors header.
    pub safetensors: &'static str,
    /// Bytes per element.
    pub bytes: usize,
    /// Stored mantissa bits; 0 for a whole number.
    pub mantissa_bits: u32,
    /// May a Shape ask for it as its precision?
    pub is_precision: bool,
}

/// Every element type.
pub const ALL: &[Row] = &[
    Row {
        dtype: Dtype::Fp32,
        name: "fp32",
        cuda: "float",
        safetensors: "F32",
        bytes: 4,
        mantissa_bits: 23,
        is_precision: true,
    },
    Row {
        dtype: Dtype::Bf16,
        name: "bf16",
        cuda: "bf16",
        safetensors: "BF16",
        bytes: 2,
        mantissa_bits: 7,
        is_precision: true,
    },
    Row {
        dtype: Dtype::I32,
        name: "i32",
        cuda: "i32",
        safetensors: "I32",
        bytes: 4,
        mantissa_bits: 0,
        is_precision: false,
    },
];

impl Dtype {
    /// This type's row.
    #[must_use]
    pub fn row(self) -> &'static Row {
        // Every variant has a row: a test walks them.
        ALL.iter().find(|row| row.dtype == self).unwrap_or(&ALL[0])
    }

    /// Its name: `fp32`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Bytes per element.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.row().bytes
    }

    /// Is it a whole number?
    #[must_use]
    pub fn is_integer(self) -> bool {
        self.row().mantissa_bits == 0
    }

    /// Distance between 1 and the next number above it (2^-mantissa bits): the unit of tolerances.
    #[must_use]
    pub fn epsilon(self) -> f64 {
        0.5_f64.powi(self.row().mantissa_bits.cast_signed())
    }

    /// `value` rounded to this type, to nearest, ties to even. The exponent range is that of fp32 for every float
    /// row so far; subnormals of the target are kept exact, which no test depends on.
    #[must_use]
    pub fn round(self, value: f64) -> f64 {
        if self.is_integer() || !value.is_finite() {
            return value;
        }
        let dropped = 52 - self.row().mantissa_bits;
        let bits = value.to_bits();
        let half = (1_u64 << (dropped - 1)) - 1 + ((bits >> dropped) & 1);
        let rounded = f64::from_bits((bits + half) & !((1_u64 << dropped) - 1));
        if rounded.abs() > f64::from(f32::MAX) { f64::INFINITY.copysign(rounded) } else { rounded }
    }

    /// The type of that name that a Shape may ask for.
    #[must_use]
    pub fn precision(name: &str) -> Option<Self> {
        ALL.iter().find(|row| row.is_precision && row.name == name).map(|row| row.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_its_own_row() {
        for dtype in [Dtype::Fp32, Dtype::Bf16, Dtype::I32] {
            assert_eq!(dtype.row().dtype, dtype);
        }
    }

    #[test]
    fn fp32_rounding_is_the_cast() {
        for value in [0.1, -3.7e8, 1.0 + 2f64.powi(-24), 1.0 + 3.0 * 2f64.powi(-24), 0.0] {
            assert_eq!(Dtype::Fp32.round(value), f64::from(value as f32), "{value}");
        }
    }

    #[test]
    fn bf16_rounds_to_nearest_even() {
        assert_eq!(Dtype::Bf16.round(1.0 + 2f64.powi(-8)), 1.0);
        assert_eq!(Dtype::Bf16.round(1.0 + 3.0 * 2f64.powi(-8)), 1.0 + 2f64.powi(-6));
        assert_eq!(Dtype::Bf16.round(1.0 + 2f64.powi(-8) + 1e-9), 1.0 + 2f64.powi(-7));
        assert!(Dtype::Bf16.round(3.4e38 * 1.01).is_infinite());
    }
}
