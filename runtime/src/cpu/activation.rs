//! The activations of the feed-forward, plain or gated; see the op for the formulas.
//!
//! The hyperbolic tangent of gelu_tanh is written as `2 logistic(2 u) - 1`, which leaves `x logistic(2 u)`.

use super::blocks::for_rows;
use super::exp::{logistic, logistic_and_rest, normal_cdf_and_density};
use super::matmul::Store;
use super::slots::{Output, Slots};
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::activation::ActivationKind;

/// `2 u = LINEAR x + CUBIC x^3`, with sqrt(8 / pi) and 0.044715 times that.
const LINEAR: f32 = 1.595_769_1;
const CUBIC: f32 = 0.071_354_82;

#[inline(always)]
fn silu(x: f32) -> f32 {
    x * logistic(x)
}

#[inline(always)]
fn silu_and_slope(x: f32) -> (f32, f32) {
    let (s, rest) = logistic_and_rest(x);
    (x * s, s * (1.0 + x * rest))
}

#[inline(always)]
fn gelu(x: f32) -> f32 {
    x * normal_cdf_and_density(x).0
}

#[inline(always)]
fn gelu_slope(x: f32) -> f32 {
    let (cdf, density) = normal_cdf_and_density(x);
    cdf + x * density
}

#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    x * logistic(x * (LINEAR + CUBIC * (x * x)))
}

#[inline(always)]
fn gelu_tanh_slope(x: f32) -> f32 {
    let square = x * x;
    let (s, rest) = logistic_and_rest(x * (LINEAR + CUBIC * square));
    s * (1.0 + rest * (x * (LINEAR + 3.0 * CUBIC * square)))
}

/// Reads x. Writes y.
pub(crate) fn forward(kind: ActivationKind, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (x, y) = (slots.read("x")?, slots.take_replaced("y")?);
    let d = y.n_columns();
    match kind {
        ActivationKind::Swiglu => for_rows(y, |row, y| {
            let (gate, up) = x.row(row).split_at(d);
            for (y, (gate, up)) in y.iter_mut().zip(gate.iter().zip(up)) {
                *y = silu(*gate) * up;
            }
        }),
        ActivationKind::Gelu => {
            for_rows(y, |row, y| y.iter_mut().zip(x.row(row)).for_each(|(y, x)| *y = gelu(*x)));
        }
        ActivationKind::GeluTanh => {
            for_rows(y, |row, y| y.iter_mut().zip(x.row(row)).for_each(|(y, x)| *y = gelu_tanh(*x)));
        }
    }
    Ok(())
}

/// Reads d_y, x. Writes d_x.
pub(crate) fn backward(kind: ActivationKind, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (d_y, x, Output { matrix, store }) = (slots.read("d_y")?, slots.read("x")?, slots.take("d_x")?);
    // The former content counts once or not at all; 0 times NaN would be NaN, so it is chosen, not multiplied.
    let add = store == Store::Add;
    let before = move |value: f32| if add { value } else { 0.0 };
    let d = d_y.n_columns();
    match kind {
        ActivationKind::Swiglu => for_rows(matrix, |row, d_x| {
            let ((d_gate, d_up), (gate, up)) = (d_x.split_at_mut(d), x.row(row).split_at(d));
            let inputs = gate.iter().zip(up).zip(d_y.row(row));
            for ((d_gate, d_up), ((gate, up), d_y)) in d_gate.iter_mut().zip(d_up).zip(inputs) {
                let (value, slope) = silu_and_slope(*gate);
                *d_gate = before(*d_gate) + d_y * slope * up;
                *d_up = before(*d_up) + d_y * value;
            }
        }),
        ActivationKind::Gelu => for_rows(matrix, |row, d_x| {
            for (d_x, (x, d_y)) in d_x.iter_mut().zip(x.row(row).iter().zip(d_y.row(row))) {
                *d_x = before(*d_x) + d_y * gelu_slope(*x);
            }
        }),
        ActivationKind::GeluTanh => for_rows(matrix, |row, d_x| {
            for (d_x, (x, d_y)) in d_x.iter_mut().zip(x.row(row).iter().zip(d_y.row(row))) {
                *d_x = before(*d_x) + d_y * gelu_tanh_slope(*x);
            }
        }),
    }
    Ok(())
}
