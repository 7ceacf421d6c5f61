//! Adds the end of a step: the global gradient norm and AdamW on every parameter.

use super::MULTI_TENSOR_UPDATE;
use crate::buffer::{BufferId, Role};
use crate::dtype::Dtype;
use crate::ops::Op;
use crate::ops::adamw::AdamW;
use crate::ops::gradient_norm::{GradientNorm, Tensors, n_partials};
use crate::options::Options;
use crate::plan::{Phase, Plan, Read, Step, Write};
use crate::shape::Shape;
use crate::tape::{read, write};

/// A parameter, its gradient and moments.
struct Trained {
    decays: bool,
    reads: [Read; 4],
}

/// Adds the update phase. A parameter that took no gradient is left as it is. The norm is always computed, since it is
/// reported, and since it tells whether there is to be an update.
#[must_use]
pub fn add(mut plan: Plan, shape: &Shape, options: &Options) -> Plan {
    let Some(loss) = plan.find("loss") else { return plan };
    let learning_rate = plan.add("learning_rate", vec![1], Dtype::Fp32, Role::Input);
    let step = plan.add("step", vec![1], Dtype::I32, Role::Input);
    let mut trained = Vec::new();
    for parameter in shape.parameters() {
        let gradient = plan.find(&format!("d_{}", parameter.name));
        let (Some(id), Some(gradient)) = (plan.find(&parameter.name), gradient) else { continue };
        let shape = plan.buffer(id).shape.clone();
        let m = plan.add(format!("m.{}", parameter.name), shape.clone(), Dtype::Fp32, Role::Moment);
        let v = plan.add(format!("v.{}", parameter.name), shape, Dtype::Fp32, Role::Moment);
        let reads = [read("parameter", id), read("gradient", gradient), read("m", m), read("v", v)];
        trained.push(Trained { decays: parameter.decays(), reads });
    }
    let launches = if options.runs(MULTI_TENSOR_UPDATE) { Tensors::All } else { Tensors::Each };
    let gradients = trained.iter().map(|one| one.reads[1]).collect();
    let op = GradientNorm { clip: options.clip, scaling: options.scaling(shape), launches };
    let (factor, update) = norm(&mut plan, op, gradients, [loss, step]);
    let scalars = [read("learning_rate", learning_rate), read("factor", factor), read("update", update)];
    let together = match launches {
        Tensors::All => trained.len().max(1),
        Tensors::Each => 1,
    };
    for some in trained.chunks(together) {
        let written =
            |one: &Trained| [0, 2, 3].map(|at: usize| write(one.reads[at].slot, one.reads[at].buffer));
        plan.steps.push(Step {
            op: AdamW { options: options.adamw, decays: some.iter().map(|one| one.decays).collect() }.into(),
            reads: some.iter().flat_map(|one| one.reads).chain(scalars).collect(),
            writes: some.iter().flat_map(written).collect(),
            phase: Phase::Update,
        });
    }
    plan
}

/// Adds the norm of the gradients, with what it decides: the buffers of `factor` and `update`. Where the loss is scaled,
/// what makes its gradient reads the scale.
fn norm(
    plan: &mut Plan,
    op: GradientNorm,
    gradients: Vec<Read>,
    [loss, step]: [BufferId; 2],
) -> (BufferId, BufferId) {
    let norm = plan.add("gradient_norm", vec![1], Dtype::Fp32, Role::Output);
    let factor = plan.add("gradient_norm.factor", vec![1], Dtype::Fp32, Role::Activation);
    let update = plan.add("gradient_norm.update", vec![1], Dtype::I32, Role::Activation);
    let n = n_partials(gradients.iter().map(|read| plan.buffer(read.buffer).len()));
    let partials = plan.add("gradient_norm.partials", vec![n], Dtype::Fp32, Role::Scratch);
    let mut state = vec![("halted", plan.add("halted", vec![1], Dtype::I32, Role::State))];
    if let Some(scaling) = op.scaling {
        let scale = plan.add("loss_scale", vec![1], Dtype::Fp32, Role::State);
        plan.buffers[scale.0].initial = scaling.initial;
        state.push(("loss_scale", scale));
        for counter in ["good_steps", "skipped_steps"] {
            state.push((counter, plan.add(counter, vec![1], Dtype::I32, Role::State)));
        }
        for step in plan.steps.iter_mut().filter(|step| matches!(step.op, Op::HeadLoss(_))) {
            step.reads.push(read("loss_scale", scale));
        }
    }
    let mut reads = gradients;
    reads.extend([read("loss", loss), read("step", step)]);
    reads.extend(state.iter().map(|(slot, id)| read(slot, *id)));
    let mut writes: Vec<Write> = vec![write("norm", norm), write("factor", factor), write("update", update)];
    writes.extend(state.iter().map(|(slot, id)| write(slot, *id)));
    writes.push(write("partials", partials));
    plan.steps.push(Step { op: op.into(), reads, writes, phase: Phase::Update });
    (factor, update)
}
