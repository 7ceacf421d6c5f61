//! Strided matrices and their product: the only place of this crate that goes through pointers.
//!
//! In: slices, whose bounds are checked once, when a matrix is made of them. Out: rows, blocks that do not overlap
//! (so that threads can write to different columns of one buffer), and products by the `gemm` crate, which runs on
//! the calling thread alone. Must not know ops or plans.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

/// A matrix that is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a> {
    first: *const f32,
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
    of: PhantomData<&'a [f32]>,
}

/// A matrix that is written; its rows are contiguous.
#[derive(Debug)]
pub(crate) struct MatrixMut<'a> {
    first: *mut f32,
    rows: usize,
    columns: usize,
    stride: usize,
    of: PhantomData<&'a mut [f32]>,
}

// SAFETY: a `Matrix` gives what `&[f32]` gives, which is Send and Sync.
unsafe impl Send for Matrix<'_> {}
// SAFETY: as above.
unsafe impl Sync for Matrix<'_> {}
// SAFETY: a `MatrixMut` is the only way to its elements, like `&mut [f32]`, which is Send.
unsafe impl Send for MatrixMut<'_> {}

/// What becomes of the former content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// It is replaced.
    Replace,
    /// The result is added to it.
    Add,
}

fn check(len: usize, rows: usize, columns: usize, stride: usize) {
    assert!(rows <= 1 || stride >= columns, "rows of {columns} do not fit a stride of {stride}");
    let needed = if rows == 0 || columns == 0 {
        Some(0)
    } else {
        ((rows - 1).checked_mul(stride)).and_then(|n| n.checked_add(columns))
    };
    assert!(
        needed.is_some_and(|needed| needed <= len),
        "{rows}x{columns} by {stride} exceeds {len} elements"
    );
}

impl<'a> Matrix<'a> {
    /// `rows` rows of `columns` elements, `stride` apart.
    pub(crate) fn new(data: &'a [f32], rows: usize, columns: usize, stride: usize) -> Self {
        check(data.len(), rows, columns, stride);
        Self { first: data.as_ptr(), rows, columns, row_stride: stride, column_stride: 1, of: PhantomData }
    }

    pub(crate) fn n_rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn n_columns(&self) -> usize {
        self.columns
    }

    /// One row; not of a transposed matrix.
    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> &'a [f32] {
        assert!(row < self.rows && self.column_stride == 1, "row {row} of {}", self.rows);
        // SAFETY: `check` saw that every row lies in the borrowed slice.
        unsafe { std::slice::from_raw_parts(self.first.add(row * self.row_stride), self.columns) }
    }

    /// All elements, when the rows follow each other without a gap.
    pub(crate) fn slice(&self) -> Option<&'a [f32]> {
        let dense = self.column_stride == 1 && (self.rows <= 1 || self.row_stride == self.columns);
        // SAFETY: then `rows * columns` elements follow each other in the borrowed slice.
        dense.then(|| unsafe { std::slice::from_raw_parts(self.first, self.rows * self.columns) })
    }

    /// Some rows.
    pub(crate) fn rows(&self, rows: Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        // `wrapping_add`: the start of an empty range may lie past the slice, and is not used.
        Self { first: self.first.wrapping_add(rows.start * self.row_stride), rows: rows.len(), ..*self }
    }

    /// Some columns.
    pub(crate) fn columns(&self, columns: Range<usize>) -> Self {
        assert!(columns.start <= columns.end && columns.end <= self.columns, "columns {columns:?}");
        let first = self.first.wrapping_add(columns.start * self.column_stride);
        Self { first, columns: columns.len(), ..*self }
    }

    /// The transposed matrix.
    pub(crate) fn transposed(&self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..*self
        }
    }
}

impl<'a> MatrixMut<'a> {
    /// `rows` rows of `columns` elements, `stride` apart.
    pub(crate) fn new(data: &'a mut [f32], rows: usize, columns: usize, stride: usize) -> Self {
        check(data.len(), rows, columns, stride);
        Self { first: data.as_mut_ptr(), rows, columns, stride, of: PhantomData }
    }

    pub(crate) fn n_rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn n_columns(&self) -> usize {
        self.columns
    }

