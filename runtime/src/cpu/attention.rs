//! Attention forward: per (sequence, query head) task, blocks of queries against all keys that they see.
//!
//! Scores of a block are one product, softmax works on their rows in place, and the output is a second product. Keys
//! that the mask or the window hides from the whole block are skipped.

use super::lanes::{LANES, vector_fn};
use super::matmul::{Matrix, MatrixMut, Store, matmul};
use super::slots::Slots;
use super::softcap::Softcap;
use super::softmax::exponentials;
use super::workspace::Workspace;
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::attention::Attention;
use rayon::prelude::*;
use std::ops::Range;

/// Queries whose scores exist at once.
pub(crate) const QUERIES: usize = 64;

/// Blocks of queries, and the keys that any query of each sees.
pub(crate) fn blocks(op: &Attention) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    (0..op.length.div_ceil(QUERIES)).map(move |block| {
        let queries = block * QUERIES..((block + 1) * QUERIES).min(op.length);
        let keys = op.seen(queries.start).start..op.seen(queries.end - 1).end;
        (queries, keys)
    })
}

/// Distance between the rows of scores of that many keys: from any of them on, there is room for whole vectors.
pub(crate) fn stride(keys: usize) -> usize {
    keys.next_multiple_of(LANES) + LANES
}

/// Room for the scores of the largest block.
pub(crate) fn most_scores(op: &Attention) -> usize {
    blocks(op).map(|(queries, keys)| queries.len() * stride(keys.len())).max().unwrap_or(0)
}

/// The row of a query's scores with its margin.
pub(crate) struct Row<'a> {
    /// All of it, from the block's first key on.
    pub(crate) all: &'a mut [f32],
    /// What the mask leaves of it.
    pub(crate) seen: Range<usize>,
}

impl<'a> Row<'a> {
    #[inline(always)]
    pub(crate) fn new(op: &Attention, query: usize, first_key: usize, all: &'a mut [f32]) -> Self {
        let seen = op.seen(query);
        Self { all, seen: seen.start - first_key..seen.end - first_key }
    }

    /// What the mask leaves, filled up to whole vectors with scores of minus infinity.
    #[inline(always)]
    pub(crate) fn vectors(&mut self) -> &mut [f32] {
        let Range { start, end } = self.seen;
        let padded = start + (end - start).next_multiple_of(LANES);
        self.all[end..padded].fill(f32::NEG_INFINITY);
        &mut self.all[start..padded]
    }

    /// Sets what the mask hides to 0.
    #[inline(always)]
    pub(crate) fn clear_hidden(&mut self) {
        self.all[..self.seen.start].fill(0.0);
        self.all[self.seen.end..].fill(0.0);
    }
}

/// The part of one of so many heads of a tensor, in one sequence of so many rows.
pub(crate) fn head_of<'a>(
    op: &Attention,
    of: Matrix<'a>,
    (heads, length): (usize, usize),
    [sequence, head]: [usize; 2],
) -> Matrix<'a> {
    if op.is_by_head(of.n_columns()) {
        let first = (sequence * heads + head) * length;
        return of.rows(first..first + length);
    }
    let rows = of.rows(sequence * length..(sequence + 1) * length);
    rows.columns(head * op.head_dim..(head + 1) * op.head_dim)
}

/// The same cut of a tensor that is written: a part per (sequence, `heads` heads), in order.
pub(crate) fn parts<'a>(
    op: &Attention,
    of: MatrixMut<'a>,
    length: usize,
    heads: usize,
) -> Vec<MatrixMut<'a>> {
    if op.is_by_head(of.n_columns()) {
        return of.row_blocks(heads * length);
    }
    let sequences = of.row_blocks(length).into_iter();
    sequences.flat_map(|sequence| sequence.column_blocks(heads * op.head_dim)).collect()
}

