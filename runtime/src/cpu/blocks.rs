//! How work is cut into blocks for threads: by dimensions alone, never by the number of threads.
//!
//! In: a matrix to write. Out: a parallel visit of its rows.

use super::lanes::vectorised;
use super::matmul::MatrixMut;
use rayon::prelude::*;

/// Rows of a block of a matrix product: enough for the packing of the other operand to pay, and few enough for the
/// block to stay in the second-level cache.
pub(crate) const PRODUCT_ROWS: usize = 256;

/// Elements that an elementwise task handles: some microseconds of work.
pub(crate) const ELEMENTS: usize = 1 << 14;

/// Rows of a block of elementwise work.
pub(crate) fn rows_for(columns: usize) -> usize {
    (ELEMENTS / columns.max(1)).max(1)
}

/// Calls `visit` with each block of rows and the number of its first row, in parallel.
pub(crate) fn for_blocks(to: MatrixMut<'_>, visit: impl Fn(usize, MatrixMut<'_>) + Sync) {
    let n = rows_for(to.n_columns());
    to.row_blocks(n).into_par_iter().enumerate().for_each(|(index, block)| visit(index * n, block));
}

/// Calls `visit` with each row's number and content, in parallel, under vector instructions.
pub(crate) fn for_rows(to: MatrixMut<'_>, visit: impl Fn(usize, &mut [f32]) + Sync) {
    for_blocks(to, |first, mut block| {
        vectorised(|| {
            for row in 0..block.n_rows() {
                visit(first + row, block.row(row));
            }
        });
    });
}
