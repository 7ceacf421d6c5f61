//! The global norm of all gradients: squares are summed in f64, per fixed block, then over blocks in order.

use super::blocks::ELEMENTS;
use super::lanes::{LANES, vector_fn};
use super::slots::Slots;
use kernwright_plan::executor::ExecutorError;
use rayon::prelude::*;

vector_fn! {
    fn squares(values: &[f32]) -> f64 {
        let (chunks, rest) = values.as_chunks::<LANES>();
        let mut lanes = [0.0_f64; LANES];
        for chunk in chunks {
            for i in 0..LANES {
                let value = f64::from(chunk[i]);
                lanes[i] += value * value;
            }
        }
        let rest = rest.iter().map(|value| f64::from(*value) * f64::from(*value));
        lanes.iter().copied().chain(rest).sum()
    }
}

/// Reads any number of `gradient`. Writes norm.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn norm(mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let norm = slots.take_slice("norm")?;
    let mut parts = Vec::new();
    for (_, gradient) in slots.reads.iter().filter(|(slot, _)| *slot == "gradient") {
        match gradient.slice() {
            Some(values) => parts.extend(values.chunks(ELEMENTS)),
            None => parts.extend((0..gradient.n_rows()).map(|row| gradient.row(row))),
        }
    }
    let sums: Vec<f64> = parts.into_par_iter().map(squares).collect();
    norm.fill(sums.iter().sum::<f64>().sqrt() as f32);
    Ok(())
}
