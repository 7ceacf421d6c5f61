//! Which buffers are narrow, and how far a narrow plan is from the exact one.

use crate::{distance, loss_and_gradients, options, small};
use kernwright_plan::buffer::Role;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::ops::Op;
use kernwright_plan::plan::Phase;
use kernwright_plan::reference::Rounding;
use kernwright_plan::shape::Shape;
use kernwright_plan::shape::presets;
use kernwright_plan::train_step;
use std::collections::BTreeSet;

#[test]
fn a_narrow_residual_stream_is_narrow_throughout() {
    let shapes = presets::ALL.iter().map(|preset| (preset.name, preset.shape())).chain(small::shapes());
    for (name, shape) in shapes {
        let shape = Shape { residual: Dtype::Bf16, ..shape };
        let plan = train_step(&shape, &options(Dtype::Bf16), 2, 7);
        let stream = |name: &str| name.ends_with(".residual") || name.trim_start_matches("d_") == "embedding";
        let mut n_stream = 0;
        for buffer in plan.buffers.iter().filter(|buffer| stream(&buffer.name)) {
            assert_eq!(buffer.dtype, Dtype::Bf16, "{name}: `{}`", buffer.name);
            n_stream += 1;
        }
        assert!(n_stream > 2 * shape.layers, "{name}");
        for parameter in shape.parameters() {
            for buffer in [parameter.name.clone(), format!("d_{}", parameter.name)] {
                let found = plan.find(&buffer).map(|id| plan.buffer(id).dtype);
                assert_eq!(found, Some(Dtype::Fp32), "{name}: `{buffer}`");
            }
        }
        let casts = plan.steps.iter().filter(|step| step.op.name() == "cast" && step.phase != Phase::Prepare);
        for step in casts {
            let source = &plan.buffer(step.reads[0].buffer).name;
            assert!(!stream(source), "{name}: `{source}` needs no narrow copy");
        }
    }
}

#[test]
fn operands_are_narrow_sums_are_not_and_working_copies_follow_the_weights() {
    let shapes = presets::ALL.iter().map(|preset| (preset.name, preset.shape())).chain(small::shapes());
    for (name, shape) in shapes {
        let plan = train_step(&shape, &options(Dtype::Bf16), 2, 7);
        let writes = |phase: Phase, id| {
            plan.steps[plan.phase(phase)]
                .iter()
                .any(|step| step.writes.iter().any(|write| write.buffer == id))
        };
        let mut n_copies = 0;
        for parameter in shape.parameters().iter().filter(|parameter| parameter.decays()) {
            // The embedding is read in fp32, but as a tied head it is an operand; learned positions never are.
            let is_operand = !parameter.name.starts_with("positions")
                && (shape.tied || !parameter.name.starts_with("embedding"));
            let copy = plan.find(&format!("{}.bf16", parameter.name));
            assert_eq!(copy.is_some(), is_operand, "{name}: `{}`", parameter.name);
            let Some(copy) = copy else { continue };
            assert_eq!((plan.buffer(copy).role, plan.buffer(copy).dtype), (Role::Working, Dtype::Bf16));
            assert!(
                writes(Phase::Prepare, copy) && writes(Phase::Update, copy),
                "{name}: `{}`",
                parameter.name
            );
            n_copies += 1;
        }
        // A product adds a bias of its result's type.
        let mut biases = BTreeSet::new();
        for step in plan.steps.iter().filter(|step| matches!(step.op, Op::Linear(_) | Op::HeadLoss(_))) {
            let result = if matches!(step.op, Op::Linear(_)) { "y" } else { "logits" };
            let (bias, y) = (plan.io(step).id("bias"), plan.io(step).id(result));
            let (Some(bias), Some(y)) = (bias, y) else { continue };
            assert_eq!(plan.buffer(bias).dtype, plan.buffer(y).dtype, "{name}: `{}`", plan.buffer(bias).name);
            if plan.buffer(bias).role == Role::Working {
                assert!(writes(Phase::Prepare, bias) && writes(Phase::Update, bias), "{name}");
                biases.insert(bias.0);
            }
        }
        let n_working = plan.buffers.iter().filter(|buffer| buffer.role == Role::Working).count();
        assert_eq!(
            n_working,
            n_copies + biases.len(),
            "{name}: matrices and such biases have a working copy"
        );
        for buffer in plan.buffers.iter().filter(|buffer| !buffer.dtype.is_integer()) {
            let lasts = !matches!(buffer.role, Role::Working | Role::Activation | Role::Scratch);
            let is_sum = buffer.name.ends_with(".residual") || buffer.name.ends_with("embedding");
            let wide = lasts || is_sum || buffer.name.ends_with(".rstd") || buffer.name.ends_with(".lse");
            assert!(!wide || buffer.dtype == Dtype::Fp32, "{name}: `{}` is narrow", buffer.name);
        }
        for step in &plan.steps {
            for read in step.reads.iter().filter(|read| step.op.narrow_slots().contains(&read.slot)) {
                let buffer = plan.buffer(read.buffer);
                assert_eq!(buffer.dtype, Dtype::Bf16, "{name}: {} reads `{}`", step.op.name(), buffer.name);
            }
        }
    }
}

