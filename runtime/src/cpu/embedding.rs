//! Rows of a table by token, and the gradient of the table.

use super::blocks::for_rows;
use super::matmul::Store;
use super::slots::{Output, Slots};
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::embedding::{Embedding, token_index};
use rayon::prelude::*;

/// Columns of the gradient that one task sums up: two cache lines.
const COLUMNS: usize = 32;

fn indices(tokens: &[i64], vocab: usize) -> Result<Vec<usize>, ExecutorError> {
    let index = |(position, token): (usize, &i64)| token_index(*token, vocab, position);
    tokens.iter().enumerate().map(index).collect::<Result<_, _>>().map_err(ExecutorError::Data)
}

/// Reads tokens, table. Writes y.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn forward(op: &Embedding, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (table, y) = (slots.read("table")?, slots.take_replaced("y")?);
    let tokens = indices(&slots.read_integers("tokens")?, op.vocab)?;
    let scale = op.scale as f32;
    for_rows(y, |row, y| {
        y.iter_mut().zip(table.row(tokens[row])).for_each(|(y, value)| *y = scale * value);
    });
    Ok(())
}

/// Reads d_y, tokens, token_order. Writes d_table, each task some columns of it, in the given order.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn backward(op: &Embedding, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (d_y, Output { matrix, store }) = (slots.read("d_y")?, slots.take("d_table")?);
    let tokens = slots.read_integers("tokens")?;
    let mut pairs = Vec::with_capacity(tokens.len());
    for position in slots.read_integers("token_order")? {
        let position = token_index(position, tokens.len(), 0).map_err(ExecutorError::Data)?;
        let token = token_index(tokens[position], op.vocab, position).map_err(ExecutorError::Data)?;
        pairs.push((position, token));
    }
    let scale = op.scale as f32;
    matrix.column_blocks(COLUMNS).into_par_iter().enumerate().for_each(|(index, mut block)| {
        let columns = index * COLUMNS..index * COLUMNS + block.n_columns();
        if store == Store::Replace {
            block.fill(0.0);
        }
        for (position, token) in &pairs {
            let from = &d_y.row(*position)[columns.clone()];
            block.row(*token).iter_mut().zip(from).for_each(|(sum, d_y)| *sum += scale * d_y);
        }
    });
    Ok(())
}
