//! Root-mean-square and layer norm of each group of columns, forward and backward.
//!
//! Weight gradients are summed per fixed set of rows into `partials`, then over the sets in order.

use super::blocks::rows_for;
use super::lanes::{sum1, sum2, sum3, vector_fn};
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

/// Reads x, and where learned weight and bias. Writes y, rstd, mean (layer only), and where asked for copy.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
pub(crate) fn forward(op: &Norm, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let x = slots.read("x")?;
    let (weight, centred) = (factors(op, x, &slots)?, op.kind.has_bias());
    let bias = if op.has_bias() { Some(slots.read_slice("bias")?) } else { None };
    let (y, rstd) = (slots.take_replaced("y")?, slots.take_replaced("rstd")?);
    let mean = if centred { Some(slots.take_replaced("mean")?) } else { None };
    let vector =
        Vector { weight: &weight, bias, epsilon: op.epsilon as f32, inverse_count: 1.0 / op.count as f32 };
    if let Some(mut copy) = slots.take_optional("copy") {
        for row in 0..x.n_rows() {
            copy.matrix.row(row).copy_from_slice(x.row(row));
        }
    }
    let n = rows_for(y.n_columns());
    let means = optional_blocks(mean, n, x.n_rows());
    let blocks: Vec<_> = y.row_blocks(n).into_iter().zip(rstd.row_blocks(n)).zip(means).collect();
    blocks.into_par_iter().enumerate().for_each(|(index, ((y, rstd), mean))| {
        forward_block(vector, x.rows(index * n..index * n + y.n_rows()), y, rstd, mean);
    });
    Ok(())
}

/// What is the same for all vectors.
#[derive(Clone, Copy)]
struct Vector<'a> {
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    epsilon: f32,
    inverse_count: f32,
}

vector_fn! {
    fn forward_block(
        of: Vector<'_>,
        x: Matrix<'_>,
        y: MatrixMut<'_>,
        rstd: MatrixMut<'_>,
        mean: Option<MatrixMut<'_>>,
    ) -> () {
        let (mut y, mut rstd, mut mean, d) = (y, rstd, mean, of.weight.len());
        for row in 0..y.n_rows() {
            let groups = x.row(row).chunks_exact(d).zip(y.row(row).chunks_exact_mut(d));
            for (group, (x, y)) in groups.enumerate() {
                let centre = if mean.is_some() { sum1(x, |x| x) * of.inverse_count } else { 0.0 };
                let variance = sum1(x, |x| (x - centre) * (x - centre)) * of.inverse_count;
                let factor = 1.0 / (variance + of.epsilon).sqrt();
                for (y, (x, w)) in y.iter_mut().zip(x.iter().zip(of.weight)) {
                    *y = (x - centre) * factor * w;
                }
                if let Some(bias) = of.bias {
                    for (y, b) in y.iter_mut().zip(bias) {
                        *y += b;
                    }
                }
                rstd.row(row)[group] = factor;
                if let Some(mean) = &mut mean {
                    mean.row(row)[group] = centre;
                }
            }
        }
    }
}

