//! The activations of the feed-forward, plain or gated; see the op for the formulas.
//!
//! The hyperbolic tangent of gelu_tanh is written as `2 logistic(2 u) - 1`, which leaves `x logistic(2 u)`.

use super::blocks::for_blocks;
use super::exp::{logistic, logistic_and_rest, normal_cdf_and_density};
use super::lanes::{LANES, add2, map1, map2, vector_fn};
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

/// An activation function: its value, and value and slope together.
trait Function {
    fn value(x: f32) -> f32;
    fn value_and_slope(x: f32) -> (f32, f32);
}

struct Silu;
struct Gelu;
struct GeluTanh;
struct Relu;
struct Relu2;

impl Function for Silu {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * logistic(x)
    }

    #[inline(always)]
    fn value_and_slope(x: f32) -> (f32, f32) {
        let (s, rest) = logistic_and_rest(x);
        (x * s, s * (1.0 + x * rest))
    }
}

impl Function for Gelu {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * normal_cdf_and_density(x).0
    }

    #[inline(always)]
    fn value_and_slope(x: f32) -> (f32, f32) {
        let (cdf, density) = normal_cdf_and_density(x);
        (x * cdf, cdf + x * density)
    }
}

impl Function for GeluTanh {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        x * logistic(x * (LINEAR + CUBIC * (x * x)))
    }

    #[inline(always)]
    fn value_and_slope(x: f32) -> (f32, f32) {
        let square = x * x;
        let (s, rest) = logistic_and_rest(x * (LINEAR + CUBIC * square));
        (x * s, s * (1.0 + rest * (x * (LINEAR + 3.0 * CUBIC * square))))
    }
}

/// Comparisons are such that NaN stays NaN.
impl Function for Relu {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        if x <= 0.0 { 0.0 } else { x }
    }

    #[inline(always)]
    fn value_and_slope(x: f32) -> (f32, f32) {
        if x <= 0.0 { (0.0, 0.0) } else { (x, 1.0) }
    }
}

impl Function for Relu2 {
    #[inline(always)]
    fn value(x: f32) -> f32 {
        let positive = Relu::value(x);
        positive * positive
    }

    #[inline(always)]
    fn value_and_slope(x: f32) -> (f32, f32) {
        let positive = Relu::value(x);
        (positive * positive, 2.0 * positive)
    }
}

#[inline(always)]
fn forward_rows<F: Function>(kind: ActivationKind, first: usize, mut y: MatrixMut<'_>, x: Matrix<'_>) {
    for row in 0..y.n_rows() {
        let (x, y) = (x.row(first + row), y.row(row));
        if kind.is_gated() {
            let (gate, up) = x.split_at(y.len());
            map2(y, gate, up, |gate, up| F::value(gate) * up);
        } else {
            map1(y, x, |x| F::value(x));
        }
    }
}

vector_fn! {
    /// y of some rows, the first of them `first`.
    fn forward_block(kind: ActivationKind, first: usize, y: MatrixMut<'_>, x: Matrix<'_>) -> () {
        match kind {
            ActivationKind::Swiglu => forward_rows::<Silu>(kind, first, y, x),
            ActivationKind::Gelu | ActivationKind::Geglu => forward_rows::<Gelu>(kind, first, y, x),
            ActivationKind::GeluTanh | ActivationKind::GegluTanh => forward_rows::<GeluTanh>(kind, first, y, x),
            ActivationKind::Relu => forward_rows::<Relu>(kind, first, y, x),
            ActivationKind::Relu2 => forward_rows::<Relu2>(kind, first, y, x),
        }
    }
}

/// The gradients of a gate and of what it scales.
#[inline(always)]
fn gated_slopes<F: Function>(gate: f32, up: f32, d_y: f32) -> (f32, f32) {
    let (value, slope) = F::value_and_slope(gate);
    (d_y * slope * up, d_y * value)
}

