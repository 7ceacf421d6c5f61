//! AdamW, in place, in one pass over parameter, gradient and moments.

use super::blocks::ELEMENTS;
use super::lanes::vector_fn;
use super::slots::Slots;
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::adamw::{AdamW, CLIP_EPSILON};
use kernwright_plan::options::AdamWOptions;
use rayon::prelude::*;

/// Reads gradient, learning_rate, step, and norm where it clips. Updates parameter, m, v.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn update(op: &AdamW, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let AdamWOptions { beta1, beta2, .. } = op.options;
    let rate = slots.read_scalar("learning_rate")?;
    let step = f64::from(slots.read_scalar("step")?.to_bits().cast_signed());
    let norm = if slots.find("norm").is_some() { Some(slots.read_scalar("norm")?) } else { None };
    let factor = match (op.clip, norm) {
        (Some(clip), Some(norm)) => {
            let ratio = clip / (norm + CLIP_EPSILON);
            if ratio >= 1.0 { 1.0 } else { ratio }
        }
        _ => 1.0,
    };
    let m_scale = (1.0 - f64::from(beta1).powf(step)).recip() as f32;
    let v_scale = (1.0 - f64::from(beta2).powf(step)).recip() as f32;
    let gradient = slots.read_slice("gradient")?;
    let strided = || ExecutorError::Plan("an `adamw` step works on whole buffers, not on views".to_owned());
    let parameter = slots.take_in_place("parameter", "parameter")?.into_slice().ok_or_else(strided)?;
    let m = slots.take_in_place("m", "m")?.into_slice().ok_or_else(strided)?;
    let v = slots.take_in_place("v", "v")?.into_slice().ok_or_else(strided)?;
    let rule = Rule { options: op.options, rate, factor, m_scale, v_scale };
    let blocks = parameter.par_chunks_mut(ELEMENTS).zip(m.par_chunks_mut(ELEMENTS));
    let blocks = blocks.zip(v.par_chunks_mut(ELEMENTS)).zip(gradient.par_chunks(ELEMENTS));
    blocks.for_each(|(((p, m), v), g)| update_block(rule, p, m, v, g));
    if let Some(mut working) = slots.take_optional("working") {
        let columns = working.matrix.n_columns();
        for row in 0..working.matrix.n_rows() {
            working.matrix.row(row).copy_from_slice(&parameter[row * columns..(row + 1) * columns]);
        }
    }
    Ok(())
}

/// The constants of a step.
#[derive(Clone, Copy)]
struct Rule {
    options: AdamWOptions,
    rate: f32,
    /// Of the gradient: what clipping leaves.
    factor: f32,
    /// Corrections of the moments' bias.
    m_scale: f32,
    v_scale: f32,
}

vector_fn! {
    fn update_block(rule: Rule, p: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32]) -> () {
        update_elements(rule, p, m, v, g);
    }
}

/// Its own function, because only arguments are known not to overlap.
#[inline(always)]
fn update_elements(rule: Rule, p: &mut [f32], m: &mut [f32], v: &mut [f32], g: &[f32]) {
    let AdamWOptions { beta1, beta2, epsilon, weight_decay } = rule.options;
    for (((p, m), v), g) in p.iter_mut().zip(m).zip(v).zip(g) {
        let g = g * rule.factor;
        *m = beta1 * *m + (1.0 - beta1) * g;
        *v = beta2 * *v + (1.0 - beta2) * g * g;
        let update = (*m * rule.m_scale) / ((*v * rule.v_scale).sqrt() + epsilon);
        *p -= rule.rate * (update + weight_decay * *p);
    }
}
