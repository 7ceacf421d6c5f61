//! Attention backward: per (sequence, key and value head) task, so that no two tasks write to one element.
//!
//! For each query head of the group and each block of queries, `P = exp(S - lse)` is made again and five products
//! give the gradients. Those of keys and values add up over blocks and heads, from zero where they are replaced.

use super::attention::{QUERIES, Row, blocks, each_head, head_of, most_scores, parts, stride};
use super::exp::exp_of_negative;
use super::lanes::{sum2, vector_fn};
use super::matmul::{Matrix, MatrixMut, Store, matmul};
use super::slots::Slots;
use super::softcap::Softcap;
use super::workspace::Workspace;
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::attention::Attention;
use rayon::prelude::*;

/// What a step reads, of all heads.
struct Inputs<'a> {
    op: &'a Attention,
    q: Matrix<'a>,
    k: Matrix<'a>,
    v: Matrix<'a>,
    out: Matrix<'a>,
    lse: &'a [f32],
    d_out: Matrix<'a>,
    /// For d_q, d_k, d_v.
    stores: [Store; 3],
}

/// Reads q, k, v, out, lse, d_out. Writes d_q, d_k, d_v.
pub(crate) fn backward(op: &Attention, mut slots: Slots<'_>, room: &Workspace) -> Result<(), ExecutorError> {
    let (d_q, d_k, d_v) = (slots.take("d_q")?, slots.take("d_k")?, slots.take("d_v")?);
    let inputs = Inputs {
        op,
        q: slots.read("q")?,
        k: slots.read("k")?,
        v: slots.read("v")?,
        out: slots.read("out")?,
        lse: slots.read_slice("lse")?,
        d_out: slots.read("d_out")?,
        stores: [d_q.store, d_k.store, d_v.store],
    };
    let d_q = parts(op, d_q.matrix, op.length, op.heads / op.kv_heads);
    let [d_k, d_v] = [d_k.matrix, d_v.matrix].map(|of| parts(op, of, op.key_length, 1));
    let tasks: Vec<_> = d_q.into_iter().zip(d_k.into_iter().zip(d_v)).collect();
    tasks.into_par_iter().enumerate().for_each(|(index, (d_q, (d_k, d_v)))| {
        room.with(2 * most_scores(op), |words| inputs.one_group(index, d_q, d_k, d_v, words));
    });
    Ok(())
}

/// What belongs to a block of queries of one head.
struct Rows<'a> {
    op: &'a Attention,
    /// Positions of the first query and key.
    first: [usize; 2],
    scale: f32,
    d_out: Matrix<'a>,
    out: Matrix<'a>,
}

vector_fn! {
    /// Turns scores into P, and dP into the gradient of the products of q and k; both 0 where hidden.
    fn score_gradients(rows: &Rows<'_>, p: MatrixMut<'_>, d_s: MatrixMut<'_>, lse: &[f32]) -> () {
        let (mut p, mut d_s, scale) = (p, d_s, rows.scale);
        let softcap = rows.op.softcap.map(Softcap::new);
        for (row, lse) in lse.iter().enumerate() {
            let delta = sum2(rows.d_out.row(row), rows.out.row(row), |a, b| a * b);
            let query = rows.first[0] + row;
            let mut p = Row::new(rows.op, query, rows.first[1], p.row(row));
            let mut d_s = Row::new(rows.op, query, rows.first[1], d_s.row(row));
            match softcap {
                None => one_row(p.vectors(), d_s.vectors(), *lse, delta, scale),
                Some(cap) => one_capped_row(p.vectors(), d_s.vectors(), *lse, delta, (scale, cap)),
            }
            if d_s.seen.len() == 1 {
                // The weight of an only key is 1 whatever its score; rounding would leave a trace.
                d_s.seen.end = d_s.seen.start;
            }
            p.clear_hidden();
            d_s.clear_hidden();
        }
    }
}

