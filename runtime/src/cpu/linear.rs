//! Matrix products with a weight, forward and backward, with the gelu that a product may take in.
//!
//! Tasks are tiles of y, d_x and d_weight (each a sum over all tokens), and blocks of columns of d_bias.

use super::activation::{apply_gelu, multiply_by_gelu_slope};
use super::blocks::{for_blocks, for_tiles};
use super::lanes::vectorised;
use super::matmul::{Matrix, MatrixMut, Store, matmul};
use super::slots::{Output, Slots};
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::linear::Linear;
use rayon::prelude::*;

/// Least tiles of y and d_x, and of d_weight, which is computed beside d_x.
pub(crate) const TILES: usize = 8;
const WEIGHT_TILES: usize = 4;
/// Rows of d_y summed at a time for d_bias.
const BIAS_ROWS: usize = 64;
/// Columns of d_bias of one task.
const BIAS_COLUMNS: usize = 64;

/// Reads x, weight, bias and residual where present. Writes y, or adds to it; or writes the gelu of that, and where asked for
/// what it is the gelu of.
pub(crate) fn forward(op: &Linear, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    if !op.gelu {
        let y = slots.take("y")?;
        return sums(y, &slots);
    }
    let mut y = slots.take_replaced("y")?;
    sums(Output { matrix: y.reborrow(), store: Store::Replace }, &slots)?;
    if slots.writes.iter().any(|(slot, _)| *slot == "gelu_input") {
        let y = y.view();
        for_blocks(slots.take_replaced("gelu_input")?, |first, mut block| {
            for row in 0..block.n_rows() {
                block.row(row).copy_from_slice(y.row(first + row));
            }
        });
    }
    apply_gelu(y);
    Ok(())
}

/// `x weight^T`, with bias and residual.
fn sums(y: Output<'_>, slots: &Slots<'_>) -> Result<(), ExecutorError> {
    let (x, weight) = (slots.read("x")?, slots.read("weight")?);
    let Output { matrix: y, store } = y;
    let bias = if slots.find("bias").is_some() { Some(slots.read_slice("bias")?) } else { None };
    let residual = slots.find("residual");
    let bias = bias.map(|bias| Matrix::new(bias, 1, bias.len(), bias.len()));
    for_tiles(y, TILES, |rows, columns, mut y| {
        let residual = residual.map(|residual| residual.rows(rows.clone()).columns(columns.clone()));
        let bias = bias.map(|bias| bias.columns(columns.clone()).row(0));
        for row in 0..y.n_rows() {
            let y = y.row(row);
            match (residual.map(|residual| residual.row(row)), bias, store) {
                (Some(residual), Some(bias), Store::Replace) => {
                    y.iter_mut().zip(residual.iter().zip(bias)).for_each(|(y, (r, b))| *y = r + b);
                }
                (Some(start), None, Store::Replace) | (None, Some(start), Store::Replace) => {
                    y.copy_from_slice(start);
                }
                (residual, bias, Store::Add) => {
                    for added in [residual, bias].into_iter().flatten() {
                        y.iter_mut().zip(added).for_each(|(y, added)| *y += added);
                    }
                }
                (None, None, Store::Replace) => break,
            }
        }
        let adds = residual.is_some() || bias.is_some() || store == Store::Add;
        let store = if adds { Store::Add } else { Store::Replace };
        matmul(y, store, 1.0, x.rows(rows), weight.rows(columns).transposed());
    });
    Ok(())
}

/// Reads d_y, x, weight and gelu_input where present. Writes d_x, d_weight, d_bias, each where asked for.
pub(crate) fn backward(mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (d_y, x, weight) = (slots.read("d_y")?, slots.read("x")?, slots.read("weight")?);
    let gelu_input = slots.find("gelu_input");
    let d_x = match gelu_input {
        Some(_) => Some(Output { matrix: slots.take_replaced("d_x")?, store: Store::Replace }),
        None => slots.take_optional("d_x"),
    };
    let d_weight = slots.take_optional("d_weight");
    let d_bias = slots.take_optional("d_bias");
    rayon::join(
        || {
            if let Some(mut to) = d_x {
                input_gradient(to.whole(), d_y, weight);
                if let Some(gelu_input) = gelu_input {
                    multiply_by_gelu_slope(to.matrix, gelu_input);
                }
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
    for_tiles(matrix, TILES, |rows, columns, d_x| {
        matmul(d_x, store, 1.0, d_y.rows(rows), weight.columns(columns));
    });
}

/// `d_weight = d_y^T x`.
pub(crate) fn weight_gradient(to: Output<'_>, d_y: Matrix<'_>, x: Matrix<'_>) {
    let Output { matrix, store } = to;
    for_tiles(matrix, WEIGHT_TILES, |rows, columns, d_weight| {
        matmul(d_weight, store, 1.0, d_y.columns(rows).transposed(), x.columns(columns));
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
