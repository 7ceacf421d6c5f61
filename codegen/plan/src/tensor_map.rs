//! Tensors as the copy unit of sm_90 and later (TMA) knows them: sizes, strides, the box that one copy moves, and how it
//! lies in shared memory.
//!
//! In: an op's decision. Out: [`TensorMap`], an argument of a kernel, which each driver makes into its own form. Must not know
//! any driver.

use crate::buffer::BufferId;
use crate::dtype::Dtype;

/// How the 16-byte words of a box are exchanged in shared memory: by rows of so many bytes. `Swizzle` of the device
/// vocabulary has the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Swizzle {
    /// As they come.
    None,
    /// Rows of 32 bytes.
    Bytes32,
    /// Rows of 64 bytes.
    Bytes64,
    /// Rows of 128 bytes.
    Bytes128,
}

impl Swizzle {
    /// Bytes of a row; none without a swizzle.
    #[must_use]
    pub fn row_bytes(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::Bytes32 => Some(32),
            Self::Bytes64 => Some(64),
            Self::Bytes128 => Some(128),
        }
    }
}

/// One dimension of a tensor, in elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dimension {
    /// How many there are; beyond them copies read zeros and write nothing.
    pub size: u64,
    /// From one to the next; 1 in the innermost dimension.
    pub stride: u64,
    /// How many a copy moves.
    pub extent: u32,
}

/// A tensor, wherever it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorLayout {
    /// Element type.
    pub dtype: Dtype,
    /// How many of the dimensions are in use.
    pub rank: usize,
    /// The innermost first.
    pub dimensions: [Dimension; TensorLayout::MOST],
    /// How a box lies in shared memory.
    pub swizzle: Swizzle,
}

/// An argument of a kernel: a tensor in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorMap {
    /// The buffer.
    pub buffer: BufferId,
    /// Its element that is the tensor's first.
    pub first: usize,
    /// What lies from there on.
    pub layout: TensorLayout,
}

impl TensorLayout {
    /// The most dimensions.
    pub const MOST: usize = 5;

    /// A layout of these dimensions, the innermost first; those beyond the fifth are dropped, and [`Self::check`] says so.
    #[must_use]
    pub fn new(dtype: Dtype, swizzle: Swizzle, dimensions: &[Dimension]) -> Self {
        let mut all = [Dimension::default(); Self::MOST];
        all.iter_mut().zip(dimensions).for_each(|(to, from)| *to = *from);
        Self { dtype, rank: dimensions.len(), dimensions: all, swizzle }
    }

    /// The dimensions in use.
    #[must_use]
    pub fn dimensions(&self) -> &[Dimension] {
        &self.dimensions[..self.rank.min(Self::MOST)]
    }

    /// Bytes of a box: what an `Mbarrier` is to expect of one copy.
    #[must_use]
    pub fn box_bytes(&self) -> usize {
        let elements: u64 = self.dimensions().iter().map(|one| u64::from(one.extent)).product();
        elements as usize * self.dtype.bytes()
    }

    /// What the copy unit refuses in it.
    ///
    /// # Errors
    /// The first of it, in words.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=Self::MOST).contains(&self.rank) {
            return Err(format!(
                "a tensor map must have 1 to {} dimensions, found `{}`",
                Self::MOST,
                self.rank
            ));
        }
        let bytes = self.dtype.bytes() as u64;
        for (number, one) in self.dimensions().iter().enumerate() {
            let Dimension { size, stride, extent } = *one;
            let of = |what: &str, allowed: &str, found: u64| {
                Err(format!(
                    "the {what} of dimension {number} of a tensor map must be {allowed}, found `{found}`"
                ))
            };
            if !(1..=1 << 32).contains(&size) {
                return of("size", "1 to 4294967296", size);
            }
            if !(1..=256).contains(&extent) {
                return of("box", "1 to 256", u64::from(extent));
            }
            if number == 0 && stride != 1 {
                return of("stride", "1 in the innermost", stride);
            }
            if number > 0
                && (!(stride * bytes).is_multiple_of(16) || stride * bytes >= 1 << 40 || stride == 0)
            {
                return of("stride", "a multiple of 16 bytes below 2^40", stride * bytes);
            }
        }
        let inner = self.dimensions[0].extent * bytes as u32;
        let is_taken = self.swizzle.row_bytes().map_or(inner.is_multiple_of(16), |row| inner == row);
        if !is_taken {
            let allowed = self.swizzle.row_bytes().map_or_else(
                || "a multiple of 16 bytes".to_owned(),
                |row| format!("its swizzle's {row} bytes"),
            );
            return Err(format!("the innermost box of a tensor map must be {allowed}, found `{inner}`"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(change: impl FnOnce(&mut TensorLayout)) -> TensorLayout {
        let dimensions = [
            Dimension { size: 96, stride: 1, extent: 64 },
            Dimension { size: 77, stride: 104, extent: 48 },
            Dimension { size: 3, stride: 77 * 104, extent: 1 },
        ];
        let mut layout = TensorLayout::new(Dtype::Bf16, Swizzle::Bytes128, &dimensions);
        change(&mut layout);
        layout
    }

    #[test]
    fn what_the_copy_unit_takes_is_taken() {
        assert_eq!(layout(|_| {}).check(), Ok(()));
        assert_eq!(layout(|_| {}).box_bytes(), 64 * 48 * 2);
        assert_eq!(layout(|one| one.rank = 1).check(), Ok(()));
    }

    #[test]
    fn what_it_refuses_is_refused_with_what_is_allowed() {
        type Change = fn(&mut TensorLayout);
        let refused: [(Change, &str); 8] = [
            (|one| one.rank = 0, "a tensor map must have 1 to 5 dimensions, found `0`"),
            (|one| one.rank = 6, "a tensor map must have 1 to 5 dimensions, found `6`"),
            (
                |one| one.dimensions[1].size = 0,
                "the size of dimension 1 of a tensor map must be 1 to 4294967296, found `0`",
            ),
            (
                |one| one.dimensions[2].extent = 257,
                "the box of dimension 2 of a tensor map must be 1 to 256, found `257`",
            ),
            (
                |one| one.dimensions[0].stride = 2,
                "the stride of dimension 0 of a tensor map must be 1 in the innermost, found `2`",
            ),
            (
                |one| one.dimensions[1].stride = 100,
                "the stride of dimension 1 of a tensor map must be a multiple of 16 bytes below 2^40, found `200`",
            ),
            (
                |one| one.dimensions[0].extent = 72,
                "the innermost box of a tensor map must be its swizzle's 128 bytes, found `144`",
            ),
            (
                |one| {
                    one.dimensions[0].extent = 4;
                    one.swizzle = Swizzle::None;
                },
                "the innermost box of a tensor map must be a multiple of 16 bytes, found `8`",
            ),
        ];
        for (change, said) in refused {
            assert_eq!(layout(change).check(), Err(said.to_owned()));
        }
    }
}
