//! The global norm of all gradients: squares are summed in f64, per fixed block, then over blocks in order. What follows
//! from it for the update is as the op's definition has it.

use super::blocks::ELEMENTS;
use super::lanes::{LANES, vector_fn};
use super::slots::Slots;
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::gradient_norm::{CLIP_EPSILON, GradientNorm, State};
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

/// Reads any number of `gradient`, loss and step. Writes norm, factor and update, and changes the state.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn norm(op: &GradientNorm, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let mut parts = Vec::new();
    for (_, gradient) in slots.reads.iter().filter(|(slot, _)| *slot == "gradient") {
        match gradient.slice() {
            Some(values) => parts.extend(values.chunks(ELEMENTS)),
            None => parts.extend((0..gradient.n_rows()).map(|row| gradient.row(row))),
        }
    }
    let sums: Vec<f64> = parts.into_par_iter().map(squares).collect();
    let (loss, step) = (slots.read_scalar("loss")?, slots.read_integer("step")?);
    let halted = slots.take_number("halted")?;
    let mut scaled = None;
    if op.scaling.is_some() {
        let [scale, good, skipped] = ["loss_scale", "good_steps", "skipped_steps"];
        scaled = Some((slots.take_number(scale)?, slots.take_number(good)?, slots.take_number(skipped)?));
    }
    let whole = |number: &f32| number.to_bits().cast_signed();
    let mut state = State { halted: whole(halted), loss_scale: 1.0, good_steps: 0, skipped_steps: 0 };
    if let Some((scale, good, skipped)) = &scaled {
        (state.loss_scale, state.good_steps, state.skipped_steps) = (**scale, whole(good), whole(skipped));
    }
    let scale = state.loss_scale;
    let norm = (sums.iter().sum::<f64>().sqrt() / f64::from(scale)) as f32;
    let update = state.advance(norm.is_finite() && loss.is_finite(), step, op.scaling);
    let share = op.clip.map_or(1.0, |clip| (clip / (norm + CLIP_EPSILON)).min(1.0));
    let word = |number: i32| f32::from_bits(number.cast_unsigned());
    slots.take_slice("norm")?.fill(norm);
    slots.take_slice("factor")?.fill(if update == 0 { 0.0 } else { share / scale });
    slots.take_slice("update")?.fill(word(update));
    *halted = word(state.halted);
    if let Some((scale, good, skipped)) = scaled {
        (*scale, *good, *skipped) = (state.loss_scale, word(state.good_steps), word(state.skipped_steps));
    }
    Ok(())
}