/// Its own function, because only arguments are known not to overlap.
#[inline(always)]
fn one_row(p: &mut [f32], d_s: &mut [f32], lse: f32, delta: f32, scale: f32) {
    for (p, d_s) in p.iter_mut().zip(d_s) {
        *p = exp_of_negative(*p - lse);
        *d_s = *p * (*d_s - delta) * scale;
    }
}

/// The same where scores are capped.
#[inline(always)]
fn one_capped_row(p: &mut [f32], d_s: &mut [f32], lse: f32, delta: f32, (scale, cap): (f32, Softcap)) {
    for (p, d_s) in p.iter_mut().zip(d_s) {
        let score = cap.value(*p);
        *p = exp_of_negative(score - lse);
        *d_s = *p * (*d_s - delta) * (scale * cap.slope(score));
    }
}

impl Inputs<'_> {
    /// The gradients of one key and value head and of the query heads that share it.
    #[allow(clippy::cast_possible_truncation)]
    fn one_group(
        &self,
        index: usize,
        d_q: MatrixMut<'_>,
        mut d_k: MatrixMut<'_>,
        mut d_v: MatrixMut<'_>,
        words: &mut [f32],
    ) {
        let (op, scale) = (self.op, self.op.scale as f32);
        let (sequence, kv_head) = (index / op.kv_heads, index % op.kv_heads);
        let of_keys = (op.kv_heads, op.key_length);
        let [k, v] = [self.k, self.v].map(|of| head_of(op, of, of_keys, [sequence, kv_head]));
        let [store_q, store_k, store_v] = self.stores;
        if store_k == Store::Replace {
            d_k.fill(0.0);
        }
        if store_v == Store::Replace {
            d_v.fill(0.0);
        }
        let (p, d_s) = words.split_at_mut(words.len() / 2);
        let group = op.heads / op.kv_heads;
        for (member, d_q) in each_head(op, d_q, op.length).into_iter().enumerate() {
            let head = kv_head * group + member;
            let of_head = |of| head_of(op, of, (op.heads, op.length), [sequence, head]);
            let [q, out, d_out] = [self.q, self.out, self.d_out].map(of_head);
            let lse = &self.lse[(sequence * op.heads + head) * op.length..][..op.length];
            for ((queries, keys), mut d_q) in blocks(op).zip(d_q.row_blocks(QUERIES)) {
                if keys.is_empty() {
                    if store_q == Store::Replace {
                        d_q.fill(0.0);
                    }
                    continue;
                }
                let (n_keys, stride) = (keys.len(), stride(keys.len()));
                let mut p = MatrixMut::new(&mut *p, queries.len(), stride, stride);
                let mut d_s = MatrixMut::new(&mut *d_s, queries.len(), stride, stride);
                let (k, v) = (k.rows(keys.clone()), v.rows(keys.clone()));
                let (q, d_out) = (q.rows(queries.clone()), d_out.rows(queries.clone()));
                matmul(p.reborrow().split_columns(n_keys).0, Store::Replace, scale, q, k.transposed());
                matmul(d_s.reborrow().split_columns(n_keys).0, Store::Replace, 1.0, d_out, v.transposed());
                let rows = Rows {
                    op,
                    first: [queries.start, keys.start],
                    scale,
                    d_out,
                    out: out.rows(queries.clone()),
                };
                score_gradients(&rows, p.reborrow(), d_s.reborrow(), &lse[queries]);
                let (p, d_s) = (p.view().columns(0..n_keys), d_s.view().columns(0..n_keys));
                let d_k = d_k.reborrow().middle_rows(keys.clone());
                let d_v = d_v.reborrow().middle_rows(keys);
                matmul(d_v, Store::Add, 1.0, p.transposed(), d_out);
                matmul(d_k, Store::Add, 1.0, d_s.transposed(), q);
                matmul(d_q, store_q, 1.0, d_s, k);
            }
        }
    }
}