/// One rounding to bf16 is off by at most half an epsilon of it. Behind a layer's two dozen of them the gradient as a
/// whole stays within four epsilons in the root mean square (found: 2.4), one tensor alone, whose few sums may cancel,
/// within eight (found: 3.8). Which buffers are narrow is checked by name above.
#[test]
fn a_bf16_plan_stays_near_the_exact_one() {
    for (name, shape) in small::shapes() {
        let exact = loss_and_gradients(name, &shape, &options(Dtype::Fp32), Rounding::None);
        let rounding = Rounding::Follow(Dtype::Bf16);
        let rounded = loss_and_gradients(name, &shape, &options(Dtype::Bf16), rounding);
        let epsilons = |found: &[f64], expected: &[f64]| {
            let (error, size) = distance(found, expected);
            assert!(error > 0.0, "{name}: nothing is rounded");
            error / size / Dtype::Bf16.epsilon()
        };
        let mut worst = (0.0, "");
        for ((buffer, expected), (_, found)) in exact.iter().zip(&rounded) {
            let error = epsilons(found, expected);
            worst = if error > worst.0 { (error, buffer.as_str()) } else { worst };
        }
        // The loss comes first.
        let all = |tensors: &[(String, Vec<f64>)]| {
            tensors[1..].iter().flat_map(|(_, t)| t.clone()).collect::<Vec<_>>()
        };
        let whole = epsilons(&all(&rounded), &all(&exact));
        let (loss, exact_loss) = (rounded[0].1[0], exact[0].1[0]);
        eprintln!(
            "{name}: off by {whole:.2} epsilons of bf16, `{}` by {:.2}; loss {loss:.5}, exactly {exact_loss:.5}",
            worst.1, worst.0
        );
        assert!(whole <= 4.0, "{name}: the gradient is off by {whole:.2} epsilons");
        assert!(worst.0 <= 8.0, "{name}: `{}` is off by {:.2} epsilons", worst.1, worst.0);
        assert!(epsilons(&rounded[0].1, &exact[0].1) <= 1.0, "{name}: loss {loss}, exactly {exact_loss}");
    }
}

#[test]
fn what_has_not_changed_is_copied_once() {
    let shapes = presets::ALL.iter().map(|preset| (preset.name, preset.shape())).chain(small::shapes());
    for (name, shape) in shapes {
        let plan = train_step(&shape, &options(Dtype::Bf16), 2, 7);
        let (mut copied, mut n_copies) = (Vec::new(), 0);
        for step in &plan.steps {
            if step.op.name() == "cast" {
                let source = step.reads[0].buffer;
                assert!(!copied.contains(&source), "{name}: two copies of `{}`", plan.buffer(source).name);
                copied.push(source);
                n_copies += 1;
            }
            copied.retain(|source| step.writes.iter().all(|write| plan.base(write.buffer).0 != *source));
        }
        assert!(n_copies > 0, "{name}");
    }
}
