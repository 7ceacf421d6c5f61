//! Logits of asked rows, and what turns products into logits wherever the head is.

use super::lanes::vector_fn;
use super::matmul::{Matrix, Store, matmul};
use super::slots::Slots;
use super::softcap::Softcap;
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::head::{Logits, row_index};
use rayon::prelude::*;

/// Tokens of one task of `logits`.
const TOKENS: usize = 512;

/// `f(product + bias)` in fp32.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Curve {
    pub(crate) scale: f32,
    pub(crate) softcap: Option<Softcap>,
}

impl Curve {
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn new(scale: f64, softcap: Option<f64>) -> Self {
        Self { scale: scale as f32, softcap: softcap.map(Softcap::new) }
    }

    /// Does it change nothing?
    fn is_identity(&self) -> bool {
        self.scale == 1.0 && self.softcap.is_none()
    }
}

vector_fn! {
    /// Turns a row of products into logits.
    fn finish_row(curve: Curve, row: &mut [f32], bias: Option<&[f32]>) -> () {
        if let Some(bias) = bias {
            row.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
        }
        match curve.softcap {
            Some(cap) => row.iter_mut().for_each(|value| *value = cap.value(*value * curve.scale)),
            None => row.iter_mut().for_each(|value| *value *= curve.scale),
        }
    }
}

/// Turns a row of products into logits, if anything is to be done.
pub(crate) fn finish(curve: Curve, row: &mut [f32], bias: Option<&[f32]>) {
    if bias.is_some() || !curve.is_identity() {
        finish_row(curve, row, bias);
    }
}

/// Reads x, weight, positions, bias where present. Writes logits.
pub(crate) fn logits(op: &Logits, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (x, weight, logits) = (slots.read("x")?, slots.read("weight")?, slots.take_replaced("logits")?);
    let bias = if slots.find("bias").is_some() { Some(slots.read_slice("bias")?) } else { None };
    let (d, curve) = (x.n_columns(), Curve::new(op.scale, op.softcap));
    let mut asked = Vec::with_capacity(logits.n_rows() * d);
    for (at, position) in slots.read_integers("positions")?.into_iter().enumerate() {
        let row = row_index(position, x.n_rows(), at).map_err(ExecutorError::Data)?;
        asked.extend_from_slice(x.row(row));
    }
    let asked = Matrix::new(&asked, logits.n_rows(), d, d);
    logits.column_blocks(TOKENS).into_par_iter().enumerate().for_each(|(index, mut block)| {
        let tokens = index * TOKENS..index * TOKENS + block.n_columns();
        matmul(block.reborrow(), Store::Replace, 1.0, asked, weight.rows(tokens.clone()).transposed());
        for row in 0..block.n_rows() {
            finish(curve, block.row(row), bias.map(|bias| &bias[tokens.clone()]));
        }
    });
    Ok(())
}
