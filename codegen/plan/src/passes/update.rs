//! Adds the end of a step: the global gradient norm and AdamW on every parameter.

use crate::buffer::Role;
use crate::dtype::Dtype;
use crate::ops::adamw::AdamW;
use crate::ops::gradient_norm::{GradientNorm, n_partials};
use crate::options::{AdamWOptions, Options};
use crate::plan::{Phase, Plan, Step};
use crate::shape::Shape;
use crate::tape::{read, write};

/// Adds the update phase. A parameter that took no gradient is left as it is. The norm is always computed, since it
/// is reported.
#[must_use]
pub fn add(mut plan: Plan, shape: &Shape, options: &Options) -> Plan {
    let parameters = shape.parameters();
    let pairs: Vec<_> = parameters
        .iter()
        .filter_map(|p| Some((p, plan.find(&p.name)?, plan.find(&format!("d_{}", p.name))?)))
        .collect();
    let learning_rate = plan.add("learning_rate", vec![1], Dtype::Fp32, Role::Input);
    let step = plan.add("step", vec![1], Dtype::I32, Role::Input);
    let norm = plan.add("gradient_norm", vec![1], Dtype::Fp32, Role::Output);
    let n = n_partials(pairs.iter().map(|(_, _, gradient)| plan.buffer(*gradient).len()));
    let partials = plan.add("gradient_norm.partials", vec![n], Dtype::Fp32, Role::Scratch);
    plan.steps.push(Step {
        op: GradientNorm.into(),
        reads: pairs.iter().map(|(_, _, gradient)| read("gradient", *gradient)).collect(),
        writes: vec![write("norm", norm), write("partials", partials)],
        phase: Phase::Update,
    });
    for (parameter, id, gradient) in pairs {
        let shape = plan.buffer(id).shape.clone();
        let m = plan.add(format!("m.{}", parameter.name), shape.clone(), Dtype::Fp32, Role::Moment);
        let v = plan.add(format!("v.{}", parameter.name), shape, Dtype::Fp32, Role::Moment);
        let weight_decay = if parameter.decays() { options.adamw.weight_decay } else { 0.0 };
        let mut reads = vec![
            read("parameter", id),
            read("gradient", gradient),
            read("m", m),
            read("v", v),
            read("learning_rate", learning_rate),
            read("step", step),
        ];
        if options.clip.is_some() {
            reads.push(read("norm", norm));
        }
        plan.steps.push(Step {
            op: AdamW { options: AdamWOptions { weight_decay, ..options.adamw }, clip: options.clip }.into(),
            reads,
            writes: vec![write("parameter", id), write("m", m), write("v", v)],
            phase: Phase::Update,
        });
    }
    plan
}
