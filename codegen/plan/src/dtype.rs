//! The table of element types. Everything that depends on one is a column here.
//!
//! In: a name. Out: size, CUDA name, rounding, bits, tolerance unit. A `match` on [`Dtype`] outside this file is a smell:
//! add a column instead.

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    /// IEEE single precision.
    Fp32,
    /// bfloat16: the upper half of an fp32.
    Bf16,
    /// IEEE half precision.
    Fp16,
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
    /// Exponent bits, laid out as IEEE 754 does; 0 for a whole number.
    pub exponent_bits: u32,
    /// May a Shape ask for it as its precision?
    pub is_precision: bool,
    /// Is its range so narrow that gradients of this type need a scaled loss?
    pub scales_loss: bool,
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
        exponent_bits: 8,
        is_precision: true,
        scales_loss: false,
    },
    Row {
        dtype: Dtype::Bf16,
        name: "bf16",
        cuda: "bf16",
        safetensors: "BF16",
        bytes: 2,
        mantissa_bits: 7,
        exponent_bits: 8,
        is_precision: true,
        scales_loss: false,
    },
    Row {
        dtype: Dtype::Fp16,
        name: "fp16",
        cuda: "fp16",
        safetensors: "F16",
        bytes: 2,
        mantissa_bits: 10,
        exponent_bits: 5,
        is_precision: true,
        scales_loss: true,
    },
    Row {
        dtype: Dtype::I32,
        name: "i32",
        cuda: "i32",
        safetensors: "I32",
        bytes: 4,
        mantissa_bits: 0,
        exponent_bits: 0,
        is_precision: false,
        scales_loss: false,
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
        power_of_two(-self.row().mantissa_bits.cast_signed())
    }

    /// Greatest exponent of a number of this type; the least one of a normal number is 1 minus this.
    fn max_exponent(self) -> i32 {
        (1 << (self.row().exponent_bits - 1)) - 1
    }

    /// Greatest finite number of this type; infinite for a whole number.
    #[must_use]
    pub fn max(self) -> f64 {
        if self.is_integer() {
            return f64::INFINITY;
        }
        (2.0 - self.epsilon()) * power_of_two(self.max_exponent())
    }

    /// `value` rounded to this type, to nearest, ties to even; what lies beyond its greatest number becomes infinite.
    #[must_use]
    pub fn round(self, value: f64) -> f64 {
        if self.is_integer() || !value.is_finite() {
            return value;
        }
        let least_normal = power_of_two(1 - self.max_exponent());
        if value.abs() < least_normal {
            // Subnormal numbers lie evenly; both powers of two are exact.
            let unit = least_normal * self.epsilon();
            return (value / unit).round_ties_even() * unit;
        }
        let dropped = 52 - self.row().mantissa_bits;
        let bits = value.to_bits();
        let half = (1_u64 << (dropped - 1)) - 1 + ((bits >> dropped) & 1);
        let rounded = f64::from_bits((bits + half) & !((1_u64 << dropped) - 1));
        if rounded.abs() > self.max() { f64::INFINITY.copysign(rounded) } else { rounded }
    }

    /// The bits that stand for `value`, rounded, in the lowest bytes of the word: two's complement for a whole number,
    /// else sign, exponent and mantissa as IEEE 754 lays them out.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub fn encode(self, value: f64) -> u32 {
        let Row { mantissa_bits, exponent_bits, .. } = *self.row();
        match self {
            Self::I32 => return (value as i32).cast_unsigned(),
            Self::Fp32 => return (value as f32).to_bits(),
            Self::Bf16 | Self::Fp16 => {}
        }
        let sign = u32::from(value.is_sign_negative()) << (mantissa_bits + exponent_bits);
        let infinite = ((1 << exponent_bits) - 1) << mantissa_bits;
        let size = self.round(value).abs();
        let least_normal = power_of_two(1 - self.max_exponent());
        sign | if size.is_nan() {
            infinite | 1 << (mantissa_bits - 1)
        } else if size.is_infinite() {
            infinite
        } else if size < least_normal {
            (size / (least_normal * self.epsilon())) as u32
        } else {
            // Both exponents are biased; dropped bits are 0, since the number is rounded.
            let bits = size.to_bits() >> (52 - mantissa_bits);
            (bits - (((1023 - self.max_exponent()) as u64) << mantissa_bits)) as u32
        }
    }

    /// The number that the lowest bytes of the word stand for: the inverse of [`Dtype::encode`].
    #[must_use]
    pub fn decode(self, bits: u32) -> f64 {
        let Row { mantissa_bits, exponent_bits, .. } = *self.row();
        match self {
            Self::I32 => return f64::from(bits.cast_signed()),
            Self::Fp32 => return f64::from(f32::from_bits(bits)),
            Self::Bf16 | Self::Fp16 => {}
        }
        let mantissa = u64::from(bits & ((1 << mantissa_bits) - 1));
        let exponent = u64::from(bits >> mantissa_bits & ((1 << exponent_bits) - 1));
        let size = if exponent == 0 {
            mantissa as f64 * self.epsilon() * power_of_two(1 - self.max_exponent())
        } else {
            let is_finite = exponent != (1 << exponent_bits) - 1;
            let exponent =
                if is_finite { exponent + (1023 - self.max_exponent()) as u64 } else { (1 << 11) - 1 };
            f64::from_bits(exponent << 52 | mantissa << (52 - mantissa_bits))
        };
        if bits >> (mantissa_bits + exponent_bits) & 1 == 1 { -size } else { size }
    }

    /// Numbers as they lie in memory, rounded.
    #[must_use]
    pub fn encode_all(self, values: impl IntoIterator<Item = f64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for value in values {
            bytes.extend_from_slice(&self.encode(value).to_le_bytes()[..self.bytes()]);
        }
        bytes
    }

    /// The numbers that lie in memory.
    pub fn decode_all(self, bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
        bytes.chunks_exact(self.bytes()).map(move |one| {
            let mut word = [0; 4];
            word[..one.len()].copy_from_slice(one);
            self.decode(u32::from_le_bytes(word))
        })
    }

    /// The type of that name that a Shape may ask for.
    #[must_use]
    pub fn precision(name: &str) -> Option<Self> {
        ALL.iter().find(|row| row.is_precision && row.name == name).map(|row| row.dtype)
    }
}

