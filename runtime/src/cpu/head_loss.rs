//! The loss of the head with its gradients; logits exist for one chunk of rows only.

use super::blocks::{for_tiles, rows_for};
use super::exp::exp_of_negative;
use super::head::{Curve, finish};
use super::lanes::vector_fn;
use super::linear::{TILES, bias_gradient, input_gradient, weight_gradient};
use super::matmul::{MatrixMut, Store, matmul};
use super::slots::{Output, Slots};
use super::softcap::Softcap;
use super::softmax::{exponentials, sum_of_exponentials};
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::head_loss::{HeadLoss, target_index};
use rayon::prelude::*;

/// Reads x, weight, targets, inverse_count, bias and loss_scale where present. Writes loss, and d_x, d_weight and d_bias where asked
/// for; logits is room.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn loss(op: &HeadLoss, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (x, weight) = (slots.read("x")?, slots.read("weight")?);
    let bias = if slots.find("bias").is_some() { Some(slots.read_slice("bias")?) } else { None };
    let row_loss = RowLoss {
        vocab: op.logits.vocab,
        curve: Curve::new(op.logits.scale, op.logits.softcap),
        bias,
        inverse_count: slots.read_scalar("inverse_count")?,
        loss_scale: if slots.find("loss_scale").is_some() { slots.read_scalar("loss_scale")? } else { 1.0 },
        z_loss: op.z_loss,
    };
    let mut targets = Vec::with_capacity(x.n_rows());
    for (row, target) in slots.read_integers("targets")?.into_iter().enumerate() {
        targets.push(target_index(target, op.logits.vocab, row).map_err(ExecutorError::Data)?);
    }
    let (mut loss, mut logits) = (slots.take("loss")?, slots.take_replaced("logits")?);
    let [d_x, mut d_weight, mut d_bias] = ["d_x", "d_weight", "d_bias"].map(|slot| slots.take_optional(slot));
    let chunk = op.chunk.min(logits.n_rows()).max(1);
    let (store, d_x) = d_x.map_or((Store::Replace, None), |d_x| (d_x.store, Some(d_x.matrix)));
    let mut d_x = d_x.map(|d_x| d_x.row_blocks(chunk).into_iter());
    let mut total = 0.0;
    for start in (0..x.n_rows()).step_by(chunk) {
        let rows = start..(start + chunk).min(x.n_rows());
        let x = x.rows(rows.clone());
        let (mut logits, _) = logits.reborrow().split_rows(rows.len());
        for_tiles(logits.reborrow(), TILES, |rows, columns, logits| {
            matmul(logits, Store::Replace, 1.0, x.rows(rows), weight.rows(columns).transposed());
        });
        total += losses(logits.reborrow(), &targets[rows], row_loss);
        let logits = logits.into_view();
        let d_x = d_x.as_mut().and_then(Iterator::next).map(|matrix| Output { matrix, store });
        rayon::join(
            || d_x.into_iter().for_each(|to| input_gradient(to, logits, weight)),
            || d_weight.iter_mut().for_each(|to| weight_gradient(to.next_part(), logits, x)),
        );
        if let Some(to) = &mut d_bias {
            bias_gradient(to.next_part(), logits);
        }
    }
    for value in loss.matrix.row(0) {
        *value = if loss.store == Store::Add { *value + total as f32 } else { total as f32 };
    }
    Ok(())
}

/// Sum of the losses of some rows of products, which become their gradients.
fn losses(logits: MatrixMut<'_>, targets: &[Option<usize>], row_loss: RowLoss<'_>) -> f64 {
    let n = rows_for(logits.n_columns());
    let blocks: Vec<_> = logits.row_blocks(n).into_iter().zip(targets.chunks(n)).collect();
    let of_block = |(mut logits, targets): (MatrixMut<'_>, &[Option<usize>])| -> f64 {
        targets.iter().enumerate().map(|(row, target)| row_loss.of(logits.row(row), *target)).sum()
    };
    let sums: Vec<f64> = blocks.into_par_iter().map(of_block).collect();
    sums.into_iter().sum()
}

/// What the loss of a row depends on besides its products and target.
#[derive(Clone, Copy)]
struct RowLoss<'a> {
    vocab: usize,
    curve: Curve,
    bias: Option<&'a [f32]>,
    inverse_count: f32,
    /// Of the gradient alone.
    loss_scale: f32,
    z_loss: f64,
}

impl RowLoss<'_> {
    /// The loss of one row of products, which become their gradient; columns past the vocabulary have none.
    #[allow(clippy::cast_possible_truncation)]
    fn of(&self, products: &mut [f32], target: Option<usize>) -> f64 {
        let Some(target) = target else {
            products.fill(0.0);
            return 0.0;
        };
        let (logits, padding) = products.split_at_mut(self.vocab);
        padding.fill(0.0);
        finish(self.curve, logits, self.bias.map(|bias| &bias[..self.vocab]));
        let (chosen, inverse_count) = (logits[target], self.inverse_count);
        let (greatest, sum) = softmax(logits, self.curve.softcap.is_none());
        let lse = f64::from(greatest) + f64::from(sum).ln();
        let mut hit = inverse_count * self.curve.scale * self.loss_scale;
        let factor = hit * (1.0 + 2.0 * self.z_loss * lse) as f32 / sum;
        match self.curve.softcap {
            None => multiply(logits, factor),
            Some(cap) => {
                hit *= cap.slope(chosen);
                capped_gradient(logits, greatest, factor, cap);
            }
        }
        logits[target] -= hit;
        (lse - f64::from(chosen) + self.z_loss * lse * lse) * f64::from(inverse_count)
    }
}

vector_fn! {
    /// The greatest logit and the sum of exp(logit - greatest); `replace` leaves those in the place of the logits.
    fn softmax(logits: &mut [f32], replace: bool) -> (f32, f32) {
        if replace { exponentials(logits) } else { sum_of_exponentials(logits) }
    }
}

vector_fn! {
    fn multiply(row: &mut [f32], factor: f32) -> () {
        row.iter_mut().for_each(|p| *p *= factor);
    }
}

vector_fn! {
    /// Turns capped logits into `factor exp(logit - greatest)` times the slope of the cap.
    fn capped_gradient(logits: &mut [f32], greatest: f32, factor: f32, cap: Softcap) -> () {
        for logit in logits {
            *logit = factor * exp_of_negative(*logit - greatest) * cap.slope(*logit);
        }
    }
}
