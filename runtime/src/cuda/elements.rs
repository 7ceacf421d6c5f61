//! Elements as they lie in a device's memory, and as numbers.
//!
//! In: either. Out: the other. Operands and weights are many, so types of 4 and of 2 bytes are not led through an f64; the bits
//! are those of [`Dtype::encode`] and [`Dtype::decode`].

use half::{bf16, f16};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::Values;

/// The bytes of some elements.
pub(crate) fn encode(dtype: Dtype, values: Values<'_>) -> Vec<u8> {
    fn words<T: Copy, const BYTES: usize>(values: &[T], word: impl Fn(T) -> [u8; BYTES]) -> Vec<u8> {
        let mut bytes = vec![0; BYTES * values.len()];
        bytes.as_chunks_mut().0.iter_mut().zip(values).for_each(|(to, value)| *to = word(*value));
        bytes
    }
    match (values, dtype) {
        (Values::Float(values), Dtype::Fp32) => words(values, f32::to_le_bytes),
        (Values::Float(values), Dtype::Bf16) => words(values, |value| bf16::from_f32(value).to_le_bytes()),
        (Values::Float(values), Dtype::Fp16) => words(values, |value| f16::from_f32(value).to_le_bytes()),
        (Values::Int(values), Dtype::I32) => words(values, i32::to_le_bytes),
        (Values::Float(values), _) => dtype.encode_all(values.iter().copied().map(f64::from)),
        (Values::Int(values), _) => dtype.encode_all(values.iter().copied().map(f64::from)),
    }
}

/// Puts the numbers of some bytes behind others; whole numbers below 2^24 are exact.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn decode(dtype: Dtype, bytes: &[u8], values: &mut Vec<f32>) {
    fn words<const BYTES: usize>(bytes: &[u8], values: &mut Vec<f32>, number: impl Fn([u8; BYTES]) -> f32) {
        values.extend(bytes.as_chunks().0.iter().map(|word| number(*word)));
    }
    match dtype {
        Dtype::Fp32 => words(bytes, values, f32::from_le_bytes),
        Dtype::Bf16 => words(bytes, values, |word| bf16::from_le_bytes(word).to_f32()),
        Dtype::Fp16 => words(bytes, values, |word| f16::from_le_bytes(word).to_f32()),
        Dtype::I32 => words(bytes, values, |word| i32::from_le_bytes(word) as f32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of every size, ties between neighbours of both narrow types, and what is none.
    fn numbers() -> Vec<f32> {
        let patterns = (0..=u16::MAX).flat_map(|high| {
            [0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff]
                .map(|low| u32::from(high) << 16 | low)
        });
        patterns.map(f32::from_bits).collect()
    }

    #[test]
    fn elements_have_the_bits_that_their_type_says() {
        let numbers = numbers();
        for dtype in [Dtype::Fp32, Dtype::Bf16, Dtype::Fp16] {
            let bytes = encode(dtype, Values::Float(&numbers));
            let mut back = Vec::new();
            decode(dtype, &bytes, &mut back);
            assert_eq!((bytes.len(), back.len()), (dtype.bytes() * numbers.len(), numbers.len()));
            let all = numbers.iter().zip(back).zip(bytes.chunks_exact(dtype.bytes()));
            for ((number, back), found) in all {
                let word = dtype.encode(f64::from(*number));
                if number.is_nan() {
                    assert!(back.is_nan(), "{dtype:?} {number}: {back}");
                } else {
                    assert_eq!(found, &word.to_le_bytes()[..dtype.bytes()], "{dtype:?} {number}");
                    assert_eq!(f64::from(back).to_bits(), dtype.decode(word).to_bits(), "{dtype:?} {number}");
                }
            }
        }
    }

    #[test]
    fn whole_numbers_are_exact() {
        let numbers = [0, 1, -1, 1 << 23, -(1 << 23)];
        let mut back = Vec::new();
        decode(Dtype::I32, &encode(Dtype::I32, Values::Int(&numbers)), &mut back);
        assert_eq!(back, [0.0, 1.0, -1.0, 8_388_608.0, -8_388_608.0]);
    }
}
