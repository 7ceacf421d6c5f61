//! How work is cut into blocks for threads: by dimensions alone, never by the number of threads.
//!
//! In: a matrix to write. Out: a parallel visit of its rows.

use super::lanes::vectorised;
use super::matmul::MatrixMut;
use rayon::prelude::*;
use std::ops::Range;

/// Longest and shortest side of a tile of a matrix product: where tiles are small, packing the operands costs more
/// than it gains.
const LONGEST: usize = 512;
const SHORTEST: usize = 128;

/// Rows and columns of the tiles of a product: as few as `LONGEST` allows, but at least `least`, so that there is work
/// for several threads, unless they would fall below `SHORTEST`.
fn tile(size: [usize; 2], least: usize) -> [usize; 2] {
    let mut parts = size.map(|side| side.div_ceil(LONGEST).max(1));
    loop {
        let sides = [size[0].div_ceil(parts[0]), size[1].div_ceil(parts[1])];
        let longer = usize::from(sides[1] > sides[0]);
        if parts[0] * parts[1] >= least || size[longer] / (2 * parts[longer]) < SHORTEST {
            return sides.map(|side| side.next_multiple_of(8));
        }
        parts[longer] *= 2;
    }
}

/// Calls `visit` with the rows and columns of each tile of a product and the tile, in parallel; there are `least`
/// tiles or more, where the product is large enough.
pub(crate) fn for_tiles(
    to: MatrixMut<'_>,
    least: usize,
    visit: impl Fn(Range<usize>, Range<usize>, MatrixMut<'_>) + Sync,
) {
    let [n_rows, n_columns] = tile([to.n_rows(), to.n_columns()], least);
    let rows = to.row_blocks(n_rows).into_iter().enumerate();
    let tiles: Vec<_> = rows
        .flat_map(|(row, block)| {
            let columns = block.column_blocks(n_columns).into_iter().enumerate();
            columns.map(move |(column, tile)| (row * n_rows, column * n_columns, tile))
        })
        .collect();
    tiles.into_par_iter().for_each(|(row, column, tile)| {
        visit(row..row + tile.n_rows(), column..column + tile.n_columns(), tile);
    });
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_few_and_of_one_size() {
        for (size, least, expected) in [
            ([2048, 1792], 8, [512, 448]),
            ([2048, 384], 8, [256, 384]),
            ([512, 256], 8, [128, 128]),
            ([128, 352], 4, [128, 176]),
            ([384, 384], 4, [192, 192]),
            ([130, 7], 8, [136, 8]),
            ([0, 5], 8, [0, 8]),
        ] {
            assert_eq!(tile(size, least), expected, "{size:?}");
        }
    }
}
