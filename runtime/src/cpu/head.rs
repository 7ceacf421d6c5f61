//! The head: logits for asked rows, and the loss with its gradients, whose logits exist for one chunk of rows only.

use super::blocks::PRODUCT_ROWS;
use super::exp::exp_of_negative;
use super::lanes::{map_sum, max, vector_fn};
use super::linear::weight_gradient;
use super::matmul::{Matrix, MatrixMut, Store, matmul};
use super::slots::{Output, Slots};
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::head::row_index;
use kernwright_plan::ops::head_loss::target_index;
use rayon::prelude::*;

/// Tokens of one task of `logits`.
const TOKENS: usize = 512;

/// Reads x, weight, positions. Writes logits.
pub(crate) fn logits(mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (x, weight, logits) = (slots.read("x")?, slots.read("weight")?, slots.take_replaced("logits")?);
    let d = x.n_columns();
    let mut asked = Vec::with_capacity(logits.n_rows() * d);
    for (at, position) in slots.read_integers("positions")?.into_iter().enumerate() {
        let row = row_index(position, x.n_rows(), at).map_err(ExecutorError::Data)?;
        asked.extend_from_slice(x.row(row));
    }
    let asked = Matrix::new(&asked, logits.n_rows(), d, d);
    logits.column_blocks(TOKENS).into_par_iter().enumerate().for_each(|(index, block)| {
        let tokens = index * TOKENS..index * TOKENS + block.n_columns();
        matmul(block, Store::Replace, 1.0, asked, weight.rows(tokens).transposed());
    });
    Ok(())
}

/// Reads x, weight, targets, inverse_count. Writes loss, and d_x and d_weight where asked for; logits is room.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn loss(chunk: usize, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (x, weight, scale) = (slots.read("x")?, slots.read("weight")?, slots.read_scalar("inverse_count")?);
    let mut targets = Vec::with_capacity(x.n_rows());
    for (row, target) in slots.read_integers("targets")?.into_iter().enumerate() {
        targets.push(target_index(target, weight.n_rows(), row).map_err(ExecutorError::Data)?);
    }
    let (mut loss, mut logits) = (slots.take("loss")?, slots.take_replaced("logits")?);
    let (d_x, mut d_weight) = (slots.take_optional("d_x"), slots.take_optional("d_weight"));
    let chunk = chunk.min(logits.n_rows()).max(1);
    let (store, d_x) = d_x.map_or((Store::Replace, None), |d_x| (d_x.store, Some(d_x.matrix)));
    let mut d_x = d_x.map(|d_x| d_x.row_blocks(chunk).into_iter());
    let mut total = 0.0;
    for start in (0..x.n_rows()).step_by(chunk) {
        let rows = start..(start + chunk).min(x.n_rows());
        let chunk = Chunk { x: x.rows(rows.clone()), weight, targets: &targets[rows.clone()], scale, store };
        let (mut logits, _) = logits.reborrow().split_rows(rows.len());
        total += chunk.loss(logits.reborrow(), d_x.as_mut().and_then(Iterator::next));
        if let Some(to) = &mut d_weight {
            let part = Output { matrix: to.matrix.reborrow(), store: to.store };
            weight_gradient(part, logits.view(), chunk.x);
            to.store = Store::Add;
        }
    }
    for value in loss.matrix.row(0) {
        *value = if loss.store == Store::Add { *value + total as f32 } else { total as f32 };
    }
    Ok(())
}

/// Some rows of which the logits exist at once.
struct Chunk<'a> {
    x: Matrix<'a>,
    weight: Matrix<'a>,
    targets: &'a [Option<usize>],
    scale: f32,
    store: Store,
}

impl Chunk<'_> {
    /// Sum of the rows' losses; leaves the gradient of the logits in `logits`.
    fn loss(&self, logits: MatrixMut<'_>, d_x: Option<MatrixMut<'_>>) -> f64 {
        let blocks = logits.row_blocks(PRODUCT_ROWS);
        let mut d_x = d_x.map(|d_x| d_x.row_blocks(PRODUCT_ROWS).into_iter());
        let blocks: Vec<_> =
            blocks.into_iter().map(|block| (block, d_x.as_mut().and_then(Iterator::next))).collect();
        let work = |(index, (mut logits, d_x)): (usize, (MatrixMut<'_>, Option<MatrixMut<'_>>))| {
            let rows = index * PRODUCT_ROWS..index * PRODUCT_ROWS + logits.n_rows();
            let x = self.x.rows(rows.clone());
            matmul(logits.reborrow(), Store::Replace, 1.0, x, self.weight.transposed());
            let mut sum = 0.0;
            for (at, target) in self.targets[rows].iter().enumerate() {
                sum += row_loss(logits.row(at), *target, self.scale);
            }
            if let Some(d_x) = d_x {
                matmul(d_x, self.store, 1.0, logits.view(), self.weight);
            }
            sum
        };
        let sums: Vec<f64> = blocks.into_par_iter().enumerate().map(work).collect();
        sums.into_iter().sum()
    }
}

/// The loss of one row of logits, which become their gradient.
#[allow(clippy::cast_possible_truncation)]
fn row_loss(logits: &mut [f32], target: Option<usize>, scale: f32) -> f64 {
    let Some(target) = target else {
        logits.fill(0.0);
        return 0.0;
    };
    let chosen = logits[target];
    let (greatest, sum) = softmax(logits, scale);
    logits[target] -= scale;
    (f64::from(greatest) - f64::from(chosen) + f64::from(sum).ln()) * f64::from(scale)
}

vector_fn! {
    /// Turns logits into `scale` times their softmax; gives the greatest logit and the sum of exp(logit - greatest).
    fn softmax(logits: &mut [f32], scale: f32) -> (f32, f32) {
        let greatest = max(logits);
        let sum = map_sum(logits, |logit| exp_of_negative(logit - greatest));
        let factor = scale / sum;
        logits.iter_mut().for_each(|p| *p *= factor);
        (greatest, sum)
    }
}