/// Blocks of a matrix that may be absent, one for each block of `n` of `rows` rows.
fn optional_blocks(matrix: Option<MatrixMut<'_>>, n: usize, rows: usize) -> Vec<Option<MatrixMut<'_>>> {
    match matrix {
        Some(matrix) => matrix.row_blocks(n).into_iter().map(Some).collect(),
        None => (0..rows.div_ceil(n.max(1))).map(|_| None).collect(),
    }
}

/// Reads d_y, x, rstd, weight (where learned), mean (layer only). Writes d_x, where learned d_weight, d_bias, partials, and
/// where asked for narrow.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn backward(op: &Norm, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (d_y, x, rstd, d_x) = (slots.read("d_y")?, slots.read("x")?, slots.read("rstd")?, slots.take("d_x")?);
    let weight = factors(op, x, &slots)?;
    let mean = if op.kind.has_bias() { Some(slots.read("mean")?) } else { None };
    let learned = op.weight != NormWeight::None;
    let mut partials = if learned { Some(slots.take_replaced("partials")?) } else { None };
    let sums = 1 + usize::from(op.has_bias());
    // As many sets as there is room for, of whole rows.
    let n = match &partials {
        Some(partials) => x.n_rows().div_ceil((partials.n_rows() / sums).max(1)).max(1),
        None => rows_for(x.n_columns()),
    };
    let rooms =
        optional_blocks(partials.as_mut().map(MatrixMut::reborrow), sums, sums * x.n_rows().div_ceil(n));
    let copies = optional_blocks(slots.take_optional("narrow").map(|to| to.matrix), n, x.n_rows());
    let blocks: Vec<_> = d_x.matrix.row_blocks(n).into_iter().zip(copies).zip(rooms).collect();
    let n_sets = blocks.len();
    let work = |(index, ((mut d_x_rows, copy), partial)): (usize, (Pair<'_>, Option<MatrixMut<'_>>))| {
        let rows = index * n..index * n + d_x_rows.n_rows();
        let [d_y, x, rstd] = [d_y, x, rstd].map(|of| of.rows(rows.clone()));
        let inputs = Inputs { d_y, x, rstd, mean: mean.map(|mean| mean.rows(rows)), weight: &weight };
        backward_block(inputs, 1.0 / op.count as f32, d_x_rows.reborrow(), d_x.store, partial);
        let Some(mut copy) = copy else { return };
        for row in 0..copy.n_rows() {
            copy.row(row).copy_from_slice(d_x_rows.row(row));
        }
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

/// Rows of d_x, and where their copy goes.
type Pair<'a> = (MatrixMut<'a>, Option<MatrixMut<'a>>);

/// What the gradients of some rows are made of.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    d_y: Matrix<'a>,
    x: Matrix<'a>,
    rstd: Matrix<'a>,
    mean: Option<Matrix<'a>>,
    weight: &'a [f32],
}

vector_fn! {
    /// d_x of some rows, and their sums for the gradients of weight and bias.
    fn backward_block(
        of: Inputs<'_>,
        inverse_count: f32,
        d_x: MatrixMut<'_>,
        store: Store,
        partial: Option<MatrixMut<'_>>,
    ) -> () {
        let (mut d_x, mut partial, weight) = (d_x, partial, of.weight);
        if let Some(partial) = &mut partial {
            partial.fill(0.0);
        }
        for row in 0..d_x.n_rows() {
            let d = weight.len();
            let inputs = of.x.row(row).chunks_exact(d).zip(of.d_y.row(row).chunks_exact(d));
            let groups = d_x.row(row).chunks_exact_mut(d).zip(inputs).enumerate();
            for (group, (d_x, (x, d_y))) in groups {
                let r = of.rstd.row(row)[group];
                let centre = match of.mean {
                    Some(mean) => mean.row(row)[group],
                    None => 0.0,
                };
                let mean_gh = sum3(x, d_y, weight, |x, d_y, w| (x - centre) * r * (w * d_y)) * inverse_count;
                let mean_g =
                    if of.mean.is_some() { sum2(d_y, weight, |d_y, w| w * d_y) * inverse_count } else { 0.0 };
                for (d_x, ((x, d_y), w)) in d_x.iter_mut().zip(x.iter().zip(d_y).zip(weight)) {
                    let gradient = r * (w * d_y - mean_g - (x - centre) * r * mean_gh);
                    *d_x = if store == Store::Add { *d_x + gradient } else { gradient };
                }
                let Some(partial) = &mut partial else { continue };
                for (sum, (x, d_y)) in partial.row(0).iter_mut().zip(x.iter().zip(d_y)) {
                    *sum += d_y * ((x - centre) * r);
                }
                if partial.n_rows() > 1 {
                    for (sum, d_y) in partial.row(1).iter_mut().zip(d_y) {
                        *sum += d_y;
                    }
                }
            }
        }
    }
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
