//! What the executor refuses, and in which words.

use crate::setup::{MODELS, options, parameters, shape, tokens};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId, Values};
use kernwright_plan::options::Options;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::plan::Phase;
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_plan::{forward_step, train_step};
use kernwright_runtime::Cpu;

const LENGTH: usize = 6;

fn loaded(executor: &mut dyn Executor) -> PlanId {
    let shape = shape(MODELS[0].1);
    let id = executor.load(train_step(&shape, &options(), 2, LENGTH)).unwrap();
    let plan = executor.plan(id).clone();
    let content = parameters(&shape, &plan, 10).into_iter().chain(tokens(&plan, shape.vocab, LENGTH, 0));
    for (buffer, content) in content {
        executor.write(id, buffer, content.values()).unwrap();
    }
    id
}

fn wrong_data(executor: &mut dyn Executor, name: &str, values: &[i32]) -> String {
    let id = loaded(executor);
    let buffer = executor.plan(id).find(name).unwrap();
    executor.write(id, buffer, Values::Int(values)).unwrap();
    executor
        .run_phase(id, Phase::Forward, MicroStep::First)
        .and_then(|()| executor.run_phase(id, Phase::Backward, MicroStep::First))
        .unwrap_err()
        .to_string()
}

#[test]
fn data_out_of_range_is_refused_in_the_words_of_the_reference() {
    let mut tokens = [1; 2 * LENGTH];
    tokens[5] = 37;
    let mut negative = tokens;
    negative[5] = -1;
    for (name, values) in
        [("tokens", tokens), ("targets", tokens), ("targets", negative), ("token_order", tokens)]
    {
        let found = wrong_data(&mut Cpu::new(Some(2)).unwrap(), name, &values);
        let expected = wrong_data(&mut Reference::<f32>::new(Rounding::None), name, &values);
        assert_eq!(found, expected, "{name}");
        assert!(found.contains("must be from 0 to"), "{found}");
    }
}

#[test]
fn a_failed_step_leaves_the_executor_usable() {
    let mut cpu = Cpu::new(Some(2)).unwrap();
    let error = wrong_data(&mut cpu, "tokens", &[99; 2 * LENGTH]);
    assert!(error.contains("found `99`"), "{error}");
    let id = loaded(&mut cpu);
    for phase in Phase::ALL {
        cpu.run_phase(id, phase, MicroStep::First).unwrap();
    }
    let loss = cpu.plan(id).find("loss").unwrap();
    assert!(cpu.read(id, loss).unwrap()[0].is_finite());
}

#[test]
fn wrong_lengths_and_kinds_are_refused() {
    let mut cpu = Cpu::new(Some(1)).unwrap();
    let id = loaded(&mut cpu);
    let tokens = cpu.plan(id).find("tokens").unwrap();
    let error = cpu.write(id, tokens, Values::Int(&[1, 2])).unwrap_err().to_string();
    assert_eq!(error, "buffer `tokens` holds 12 elements of i32, found 2 whole numbers");
    let error = cpu.write(id, tokens, Values::Float(&[0.0; 12])).unwrap_err().to_string();
    assert_eq!(error, "buffer `tokens` holds 12 elements of i32, found 12 floats");
    let n = cpu.plan(id).steps.len();
    let error = cpu.run(id, n..n + 1, MicroStep::First).unwrap_err();
    assert!(matches!(error, ExecutorError::Plan(_)), "{error}");
}

#[test]
fn a_narrow_plan_is_refused() {
    let narrow = Options { precision: Some(Dtype::Bf16), ..options() };
    let plan = train_step(&shape(MODELS[0].1), &narrow, 2, LENGTH);
    let error = Cpu::new(Some(1)).unwrap().load(plan).unwrap_err().to_string();
    assert!(error.contains("is bf16; make the plan with precision `fp32`"), "{error}");
}

#[test]
fn plans_share_weights_and_disagreements_are_refused() {
    let mut cpu = Cpu::new(Some(2)).unwrap();
    let id = loaded(&mut cpu);
    cpu.run_phase(id, Phase::Forward, MicroStep::First).unwrap();
    let loss_of = |cpu: &Cpu, id| cpu.read(id, cpu.plan(id).find("loss").unwrap()).unwrap();
    let loss = loss_of(&cpu, id);
    // An evaluation plan finds the weights there; the batch it must be given.
    let model = shape(MODELS[0].1);
    let evaluation = cpu.load(forward_step(&model, &options(), 2, LENGTH, Head::Loss)).unwrap();
    for name in ["tokens", "token_order", "targets", "inverse_count"] {
        let find = |id| cpu.plan(id).find(name).unwrap();
        let (from, to) = (find(id), find(evaluation));
        let values = cpu.read(id, from).unwrap();
        let whole: Vec<i32> = values.iter().map(|value| *value as i32).collect();
        let is_integer = cpu.plan(id).buffer(from).dtype.is_integer();
        let values = if is_integer { Values::Int(&whole) } else { Values::Float(&values) };
        cpu.write(evaluation, to, values).unwrap();
    }
    cpu.run_phase(evaluation, Phase::Forward, MicroStep::First).unwrap();
    assert_eq!(loss_of(&cpu, evaluation), loss);
    // Another batch size has inputs of its own.
    let generation = cpu.load(forward_step(&model, &options(), 1, 3, Head::Logits(1))).unwrap();
    let plan = cpu.plan(generation).clone();
    for (name, values) in [("tokens", vec![1, 2, 3]), ("positions", vec![2])] {
        cpu.write(generation, plan.find(name).unwrap(), Values::Int(&values)).unwrap();
    }
    cpu.run_phase(generation, Phase::Forward, MicroStep::First).unwrap();
    let logits = cpu.read(generation, plan.find("asked_logits").unwrap()).unwrap();
    assert!(logits.len() == 37 && logits.iter().all(|logit| logit.is_finite()));
    cpu.run_phase(id, Phase::Forward, MicroStep::First).unwrap();
    assert_eq!(loss_of(&cpu, id), loss);
    // Another model is not.
    let other = train_step(&shape(MODELS[1].1), &options(), 2, LENGTH);
    let error = cpu.load(other).unwrap_err();
    assert!(matches!(&error, ExecutorError::Mismatch { .. }), "{error}");
}