/// 2^`exponent`, for the exponents that a double has: put together from its bits, since every product of the references
/// asks for some.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(u64::from((1023 + exponent).cast_unsigned()) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_its_own_row() {
        for dtype in [Dtype::Fp32, Dtype::Bf16, Dtype::Fp16, Dtype::I32] {
            assert_eq!(dtype.row().dtype, dtype);
        }
    }

    #[test]
    fn fp32_rounding_is_the_cast() {
        let tiny = f64::from(f32::from_bits(1));
        let edges = [1e-40, 1.5 * tiny, 0.5 * tiny, 3.4e38, 3.4028236e38, -1e39];
        let ties = [1.0 + 2f64.powi(-24), 1.0 + 3.0 * 2f64.powi(-24)];
        for value in [0.1, -3.7e8, 0.0].into_iter().chain(edges).chain(ties) {
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

    /// The number that 16 bits with a sign, an exponent and a mantissa stand for, from the definition of IEEE 754.
    fn decode(bits: u16, dtype: Dtype) -> f64 {
        let Row { mantissa_bits, exponent_bits, .. } = *dtype.row();
        let mantissa =
            f64::from(u32::from(bits) & ((1 << mantissa_bits) - 1)) * 0.5_f64.powi(mantissa_bits as i32);
        let exponent = (i32::from(bits) >> mantissa_bits) & ((1 << exponent_bits) - 1);
        let bias = (1 << (exponent_bits - 1)) - 1;
        let size = match exponent {
            0 => mantissa * 2_f64.powi(1 - bias),
            _ if exponent == 2 * bias + 1 && mantissa == 0.0 => f64::INFINITY,
            _ if exponent == 2 * bias + 1 => f64::NAN,
            _ => (1.0 + mantissa) * 2_f64.powi(exponent - bias),
        };
        if bits >> 15 == 1 { -size } else { size }
    }

    #[test]
    fn every_number_of_a_short_type_rounds_to_itself_and_its_neighbourhood_to_it() {
        for dtype in [Dtype::Bf16, Dtype::Fp16] {
            for bits in 0..=u16::MAX {
                let value = decode(bits, dtype);
                let rounded = dtype.round(value);
                let same =
                    if value.is_nan() { rounded.is_nan() } else { rounded.to_bits() == value.to_bits() };
                assert!(same, "{} {bits:#06x}: {value} became {rounded}", dtype.name());
                let next = decode(bits.wrapping_add(1), dtype);
                if !value.is_finite() || !next.is_finite() || bits == 0x7fff {
                    continue;
                }
                // Halfway goes to the neighbour whose last bit is 0, anything off it to the nearer one.
                let half = value / 2.0 + next / 2.0;
                let even = if bits & 1 == 0 { value } else { next };
                let place = format!("{} between {value} and {next}", dtype.name());
                assert_eq!(dtype.round(half), even, "{place}");
                assert_eq!(dtype.round(half + (value - half) * 1e-6), value, "{place}");
                assert_eq!(dtype.round(half + (next - half) * 1e-6), next, "{place}");
            }
        }
    }

    #[test]
    fn bits_and_numbers_are_each_others_inverse() {
        for dtype in [Dtype::Bf16, Dtype::Fp16] {
            for bits in 0..=u16::MAX {
                let (value, found) = (decode(bits, dtype), dtype.decode(bits.into()));
                assert!(
                    value.to_bits() == found.to_bits() || value.is_nan() && found.is_nan(),
                    "{bits:#06x}"
                );
                assert!(value.is_nan() || dtype.encode(value) == bits.into(), "{bits:#06x}: {value}");
            }
            assert!(dtype.decode(dtype.encode(f64::NAN)).is_nan());
            assert_eq!(dtype.decode(dtype.encode(1e39)), f64::INFINITY);
        }
        for value in [0.0, -0.0, 0.1, -3.7e8, 1e-40, f32::MAX, f32::INFINITY] {
            assert_eq!(Dtype::Fp32.encode(value.into()), value.to_bits(), "{value}");
            assert_eq!(Dtype::Fp32.decode(value.to_bits()), f64::from(value), "{value}");
        }
        let values = [1.5, -2.0, 0.0];
        for dtype in [Dtype::Fp32, Dtype::Bf16, Dtype::Fp16] {
            let bytes = dtype.encode_all(values);
            assert_eq!(bytes.len(), 3 * dtype.bytes());
            assert_eq!(dtype.decode_all(&bytes).collect::<Vec<_>>(), values, "{}", dtype.name());
        }
        for value in [0, 1, -100, i32::MIN, i32::MAX] {
            assert_eq!(Dtype::I32.decode(Dtype::I32.encode(value.into())), f64::from(value));
            assert_eq!(Dtype::I32.encode(value.into()), value.cast_unsigned());
        }
    }

    #[test]
    fn what_lies_beyond_the_greatest_number_becomes_infinite() {
        assert_eq!(Dtype::Fp16.max(), 65504.0);
        assert_eq!(Dtype::Fp32.max(), f64::from(f32::MAX));
        assert_eq!(Dtype::Fp16.round(65519.9), 65504.0);
        assert_eq!(Dtype::Fp16.round(-65520.0), f64::NEG_INFINITY);
        assert_eq!(Dtype::Fp16.round(2f64.powi(-25)), 0.0);
        assert_eq!(Dtype::Fp16.round(2f64.powi(-25) * 1.01), 2f64.powi(-24));
    }
}
