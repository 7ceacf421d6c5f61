//! Root-mean-square and layer norm of each group of columns, forward and backward.
//!
//! Weight gradients are summed per fixed set of rows into `partials`, then over the sets in order.

use super::blocks::rows_for;
use super::lanes::{sum1, sum2, sum3, vectorised};
use super::matmul::{Matrix, MatrixMut, Store};
use super::slots::{Output, Slots};
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::norm::{Norm, NormWeight};
use rayon::prelude::*;

/// What the columns of a vector are multiplied by.
#[allow(clippy::cast_possible_truncation)]
fn factors(op: &Norm, x: Matrix<'_>, slots: &Slots<'_>) -> Result<Vec<f32>, ExecutorError> {
    if op.weight == NormWeight::None {
        return Ok(vec![1.0; x.n_columns() / op.groups]);
    }
    let offset = op.weight.offset() as f32;
    Ok(slots.read_slice("weight")?.iter().map(|weight| weight + offset).collect())
}

/// Reads x, and where learned weight and bias. Writes y, rstd, mean (layer only).
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
pub(crate) fn forward(op: &Norm, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let x = slots.read("x")?;
    let (weight, centred) = (factors(op, x, &slots)?, op.kind.has_bias());
    let bias = if op.has_bias() { Some(slots.read_slice("bias")?) } else { None };
    let (y, rstd) = (slots.take_replaced("y")?, slots.take_replaced("rstd")?);
    let mean = if centred { Some(slots.take_replaced("mean")?) } else { None };
    let (d, epsilon) = (weight.len(), op.epsilon as f32);
    let scale = 1.0 / op.count as f32;
    let n = rows_for(y.n_columns());
    let means = optional_blocks(mean, n, x.n_rows());
    let blocks: Vec<_> = y.row_blocks(n).into_iter().zip(rstd.row_blocks(n)).zip(means).collect();
    blocks.into_par_iter().enumerate().for_each(|(index, ((mut y, mut rstd), mut mean))| {
        vectorised(|| {
            for row in 0..y.n_rows() {
                let groups = x.row(index * n + row).chunks_exact(d).zip(y.row(row).chunks_exact_mut(d));
                for (group, (x, y)) in groups.enumerate() {
                    let centre = if centred { sum1(x, |x| x) * scale } else { 0.0 };
                    let variance = sum1(x, |x| (x - centre) * (x - centre)) * scale;
                    let factor = 1.0 / (variance + epsilon).sqrt();
                    for (y, (x, w)) in y.iter_mut().zip(x.iter().zip(&weight)) {
                        *y = (x - centre) * factor * w;
                    }
                    if let Some(bias) = bias {
                        y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
                    }
                    rstd.row(row)[group] = factor;
                    if let Some(mean) = &mut mean {
                        mean.row(row)[group] = centre;
                    }
                }
            }
        });
    });
    Ok(())
}

/// Blocks of a matrix that may be absent, one for each block of `n` of `rows` rows.
fn optional_blocks(matrix: Option<MatrixMut<'_>>, n: usize, rows: usize) -> Vec<Option<MatrixMut<'_>>> {
    match matrix {
        Some(matrix) => matrix.row_blocks(n).into_iter().map(Some).collect(),
        None => (0..rows.div_ceil(n.max(1))).map(|_| None).collect(),
    }
}

/// Reads d_y, x, rstd, weight (where learned), mean (layer only). Writes d_x, and where learned d_weight, d_bias, partials.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn backward(op: &Norm, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (d_y, x, rstd, d_x) = (slots.read("d_y")?, slots.read("x")?, slots.read("rstd")?, slots.take("d_x")?);
    let weight = factors(op, x, &slots)?;
    let mean = if op.kind.has_bias() { Some(slots.read("mean")?) } else { None };
    let learned = op.weight != NormWeight::None;
    let mut partials = if learned { Some(slots.take_replaced("partials")?) } else { None };
    let (d, sums) = (weight.len(), 1 + usize::from(op.has_bias()));
    let scale = 1.0 / op.count as f32;
    let add = d_x.store == Store::Add;
    // As many sets as there is room for, of whole rows.
    let n = match &partials {
        Some(partials) => x.n_rows().div_ceil((partials.n_rows() / sums).max(1)).max(1),
        None => rows_for(x.n_columns()),
    };
    let rooms =
        optional_blocks(partials.as_mut().map(MatrixMut::reborrow), sums, sums * x.n_rows().div_ceil(n));
    let blocks: Vec<_> = d_x.matrix.row_blocks(n).into_iter().zip(rooms).collect();
    let n_sets = blocks.len();
    let work = |(index, (mut d_x, mut partial)): (usize, (MatrixMut<'_>, Option<MatrixMut<'_>>))| {
        vectorised(|| {
            for sum in 0..sums {
                partial.iter_mut().for_each(|partial| partial.row(sum).fill(0.0));
            }
            for at in 0..d_x.n_rows() {
                let row = index * n + at;
                let inputs = x.row(row).chunks_exact(d).zip(d_y.row(row).chunks_exact(d));
                let groups = d_x.row(at).chunks_exact_mut(d).zip(inputs).enumerate();
                for (group, (d_x, (x, d_y))) in groups {
                    let r = rstd.row(row)[group];
                    let centre = mean.map_or(0.0, |mean| mean.row(row)[group]);
                    let mean_gh = sum3(x, d_y, &weight, |x, d_y, w| (x - centre) * r * (w * d_y)) * scale;
                    let mean_g =
                        if mean.is_some() { sum2(d_y, &weight, |d_y, w| w * d_y) * scale } else { 0.0 };
                    for (d_x, ((x, d_y), w)) in d_x.iter_mut().zip(x.iter().zip(d_y).zip(&weight)) {
                        let gradient = r * (w * d_y - mean_g - (x - centre) * r * mean_gh);
                        *d_x = if add { *d_x + gradient } else { gradient };
                    }
                    let Some(partial) = &mut partial else { continue };
                    for (sum, (x, d_y)) in partial.row(0).iter_mut().zip(x.iter().zip(d_y)) {
                        *sum += d_y * ((x - centre) * r);
                    }
                    if sums > 1 {
                        partial.row(1).iter_mut().zip(d_y).for_each(|(sum, d_y)| *sum += d_y);
                    }
                }
            }
        });
    };
    // One set is a few rows: let a task take several.
    blocks.into_par_iter().enumerate().with_min_len(rows_for(x.n_columns()).div_ceil(n)).for_each(work);
    if let Some(partials) = &mut partials {
        finish(slots.take("d_weight")?, partials, 0, sums, n_sets);
        if op.has_bias() {
            finish(slots.take("d_bias")?, partials, 1, sums, n_sets);
        }
    }
    Ok(())
}

/// Sums the partial sums `first`, `first + step`, ... in a vector.
fn finish(to: Output<'_>, partials: &mut MatrixMut<'_>, first: usize, step: usize, n_sets: usize) {
    let Output { mut matrix, store } = to;
    let mut total = vec![0.0; partials.n_columns()];
    for set in 0..n_sets {
        total.iter_mut().zip(&*partials.row(set * step + first)).for_each(|(total, sum)| *total += sum);
    }
    for (to, total) in matrix.row(0).iter_mut().zip(total) {
        *to = if store == Store::Add { *to + total } else { total };
    }
}
