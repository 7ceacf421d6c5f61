//! Tensor maps as drivers hand them to kernels: what all of them check, and the 128 bytes that a kernel gets.
//!
//! In: a layout of the plan, and where its tensor lies. Out: its numbers as NVIDIA's driver takes them, or as the emulator
//! reads them. Must not know either.

use kernwright_plan::tensor_map::TensorLayout;

/// Words of a tensor map.
pub(crate) const WORDS: usize = 16;

/// A tensor map's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorNumbers {
    pub(crate) address: u64,
    pub(crate) element_bytes: usize,
    pub(crate) rank: usize,
    /// Of each dimension, the innermost first; 1 beyond the rank.
    pub(crate) sizes: [u64; TensorLayout::MOST],
    /// Bytes from one to the next in dimensions 1 to 4.
    pub(crate) strides: [u64; TensorLayout::MOST - 1],
    /// Elements of a box.
    pub(crate) extents: [u32; TensorLayout::MOST],
    /// Bytes of a row of the swizzle; 0 without one.
    pub(crate) swizzle: u32,
}

/// Whether the last word is that of the emulator's form.
const MODEL: u64 = 0x6b65_726e_7465_6e73;

impl TensorNumbers {
    /// The numbers of a tensor at this address of the device.
    ///
    /// # Errors
    /// What the copy unit refuses.
    pub(crate) fn new(address: u64, layout: &TensorLayout) -> Result<Self, String> {
        layout.check()?;
        if !address.is_multiple_of(16) {
            return Err(format!(
                "the address of a tensor map must be a multiple of 16, found `{address:#x}`: its first element lies \
                 {} bytes behind one",
                address % 16
            ));
        }
        let element_bytes = layout.dtype.bytes();
        let (mut sizes, mut extents) = ([1; TensorLayout::MOST], [1; TensorLayout::MOST]);
        let mut strides = [0; TensorLayout::MOST - 1];
        for (number, one) in layout.dimensions().iter().enumerate() {
            sizes[number] = one.size;
            extents[number] = one.extent;
            if number > 0 {
                strides[number - 1] = one.stride * element_bytes as u64;
            }
        }
        let swizzle = layout.swizzle.row_bytes().unwrap_or(0);
        Ok(Self { address, element_bytes, rank: layout.rank, sizes, strides, extents, swizzle })
    }

    /// The emulator's form; `device/tma.cc` reads it.
    pub(crate) fn model(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[0] = self.address;
        words[1] = self.rank as u64 | (self.element_bytes as u64) << 8 | u64::from(self.swizzle) << 16;
        words[2..7].copy_from_slice(&self.sizes);
        words[7..11].copy_from_slice(&self.strides);
        for (number, extent) in self.extents.iter().enumerate() {
            words[11 + number / 2] |= u64::from(*extent) << (32 * (number % 2));
        }
        words[15] = MODEL;
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::dtype::Dtype;
    use kernwright_plan::tensor_map::{Dimension, Swizzle};

    fn layout() -> TensorLayout {
        let dimensions = [
            Dimension { size: 96, stride: 1, extent: 32 },
            Dimension { size: 7, stride: 104, extent: 5 },
            Dimension { size: 3, stride: 1000, extent: 2 },
        ];
        TensorLayout::new(Dtype::Fp16, Swizzle::Bytes64, &dimensions)
    }

    #[test]
    fn strides_become_bytes_and_unused_dimensions_ones() {
        let numbers = TensorNumbers::new(0x7000_0010, &layout()).unwrap();
        assert_eq!(numbers.sizes, [96, 7, 3, 1, 1]);
        assert_eq!(numbers.strides, [208, 2000, 0, 0]);
        assert_eq!(numbers.extents, [32, 5, 2, 1, 1]);
        let words = numbers.model();
        assert_eq!(words[..2], [0x7000_0010, 3 | 2 << 8 | 64 << 16]);
        assert_eq!(words[11..14], [32 | 5 << 32, 2 | 1 << 32, 1]);
    }

    #[test]
    fn what_no_gpu_takes_is_refused() {
        let error = TensorNumbers::new(0x7000_0018, &layout()).unwrap_err();
        assert_eq!(
            error,
            "the address of a tensor map must be a multiple of 16, found `0x70000018`: its first element lies 8 bytes behind one"
        );
        let layout = TensorLayout { rank: 0, ..layout() };
        assert_eq!(TensorNumbers::new(0, &layout).unwrap_err(), layout.check().unwrap_err());
    }
}
