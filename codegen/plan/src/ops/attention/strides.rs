//! Where the vectors of heads lie in the memory of a slot.
//!
//! A slot's rows are those of tokens, with all heads of a token in one, [.., heads * head_dim]; or those of a head, [batch, heads,
//! length, head_dim]. Its columns tell which. What walks attention's operands asks here.

use super::{Attention, SHARES};
use crate::launch::Argument;
use crate::ops::rowwise::count;
use crate::plan::Io;
use crate::tensor_map::{Dimension, Swizzle, TensorLayout, TensorMap};

/// Distances in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strides {
    /// From one position to the next.
    pub(super) row: usize,
    /// From one head to the next.
    pub(super) head: usize,
    /// From one sequence to the next.
    pub(super) sequence: usize,
}

impl Attention {
    /// Sequences of a step.
    #[must_use]
    pub fn sequences(&self, io: &Io) -> usize {
        self.sequences_of(io.buffer("q").len())
    }

    /// Sequences whose queries are so many numbers.
    pub(super) fn sequences_of(&self, n: usize) -> usize {
        n / (self.length * self.heads * self.head_dim).max(1)
    }

    /// Heads and positions of a sequence in a slot.
    pub(super) fn extent(&self, slot: &str) -> (usize, usize) {
        match slot {
            "k" | "v" | "d_k" | "d_v" => (self.kv_heads, self.key_length),
            _ if SHARES.contains(&slot) => (self.heads, self.key_length),
            _ => (self.heads, self.length),
        }
    }

    /// Are rows of so many columns those of one head each?
    #[must_use]
    pub fn is_by_head(&self, columns: usize) -> bool {
        columns == self.head_dim
    }

    pub(super) fn strides(&self, io: &Io, slot: &str) -> Strides {
        let ((heads, length), row) = (self.extent(slot), io.row_stride(slot));
        if io.has(slot) && self.is_by_head(io.columns(slot)) {
            return Strides { row, head: length * row, sequence: heads * length * row };
        }
        Strides { row, head: self.head_dim, sequence: length * row }
    }

    /// Where the vector of a head begins, in a slot's rows of so many columns without gaps.
    #[cfg(feature = "reference")]
    pub(super) fn at(&self, (columns, slot): (usize, &str), [sequence, head, position]: [usize; 3]) -> usize {
        let (heads, length) = self.extent(slot);
        let vector = match self.is_by_head(columns) {
            true => (sequence * heads + head) * length + position,
            false => (sequence * length + position) * heads + head,
        };
        vector * self.head_dim
    }
}

/// Columns of a box of a tensor map: a row of shared memory.
const BOX_COLUMNS: usize = 64;

/// A slot as the copy unit knows it: columns, rows, heads, sequences, in boxes of so many rows of a head. None where that unit cannot
/// reach all of it.
pub(super) fn tensor_map(op: &Attention, io: &Io, slot: &str, rows: usize) -> Option<Argument> {
    let ((heads, length), strides) = (op.extent(slot), op.strides(io, slot));
    let dimension = |size: usize, stride: usize, extent: usize| Dimension {
        size: size as u64,
        stride: stride as u64,
        extent: extent as u32,
    };
    let dimensions = [
        dimension(op.head_dim, 1, BOX_COLUMNS),
        dimension(length, strides.row, rows),
        dimension(heads, strides.head, 1),
        dimension(op.sequences(io), strides.sequence, 1),
    ];
    let layout = TensorLayout::new(io.dtype(slot), Swizzle::Bytes128, &dimensions);
    layout.check().ok()?;
    Some(Argument::TensorMap(TensorMap { buffer: io.id(slot)?, first: 0, layout }))
}

/// Kernels count distances between heads and sequences in so many elements: a word of 16 bytes of a 2-byte type.
const WORD: usize = 8;

/// May kernels count the strides of these slots in 32 bits?
pub(super) fn fit(op: &Attention, io: &Io, slots: &[&str]) -> bool {
    let of = |slot: &&str| {
        let Strides { row, head, sequence } = op.strides(io, slot);
        [row, head / WORD, sequence / WORD]
    };
    slots.iter().flat_map(of).all(|stride| i32::try_from(stride).is_ok())
}

/// The strides of some slots, as kernels take them: of all the rows', then the heads', then the sequences'.
pub(super) fn arguments<const N: usize>(op: &Attention, io: &Io, slots: [&str; N]) -> Vec<Argument> {
    let strides = slots.map(|slot| op.strides(io, slot));
    let mut all = strides.map(|one| count(one.row)).to_vec();
    all.extend(strides.map(|one| count(one.head / WORD)));
    all.extend(strides.map(|one| count(one.sequence / WORD)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention_step::{Pass, attention_step};
    use crate::options::Options;
    use crate::shape::parse_attention_text;

    /// What is found of attention over two sequences in a layout.
    fn with<T>(layout: &str, find: impl Fn(&Attention, &Io) -> T) -> T {
        let text = format!(
            "attention.heads = 6\nattention.kv_heads = 3\nattention.head_dim = 8\nattention.layout = {layout}"
        );
        let shape = parse_attention_text(&text).expect("it is whole");
        let lengths = if layout == "packed" { [5, 5] } else { [5, 7] };
        let plan = attention_step(&shape, &Options::default(), 2, lengths, Pass::Backward);
        find(&shape.op(lengths), &plan.io(&plan.steps[0]))
    }

    #[test]
    fn each_layout_has_the_strides_that_its_name_says() {
        let of = |layout: &str, slot: &str| {
            with(layout, |op, io| {
                assert_eq!(op.sequences(io), 2);
                let Strides { row, head, sequence } = op.strides(io, slot);
                [row, head, sequence]
            })
        };
        assert_eq!((of("bshd", "q"), of("bshd", "d_k")), ([48, 8, 240], [24, 8, 168]));
        assert_eq!((of("bhsd", "q"), of("bhsd", "d_k")), ([8, 40, 240], [8, 56, 168]));
        assert_eq!((of("packed", "q"), of("packed", "d_v")), ([96, 8, 480], [96, 8, 480]));
        assert_eq!(of("bshd", SHARES[0]), of("bhsd", SHARES[0]));
    }
    #[test]
    fn the_copy_unit_walks_columns_rows_heads_and_sequences_in_every_layout() {
        let of = |layout: &str, slot: &str| {
            let Some(Argument::TensorMap(map)) = with(layout, |op, io| tensor_map(op, io, slot, 16)) else {
                panic!("{layout}: {slot} has none");
            };
            assert!(map.layout.dimensions().iter().map(|one| one.extent).eq([64, 16, 1, 1]));
            map.layout.dimensions().iter().map(|one| (one.size, one.stride)).collect::<Vec<_>>()
        };
        assert_eq!(of("bshd", "k"), [(8, 1), (7, 24), (3, 8), (2, 168)]);
        assert_eq!(of("bhsd", "k"), [(8, 1), (7, 8), (3, 56), (2, 168)]);
        assert_eq!(of("packed", "q"), [(8, 1), (5, 96), (6, 8), (2, 480)]);
        // Rows of 8 bytes are none that it can begin at.
        let narrow = |op: &Attention, io: &Io| {
            let op = Attention { head_dim: 4, heads: 12, kv_heads: 6, ..op.clone() };
            tensor_map(&op, io, "k", 16).is_none()
        };
        assert!(with("bshd", narrow));
    }
}