    #[inline(always)]
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: `check` saw that every row lies in the slice, which `self` alone borrows.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(row * self.stride), self.columns) }
    }

    /// All elements, when the rows follow each other without a gap.
    pub(crate) fn into_slice(self) -> Option<&'a mut [f32]> {
        let dense = self.rows <= 1 || self.stride == self.columns;
        // SAFETY: then `rows * columns` elements follow each other in the slice, and `self` gives up its claim.
        dense.then(|| unsafe { std::slice::from_raw_parts_mut(self.first, self.rows * self.columns) })
    }

    /// Sets every element.
    pub(crate) fn fill(&mut self, value: f32) {
        (0..self.rows).for_each(|row| self.row(row).fill(value));
    }

    /// The same matrix for a shorter time.
    pub(crate) fn reborrow(&mut self) -> MatrixMut<'_> {
        MatrixMut { of: PhantomData, ..*self }
    }

    /// The same matrix, to read.
    pub(crate) fn view(&self) -> Matrix<'_> {
        let Self { first, rows, columns, stride, .. } = *self;
        Matrix { first, rows, columns, row_stride: stride, column_stride: 1, of: PhantomData }
    }

    /// The same matrix, only to be read from now on.
    pub(crate) fn into_view(self) -> Matrix<'a> {
        let Self { first, rows, columns, stride, .. } = self;
        Matrix { first, rows, columns, row_stride: stride, column_stride: 1, of: PhantomData }
    }

    /// The rows before `at`, and those from there on.
    pub(crate) fn split_rows(self, at: usize) -> (Self, Self) {
        assert!(at <= self.rows, "row {at} of {}", self.rows);
        let first = self.first.wrapping_add(at * self.stride);
        let rest = Self { first, rows: self.rows - at, ..self };
        (Self { rows: at, ..self }, rest)
    }

    /// Some rows.
    pub(crate) fn middle_rows(self, rows: Range<usize>) -> Self {
        self.split_rows(rows.end).0.split_rows(rows.start).1
    }

    /// The columns before `at`, and those from there on: no element belongs to both, since the stride is not below
    /// the number of columns.
    pub(crate) fn split_columns(self, at: usize) -> (Self, Self) {
        assert!(at <= self.columns, "column {at} of {}", self.columns);
        let first = self.first.wrapping_add(at);
        let rest = Self { first, columns: self.columns - at, ..self };
        (Self { columns: at, ..self }, rest)
    }

    /// Blocks of `rows` rows, the last one shorter, in order.
    pub(crate) fn row_blocks(self, rows: usize) -> Vec<Self> {
        let mut blocks = Vec::with_capacity(self.rows.div_ceil(rows.max(1)));
        let mut rest = self;
        while rest.rows > 0 {
            let at = rows.max(1).min(rest.rows);
            let (block, after) = rest.split_rows(at);
            blocks.push(block);
            rest = after;
        }
        blocks
    }

    /// Blocks of `columns` columns, the last one narrower, in order.
    pub(crate) fn column_blocks(self, columns: usize) -> Vec<Self> {
        let mut blocks = Vec::with_capacity(self.columns.div_ceil(columns.max(1)));
        let mut rest = self;
        while rest.columns > 0 {
            let at = columns.max(1).min(rest.columns);
            let (block, after) = rest.split_columns(at);
            blocks.push(block);
            rest = after;
        }
        blocks
    }
}

/// `to = scale a b`, or `to += scale a b`, on this thread.
pub(crate) fn matmul(to: MatrixMut<'_>, store: Store, scale: f32, a: Matrix<'_>, b: Matrix<'_>) {
    let (m, n, k) = (to.rows, to.columns, a.columns);
    assert!(
        a.rows == m && b.columns == n && b.rows == k,
        "{m}x{n} is not {}x{k} times {}x{}",
        a.rows,
        b.rows,
        b.columns
    );
    if m == 0 || n == 0 {
        return;
    }
    // SAFETY: each matrix was checked against its slice when it was made and only cut into parts since, so that all
    // elements in its bounds lie in borrowed memory; `to` is the only way to its elements, and they are distinct. A
    // slice holds less than isize::MAX bytes, so strides do not wrap.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            to.first,
            1,
            to.stride.cast_signed(),
            store == Store::Add,
            a.first,
            a.column_stride.cast_signed(),
            a.row_stride.cast_signed(),
            b.first,
            b.column_stride.cast_signed(),
            b.row_stride.cast_signed(),
            1.0,
            scale,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 16.0).collect()
    }

    #[test]
    fn products_of_strided_matrices_are_right() {
        for (m, n, k) in [(1, 1, 1), (3, 5, 7), (33, 17, 70), (64, 130, 1), (5, 9, 300), (4, 4, 0)] {
            let (a, b) = (numbers(m * (k + 3)), numbers(n * (k + 1)));
            let a = Matrix::new(&a, m, k + 3, k + 3).columns(2..k + 2);
            let b = Matrix::new(&b, n, k, k + 1).transposed();
            for store in [Store::Replace, Store::Add] {
                let mut data = vec![2.0; m * (n + 4)];
                let whole = MatrixMut::new(&mut data, m, n + 4, n + 4);
                let to = whole.split_columns(3).1.split_columns(n).0;
                matmul(to, store, 0.5, a, b);
                for row in 0..m {
                    for column in 0..n + 4 {
                        let found = data[row * (n + 4) + column];
                        let old = if store == Store::Add { 2.0 } else { 0.0 };
                        let dot = |j: usize| {
                            (0..k).map(|i| a.row(row)[i] * b.transposed().row(j)[i]).sum::<f32>() * 0.5 + old
                        };
                        let expected = if (3..n + 3).contains(&column) { dot(column - 3) } else { 2.0 };
                        assert!((found - expected).abs() <= 1e-3, "{m}x{n}x{k} {found} {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_cover_everything_once() {
        let mut data = vec![0.0; 7 * 10];
        for mut block in MatrixMut::new(&mut data, 7, 10, 10).row_blocks(3) {
            for mut part in block.reborrow().column_blocks(4) {
                for row in 0..part.n_rows() {
                    part.row(row).iter_mut().for_each(|value| *value += 1.0);
                }
            }
        }
        assert!(data.iter().all(|value| *value == 1.0));
    }

    #[test]
    #[should_panic(expected = "exceeds 11 elements")]
    fn a_matrix_past_its_slice_is_refused() {
        let _ = Matrix::new(&[0.0; 11], 3, 4, 4);
    }

    #[test]
    #[should_panic(expected = "do not fit a stride")]
    fn overlapping_rows_are_refused() {
        let _ = MatrixMut::new(&mut [0.0; 40], 3, 4, 3);
    }
}
