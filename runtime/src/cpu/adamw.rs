//! AdamW, in place, in one pass over parameters, gradients and moments.

use super::blocks::ELEMENTS;
use super::lanes::vector_fn;
use super::slots::Slots;
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::adamw::AdamW;
use kernwright_plan::options::AdamWOptions;
use rayon::prelude::*;

/// What belongs to one parameter.
#[derive(Default)]
struct Tensor<'a> {
    parameter: Option<&'a mut [f32]>,
    m: Option<&'a mut [f32]>,
    v: Option<&'a mut [f32]>,
    working: Option<&'a mut [f32]>,
}

/// Reads the gradients, learning_rate, factor and update. Updates each parameter, its m and v in place, and its working
/// copy, where there is one.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn update(op: &AdamW, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let number = slots.read_integer("update")?;
    if number == 0 {
        return Ok(());
    }
    let (rate, factor) = (slots.read_scalar("learning_rate")?, slots.read_scalar("factor")?);
    let scale = |beta: f32| (1.0 - f64::from(beta).powi(number)).recip() as f32;
    let (m_scale, v_scale) = (scale(op.options.beta1), scale(op.options.beta2));
    let strided = || ExecutorError::Plan("an `adamw` step works on whole buffers, not on views".to_owned());
    let apart = || ExecutorError::Plan("an `adamw` step works in place".to_owned());
    if slots.find("parameter").or(slots.find("m")).or(slots.find("v")).is_some() {
        return Err(apart());
    }
    let mut tensors: Vec<Tensor<'_>> = Vec::new();
    for (slot, written) in std::mem::take(&mut slots.writes) {
        let values = Some(written.matrix.into_slice().ok_or_else(strided)?);
        if slot == "parameter" {
            tensors.push(Tensor::default());
        }
        let tensor = tensors.last_mut().ok_or_else(apart)?;
        match slot {
            "parameter" => tensor.parameter = values,
            "m" => tensor.m = values,
            "v" => tensor.v = values,
            _ => tensor.working = values,
        }
    }
    let mut gradients = slots.reads.iter().filter(|(slot, _)| *slot == "gradient");
    let mut blocks = Vec::new();
    let mut copies = Vec::new();
    for (tensor, decays) in tensors.into_iter().zip(&op.decays) {
        let (Some(parameter), Some(m), Some(v)) = (tensor.parameter, tensor.m, tensor.v) else {
            return Err(apart());
        };
        let gradient = gradients.next().and_then(|(_, gradient)| gradient.slice()).ok_or_else(strided)?;
        let weight_decay = if *decays { op.options.weight_decay } else { 0.0 };
        let options = AdamWOptions { weight_decay, ..op.options };
        let rule = Rule { options, rate, factor, m_scale, v_scale };
        let mut working = tensor.working.map(|values| values.chunks_mut(ELEMENTS));
        let chunks = parameter.chunks_mut(ELEMENTS).zip(m.chunks_mut(ELEMENTS));
        for (((p, m), v), g) in chunks.zip(v.chunks_mut(ELEMENTS)).zip(gradient.chunks(ELEMENTS)) {
            copies.push(working.as_mut().and_then(Iterator::next));
            blocks.push((rule, p, m, v, g));
        }
    }
    blocks.into_par_iter().zip(copies).for_each(|((rule, p, m, v, g), working)| {
        update_block(rule, p, m, v, g);
        if let Some(working) = working {
            working.copy_from_slice(p);
        }
    });
    Ok(())
}

/// The constants of a step.
#[derive(Clone, Copy)]
struct Rule {
    options: AdamWOptions,
    rate: f32,
    /// Of the gradient: what clipping leaves, without the scale of the loss.
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
