//! Whole training steps of small odd models.

use crate::comparison::{Three, compare};
use crate::setup::{LARGE, MODELS, n_counted, options, parameters, shape, tokens};
use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::executor::{Executor, MicroStep, Values};
use kernwright_plan::options::Options;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::plan::{Phase, Plan};
use kernwright_plan::{forward_step, train_step};
use kernwright_runtime::Cpu;

const LENGTH: usize = 67;

fn persistent(plan: &Plan) -> impl Iterator<Item = (BufferId, &str)> {
    let wanted = [Role::Gradient, Role::Moment, Role::Parameter, Role::Output];
    let buffers = plan
        .buffers
        .iter()
        .enumerate()
        .filter(move |(_, buffer)| buffer.view.is_none() && wanted.contains(&buffer.role));
    buffers.map(|(index, buffer)| (BufferId(index), buffer.name.as_str()))
}

/// Two micro-batches and an update; `each` runs a range of steps.
fn train(
    three: &mut Three,
    fields: &str,
    mut each: impl FnMut(&mut Three, std::ops::Range<usize>, MicroStep),
) {
    let shape = shape(fields);
    let plan = three.truth.plan(three.id).clone();
    for (buffer, content) in parameters(&shape, &plan, n_counted(4, LENGTH)) {
        three.write(buffer, content.values());
    }
    for (micro, first) in [(MicroStep::First, 0), (MicroStep::Later, 2)] {
        for (buffer, content) in tokens(&plan, shape.vocab, LENGTH, first) {
            three.write(buffer, content.values());
        }
        each(three, plan.phase(Phase::Forward), micro);
        each(three, plan.phase(Phase::Backward), micro);
    }
    each(three, plan.phase(Phase::Update), MicroStep::First);
}

#[test]
fn every_step_of_a_training_step_matches_the_reference() {
    for (name, fields) in MODELS {
        for without in [vec![], vec!["residual_in_linear".to_owned()]] {
            let plan = train_step(&shape(fields), &Options { without, ..options() }, 2, LENGTH);
            let mut three = Three::new(&plan, 2);
            let mut worst = 0.0_f64;
            train(&mut three, fields, |three, steps, micro| {
                worst = three.lockstep(name, steps, micro).into_values().fold(worst, f64::max);
            });
            println!("{name}: at most {worst:.2} of the tolerance");
        }
    }
}

/// Enough rows, columns and elements for every cut into blocks to have several and a rest.
#[test]
fn a_model_of_several_blocks_matches_the_reference() {
    let (fields, batch, length) = LARGE;
    let (shape, options) = (shape(fields), Options { head_chunk: Some(300), ..options() });
    let asked = forward_step(&shape, &options, batch, length, Head::Logits(3));
    for plan in [train_step(&shape, &options, batch, length), asked] {
        let mut three = Three::new(&plan, 3);
        let content = parameters(&shape, &plan, n_counted(batch, length));
        for (buffer, content) in content.into_iter().chain(tokens(&plan, shape.vocab, length, 0)) {
            three.write(buffer, content.values());
        }
        if let Some(positions) = plan.find("positions") {
            three.write(positions, Values::Int(&[650, 0, 301]));
        }
        let shares = three.lockstep("several blocks", 0..plan.steps.len(), MicroStep::First);
        let worst = shares.into_values().fold(0.0, f64::max);
        println!("several blocks: at most {worst:.2} of the tolerance");
    }
}

#[test]
fn a_whole_training_step_matches_the_reference() {
    for (name, fields) in MODELS {
        let plan = train_step(&shape(fields), &options(), 2, LENGTH);
        let mut three = Three::new(&plan, 2);
        train(&mut three, fields, Three::run_on);
        let shares = persistent(&plan).map(|(id, buffer)| three.compare(&format!("{name}: `{buffer}`"), id));
        println!("{name}: at most {:.2} of the tolerance", shares.fold(0.0, f64::max));
    }
}

/// Content of all persistent buffers after one step of `batch` sequences in `micro` micro-batches.
fn after_step(
    fields: &str,
    options: &Options,
    batch: usize,
    micro: usize,
    executor: &mut dyn Executor,
) -> Vec<(String, Vec<f32>)> {
    let shape = shape(fields);
    let id = executor.load(train_step(&shape, options, batch / micro, LENGTH)).unwrap();
    let plan = executor.plan(id).clone();
    for (buffer, content) in parameters(&shape, &plan, n_counted(batch, LENGTH)) {
        executor.write(id, buffer, content.values()).unwrap();
    }
    for index in 0..micro {
        for (buffer, content) in tokens(&plan, shape.vocab, LENGTH, index * batch / micro) {
            executor.write(id, buffer, content.values()).unwrap();
        }
        let micro = if index == 0 { MicroStep::First } else { MicroStep::Later };
        executor.run_phase(id, Phase::Forward, micro).unwrap();
        executor.run_phase(id, Phase::Backward, micro).unwrap();
    }
    executor.run_phase(id, Phase::Update, MicroStep::First).unwrap();
    persistent(&plan).map(|(buffer, name)| (name.to_owned(), executor.read(id, buffer).unwrap())).collect()
}

/// After one step in micro-batches and one in a single batch, against the truth of the latter.
#[test]
fn two_micro_batches_equal_one_batch() {
    use kernwright_plan::reference::{Reference, Rounding};
    for (name, fields) in MODELS {
        let run = |micro, executor: &mut dyn Executor| after_step(fields, &options(), 4, micro, executor);
        let truth = run(1, &mut Reference::<f64>::new(Rounding::None));
        let single = run(2, &mut Reference::<f32>::new(Rounding::None));
        let found = run(2, &mut Cpu::new(Some(2)).unwrap());
        for ((buffer, truth), ((_, single), (_, found))) in truth.iter().zip(single.iter().zip(&found)) {
            let [truth, single, found] =
                [truth, single, found].map(|v| v.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>());
            compare(&format!("{name}: `{buffer}`"), &truth, &single, &found);
        }
    }
}

#[test]
fn fusing_the_residual_changes_next_to_nothing() {
    for (name, fields) in MODELS {
        let plain = Options { without: vec!["residual_in_linear".to_owned()], ..options() };
        let loss = |options: &Options| {
            let all = after_step(fields, options, 2, 1, &mut Cpu::new(Some(2)).unwrap());
            all.into_iter().find(|(name, _)| name == "loss").map_or(f32::NAN, |(_, loss)| loss[0])
        };
        let (fused, plain) = (loss(&options()), loss(&plain));
        assert!((fused - plain).abs() <= 4.0 * f32::EPSILON * plain.abs(), "{name}: {fused} and {plain}");
    }
}
