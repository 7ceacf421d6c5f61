//! Learned positions and their gradient.

use super::blocks::for_rows;
use super::matmul::Store;
use super::slots::{Output, Slots};
use kernwright_plan::executor::ExecutorError;

/// Reads x, table. Writes y.
pub(crate) fn forward(length: usize, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (x, table, y) = (slots.read("x")?, slots.read("table")?, slots.take_replaced("y")?);
    for_rows(y, |row, y| {
        for (y, (x, position)) in y.iter_mut().zip(x.row(row).iter().zip(table.row(row % length))) {
            *y = x + position;
        }
    });
    Ok(())
}

/// Reads d_y. Writes d_table: each row the sum over sequences, in order.
pub(crate) fn backward(length: usize, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (d_y, Output { matrix, store }) = (slots.read("d_y")?, slots.take("d_table")?);
    let sequences = d_y.n_rows() / length.max(1);
    for_rows(matrix, |row, d_table| {
        if store == Store::Replace {
            d_table.fill(0.0);
        }
        let sequences = if row < length { sequences } else { 0 };
        for sequence in 0..sequences {
            let d_y = d_y.row(sequence * length + row);
            d_table.iter_mut().zip(d_y).for_each(|(sum, d_y)| *sum += d_y);
        }
    });
    Ok(())
}