/// Such a part for each of its heads.
pub(crate) fn each_head<'a>(op: &Attention, of: MatrixMut<'a>, length: usize) -> Vec<MatrixMut<'a>> {
    if op.is_by_head(of.n_columns()) { of.row_blocks(length) } else { of.column_blocks(op.head_dim) }
}

/// Reads q, k, v. Writes out and, where it is asked for, lse.
pub(crate) fn forward(op: &Attention, mut slots: Slots<'_>, room: &Workspace) -> Result<(), ExecutorError> {
    let (q, k, v) = (slots.read("q")?, slots.read("k")?, slots.read("v")?);
    let out = slots.take_replaced("out")?;
    let mut unasked = Vec::new();
    let lse = match slots.writes("lse") {
        true => slots.take_slice("lse")?,
        false => {
            unasked.resize(out.n_rows() * out.n_columns() / op.head_dim, 0.0);
            &mut unasked
        }
    };
    let group = op.heads / op.kv_heads;
    let tasks: Vec<_> = parts(op, out, op.length, 1).into_iter().zip(lse.chunks_mut(op.length)).collect();
    tasks.into_par_iter().enumerate().for_each(|(index, (out, lse))| {
        let (sequence, head) = (index / op.heads, index % op.heads);
        let q = head_of(op, q, (op.heads, op.length), [sequence, head]);
        let of_keys = (op.kv_heads, op.key_length);
        let [k, v] = [k, v].map(|of| head_of(op, of, of_keys, [sequence, head / group]));
        room.with(most_scores(op), |scores| one_head(op, [q, k, v], out, lse, scores));
    });
    Ok(())
}

vector_fn! {
    /// Turns rows of scores into exp(score - greatest), 0 where hidden; gives each row's greatest score and its sum.
    fn softmax(op: &Attention, first: [usize; 2], scores: MatrixMut<'_>, of: [&mut [f32]; 2]) -> () {
        let ([first_query, first_key], mut scores, [greatest, sums]) = (first, scores, of);
        let softcap = op.softcap.map(Softcap::new);
        for (row, (greatest, sum)) in greatest.iter_mut().zip(sums).enumerate() {
            let mut row = Row::new(op, first_query + row, first_key, scores.row(row));
            if let Some(cap) = softcap {
                for score in row.vectors() {
                    *score = cap.value(*score);
                }
            }
            (*greatest, *sum) = exponentials(row.vectors());
            row.clear_hidden();
        }
    }
}

#[allow(clippy::cast_possible_truncation)]
fn one_head(op: &Attention, of: [Matrix<'_>; 3], out: MatrixMut<'_>, lse: &mut [f32], scores: &mut [f32]) {
    let ([q, k, v], scale) = (of, op.scale as f32);
    let mut outs = out.row_blocks(QUERIES).into_iter();
    for (queries, keys) in blocks(op) {
        let Some(mut out) = outs.next() else { return };
        if keys.is_empty() {
            out.fill(0.0);
            lse[queries].fill(f32::NEG_INFINITY);
            continue;
        }
        let stride = stride(keys.len());
        let mut scores = MatrixMut::new(&mut *scores, queries.len(), stride, stride);
        matmul(
            scores.reborrow().split_columns(keys.len()).0,
            Store::Replace,
            scale,
            q.rows(queries.clone()),
            k.rows(keys.clone()).transposed(),
        );
        let mut sums = [0.0; QUERIES];
        let first = [queries.start, keys.start];
        softmax(op, first, scores.reborrow(), [&mut lse[queries.clone()], &mut sums]);
        matmul(out.reborrow(), Store::Replace, 1.0, scores.view().columns(0..keys.len()), v.rows(keys));
        for (row, query) in queries.enumerate() {
            // Where nothing is seen it is all 0.
            let factor = if sums[row] > 0.0 { 1.0 / sums[row] } else { 0.0 };
            out.row(row).iter_mut().for_each(|value| *value *= factor);
            lse[query] += sums[row].ln();
        }
    }
}
