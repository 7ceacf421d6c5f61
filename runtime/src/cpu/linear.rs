//! Matrix products with a weight, forward and backward.
//!
//! Tasks are blocks of rows of y and d_x, blocks of rows of d_weight (each a sum over all tokens), and blocks of
//! columns of d_bias.

use super::blocks::PRODUCT_ROWS;
use super::lanes::vectorised;
use super::matmul::{Matrix, MatrixMut, Store, matmul};
use super::slots::{Output, Slots};
use kernwright_plan::executor::ExecutorError;
use rayon::prelude::*;

/// Rows of d_weight of one task, and rows of d_y summed at a time for d_bias.
const WEIGHT_ROWS: usize = 128;
const BIAS_ROWS: usize = 64;
/// Columns of d_bias of one task.
const BIAS_COLUMNS: usize = 64;

/// Reads x, weight, bias and residual where present. Writes y.
pub(crate) fn forward(mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (x, weight, y) = (slots.read("x")?, slots.read("weight")?, slots.take_replaced("y")?);
    let bias = if slots.find("bias").is_some() { Some(slots.read_slice("bias")?) } else { None };
    let residual = slots.find("residual");
    y.row_blocks(PRODUCT_ROWS).into_par_iter().enumerate().for_each(|(index, mut y)| {
        let first = index * PRODUCT_ROWS;
        for row in 0..y.n_rows() {
            let y = y.row(row);
            match (residual.map(|residual| residual.row(first + row)), bias) {
                (Some(residual), Some(bias)) => {
                    y.iter_mut().zip(residual.iter().zip(bias)).for_each(|(y, (r, b))| *y = r + b);
                }
                (Some(start), None) | (None, Some(start)) => y.copy_from_slice(start),
                (None, None) => break,
            }
        }
        let store = if residual.is_some() || bias.is_some() { Store::Add } else { Store::Replace };
        let rows = first..first + y.n_rows();
        matmul(y, store, 1.0, x.rows(rows), weight.transposed());
    });
    Ok(())
}

/// Reads d_y, x, weight. Writes d_x, d_weight, d_bias, each where asked for.
pub(crate) fn backward(mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (d_y, x, weight) = (slots.read("d_y")?, slots.read("x")?, slots.read("weight")?);
    let (d_x, d_weight) = (slots.take_optional("d_x"), slots.take_optional("d_weight"));
    let d_bias = slots.take_optional("d_bias");
    rayon::join(
        || {
            if let Some(to) = d_x {
                input_gradient(to, d_y, weight);
            }
        },
        || {
            if let Some(to) = d_weight {
                weight_gradient(to, d_y, x);
            }
        },
    );
    if let Some(to) = d_bias {
        bias_gradient(to, d_y);
    }
    Ok(())
}

/// `d_x = d_y weight`.
pub(crate) fn input_gradient(to: Output<'_>, d_y: Matrix<'_>, weight: Matrix<'_>) {
    let Output { matrix, store } = to;
    matrix.row_blocks(PRODUCT_ROWS).into_par_iter().enumerate().for_each(|(index, d_x)| {
        let rows = index * PRODUCT_ROWS..index * PRODUCT_ROWS + d_x.n_rows();
        matmul(d_x, store, 1.0, d_y.rows(rows), weight);
    });
}

/// `d_weight = d_y^T x`.
pub(crate) fn weight_gradient(to: Output<'_>, d_y: Matrix<'_>, x: Matrix<'_>) {
    let Output { matrix, store } = to;
    matrix.row_blocks(WEIGHT_ROWS).into_par_iter().enumerate().for_each(|(index, d_weight)| {
        let columns = index * WEIGHT_ROWS..index * WEIGHT_ROWS + d_weight.n_rows();
        matmul(d_weight, store, 1.0, d_y.columns(columns).transposed(), x);
    });
}

/// `d_bias = sum over rows of d_y`, in two levels so that rounding errors stay small.
pub(crate) fn bias_gradient(to: Output<'_>, d_y: Matrix<'_>) {
    let Output { matrix, store } = to;
    let blocks: Vec<MatrixMut<'_>> = matrix.column_blocks(BIAS_COLUMNS);
    blocks.into_par_iter().enumerate().for_each(|(index, mut block)| {
        let d_bias = block.row(0);
        let columns = index * BIAS_COLUMNS..index * BIAS_COLUMNS + d_bias.len();
        let mut total = [0.0_f32; BIAS_COLUMNS];
        vectorised(|| {
            for start in (0..d_y.n_rows()).step_by(BIAS_ROWS) {
                let mut part = [0.0_f32; BIAS_COLUMNS];
                for row in start..(start + BIAS_ROWS).min(d_y.n_rows()) {
                    let d_y = &d_y.row(row)[columns.clone()];
                    part.iter_mut().zip(d_y).for_each(|(sum, d_y)| *sum += d_y);
                }
                total.iter_mut().zip(part).for_each(|(total, part)| *total += part);
            }
        });
        for (to, total) in d_bias.iter_mut().zip(total) {
            *to = if store == Store::Add { *to + total } else { total };
        }
    });
}
