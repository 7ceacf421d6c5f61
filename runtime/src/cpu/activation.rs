//! The activations of the feed-forward, plain or gated; see the op for the formulas.
//!
//! The hyperbolic tangent of gelu_tanh is written as `2 logistic(2 u) - 1`, which leaves `x logistic(2 u)`.

use super::blocks::for_blocks;
use super::exp::{logistic, logistic_and_rest, normal_cdf_and_density};
use super::lanes::{LANES, add3, map2, map3, vector_fn};
use super::matmul::{Matrix, MatrixMut, Store};
use super::slots::{Output, Slots};
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::activation::ActivationKind;

/// `2 u = LINEAR x + CUBIC x^3`, with sqrt(8 / pi) and 0.044715 times that.
#[allow(clippy::cast_possible_truncation)]
const LINEAR: f32 = EXACT as f32;
#[allow(clippy::cast_possible_truncation)]
const CUBIC: f32 = (0.044_715 * EXACT) as f32;
const EXACT: f64 = 1.595_769_121_605_730_7;

#[inline(always)]
fn swiglu(gate: f32, up: f32) -> f32 {
    gate * logistic(gate) * up
}

/// The gradients of the gate and of what it scales.
#[inline(always)]
fn swiglu_slopes(gate: f32, up: f32, d_y: f32) -> (f32, f32) {
    let (s, rest) = logistic_and_rest(gate);
    (d_y * (s * (1.0 + gate * rest)) * up, d_y * (gate * s))
}

/// The second input of these is the first again: plain activations have only one.
#[inline(always)]
fn gelu(x: f32, _again: f32) -> f32 {
    x * normal_cdf_and_density(x).0
}

#[inline(always)]
fn gelu_slope(x: f32, _again: f32, d_y: f32) -> f32 {
    let (cdf, density) = normal_cdf_and_density(x);
    d_y * (cdf + x * density)
}

#[inline(always)]
fn gelu_tanh(x: f32, _again: f32) -> f32 {
    x * logistic(x * (LINEAR + CUBIC * (x * x)))
}

#[inline(always)]
fn gelu_tanh_slope(x: f32, _again: f32, d_y: f32) -> f32 {
    let square = x * x;
    let (s, rest) = logistic_and_rest(x * (LINEAR + CUBIC * square));
    d_y * (s * (1.0 + rest * (x * (LINEAR + 3.0 * CUBIC * square))))
}

vector_fn! {
    /// y of some rows, the first of them `first`.
    fn forward_block(kind: ActivationKind, first: usize, y: MatrixMut<'_>, x: Matrix<'_>) -> () {
        let (mut y, d) = (y, x.n_columns() / kind.inputs());
        for row in 0..y.n_rows() {
            let (x, y) = (x.row(first + row), y.row(row));
            match kind {
                ActivationKind::Swiglu => map2(y, &x[..d], &x[d..], swiglu),
                ActivationKind::Gelu => map2(y, x, x, gelu),
                ActivationKind::GeluTanh => map2(y, x, x, gelu_tanh),
            }
        }
    }
}

/// Works on copies of a few elements at a time: of this many slices the compiler would not prove that none overlap.
#[inline(always)]
fn swiglu_row(store: Store, d_gate: &mut [f32], d_up: &mut [f32], inputs: [&[f32]; 3]) {
    let whole = d_gate.len() / LANES * LANES;
    let mut at = 0;
    while at < whole {
        let part = at..at + LANES;
        let (gate, up, d_y) = (&inputs[0][part.clone()], &inputs[1][part.clone()], &inputs[2][part.clone()]);
        let (mut gates, mut ups) = ([0.0; LANES], [0.0; LANES]);
        for i in 0..LANES {
            (gates[i], ups[i]) = swiglu_slopes(gate[i], up[i], d_y[i]);
        }
        store_part(store, &mut d_gate[part.clone()], &gates);
        store_part(store, &mut d_up[part], &ups);
        at += LANES;
    }
    for at in whole..d_gate.len() {
        let (gate, up) = swiglu_slopes(inputs[0][at], inputs[1][at], inputs[2][at]);
        store_part(store, &mut d_gate[at..=at], &[gate]);
        store_part(store, &mut d_up[at..=at], &[up]);
    }
}

#[inline(always)]
fn store_part(store: Store, to: &mut [f32], values: &[f32]) {
    match store {
        Store::Replace => to.copy_from_slice(values),
        Store::Add => to.iter_mut().zip(values).for_each(|(to, value)| *to += value),
    }
}

vector_fn! {
    /// d_x of some rows, the first of them `first`.
    fn backward_block(
        kind: ActivationKind,
        store: Store,
        first: usize,
        d_x: MatrixMut<'_>,
        d_y: Matrix<'_>,
        x: Matrix<'_>,
    ) -> () {
        let (mut d_x, d) = (d_x, d_y.n_columns());
        for row in 0..d_x.n_rows() {
            let (d_y, x, d_x) = (d_y.row(first + row), x.row(first + row), d_x.row(row));
            match (kind, store) {
                (ActivationKind::Swiglu, _) => {
                    let ((gate, up), (d_gate, d_up)) = (x.split_at(d), d_x.split_at_mut(d));
                    swiglu_row(store, d_gate, d_up, [gate, up, d_y]);
                }
                (ActivationKind::Gelu, Store::Replace) => map3(d_x, x, x, d_y, gelu_slope),
                (ActivationKind::Gelu, Store::Add) => add3(d_x, x, x, d_y, gelu_slope),
                (ActivationKind::GeluTanh, Store::Replace) => map3(d_x, x, x, d_y, gelu_tanh_slope),
                (ActivationKind::GeluTanh, Store::Add) => add3(d_x, x, x, d_y, gelu_tanh_slope),
            }
        }
    }
}

/// Reads x. Writes y.
pub(crate) fn forward(kind: ActivationKind, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (x, y) = (slots.read("x")?, slots.take_replaced("y")?);
    for_blocks(y, |first, y| forward_block(kind, first, y, x));
    Ok(())
}

/// Reads d_y, x. Writes d_x.
pub(crate) fn backward(kind: ActivationKind, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (d_y, x, Output { matrix, store }) = (slots.read("d_y")?, slots.read("x")?, slots.take("d_x")?);
    for_blocks(matrix, |first, d_x| backward_block(kind, store, first, d_x, d_y, x));
    Ok(())
}