/// Works on copies of a few elements at a time: of this many slices the compiler would not prove that none overlap.
#[inline(always)]
fn gated_row<F: Function>(store: Store, d_gate: &mut [f32], d_up: &mut [f32], inputs: [&[f32]; 3]) {
    let whole = d_gate.len() / LANES * LANES;
    let mut at = 0;
    while at < whole {
        let part = at..at + LANES;
        let (gate, up, d_y) = (&inputs[0][part.clone()], &inputs[1][part.clone()], &inputs[2][part.clone()]);
        let (mut gates, mut ups) = ([0.0; LANES], [0.0; LANES]);
        for i in 0..LANES {
            (gates[i], ups[i]) = gated_slopes::<F>(gate[i], up[i], d_y[i]);
        }
        store_part(store, &mut d_gate[part.clone()], &gates);
        store_part(store, &mut d_up[part], &ups);
        at += LANES;
    }
    for at in whole..d_gate.len() {
        let (gate, up) = gated_slopes::<F>(inputs[0][at], inputs[1][at], inputs[2][at]);
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

/// What gradients are made of.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    d_y: Matrix<'a>,
    x: Matrix<'a>,
}

#[inline(always)]
fn backward_rows<F: Function>(
    gated: bool,
    store: Store,
    first: usize,
    mut d_x: MatrixMut<'_>,
    of: Inputs<'_>,
) {
    for row in 0..d_x.n_rows() {
        let (d_y, x, d_x) = (of.d_y.row(first + row), of.x.row(first + row), d_x.row(row));
        if gated {
            let ((gate, up), (d_gate, d_up)) = (x.split_at(d_y.len()), d_x.split_at_mut(d_y.len()));
            gated_row::<F>(store, d_gate, d_up, [gate, up, d_y]);
        } else {
            match store {
                Store::Replace => map2(d_x, x, d_y, |x, d_y| d_y * F::value_and_slope(x).1),
                Store::Add => add2(d_x, x, d_y, |x, d_y| d_y * F::value_and_slope(x).1),
            }
        }
    }
}

vector_fn! {
    /// d_x of some rows, the first of them `first`.
    fn backward_block(
        kind: ActivationKind,
        store: Store,
        first: usize,
        d_x: MatrixMut<'_>,
        of: Inputs<'_>,
    ) -> () {
        let gated = kind.is_gated();
        match kind {
            ActivationKind::Swiglu => backward_rows::<Silu>(gated, store, first, d_x, of),
            ActivationKind::Gelu | ActivationKind::Geglu => backward_rows::<Gelu>(gated, store, first, d_x, of),
            ActivationKind::GeluTanh | ActivationKind::GegluTanh => {
                backward_rows::<GeluTanh>(gated, store, first, d_x, of);
            }
            ActivationKind::Relu => backward_rows::<Relu>(gated, store, first, d_x, of),
            ActivationKind::Relu2 => backward_rows::<Relu2>(gated, store, first, d_x, of),
        }
    }
}

vector_fn! {
    /// What a product with a gelu does to a block of its sums.
    fn gelu_block(sums: MatrixMut<'_>) -> () {
        let mut sums = sums;
        for row in 0..sums.n_rows() {
            sums.row(row).iter_mut().for_each(|sum| *sum = GeluTanh::value(*sum));
        }
    }
}

vector_fn! {
    /// What a product that is the gradient of a gelu does to a block of its sums, whose rows are those of `inputs` from
    /// `first` on.
    fn slope_block(first: usize, sums: MatrixMut<'_>, inputs: Matrix<'_>) -> () {
        let mut sums = sums;
        for row in 0..sums.n_rows() {
            let pairs = sums.row(row).iter_mut().zip(inputs.row(first + row));
            pairs.for_each(|(sum, input)| *sum *= GeluTanh::value_and_slope(*input).1);
        }
    }
}

/// Each element becomes its gelu, in the tanh form.
pub(crate) fn apply_gelu(sums: MatrixMut<'_>) {
    for_blocks(sums, |_, block| gelu_block(block));
}

/// Each element is multiplied by the slope of that gelu at the same place of `inputs`.
pub(crate) fn multiply_by_gelu_slope(sums: MatrixMut<'_>, inputs: Matrix<'_>) {
    for_blocks(sums, |first, block| slope_block(first, block, inputs));
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
    for_blocks(matrix, |first, d_x| backward_block(kind, store, first, d_x, Inputs { d_y, x }));
    Ok(())
}
