//! Passes left out and forms asked for: the same step, to the bit or to what rounding elsewhere changes; and what an
//! earlier step left in the gradients does not matter.

use crate::device::{device, options};
use crate::models::{MODELS, batch, shape, weights};
use kernwright_plan::arch;
use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, Values};
use kernwright_plan::passes::{ABLATIONS, SWITCHES};
use kernwright_plan::plan::Phase;
use kernwright_plan::{Options, train_step};
use kernwright_runtime::Cpu;

/// What changes no bit.
const EXACT: [&str; 3] = ["narrow_gradient", "first_write_overwrites", "residual_copy"];

/// The content of buffers, by name.
type Content = Vec<(String, Vec<f32>)>;

/// What a step of two micro-batches leaves in weights, gradients, moments and outputs. Before, each gradient holds `stale`.
fn after_step(
    fields: &str,
    options: &Options,
    stale: f32,
    executor: &mut dyn Executor,
) -> Result<Content, ExecutorError> {
    let shape = shape(fields);
    let plan = train_step(&shape, options, 2, 37);
    let id = executor.load(plan.clone())?;
    for (buffer, content) in weights(&shape, &plan) {
        executor.write(id, buffer, content.values())?;
    }
    let of_role = |roles: &'static [Role]| {
        let buffers = plan.buffers.iter().enumerate();
        buffers.filter(move |(_, of)| of.view.is_none() && roles.contains(&of.role) && !of.is_empty())
    };
    for (index, buffer) in of_role(&[Role::Gradient]) {
        executor.write(id, BufferId(index), Values::Float(&vec![stale; buffer.len()]))?;
    }
    executor.run_phase(id, Phase::Prepare, MicroStep::First)?;
    for (seed, micro) in [(1, MicroStep::First), (2, MicroStep::Later)] {
        for (buffer, content) in batch(&plan, shape.vocab, seed) {
            executor.write(id, buffer, content.values())?;
        }
        executor.run_phase(id, Phase::Forward, micro)?;
        executor.run_phase(id, Phase::Backward, micro)?;
    }
    executor.run_phase(id, Phase::Update, MicroStep::First)?;
    let kept = of_role(&[Role::Parameter, Role::Gradient, Role::Moment, Role::Output]);
    kept.map(|(index, buffer)| Ok((buffer.name.clone(), executor.read(id, BufferId(index))?))).collect()
}

/// Root mean squares of the difference of gradients as a whole, over that of what is expected.
fn distance(found: &Content, expected: &Content) -> f64 {
    let gradients = |content: &Content| -> Vec<f32> {
        let of = content.iter().filter(|(name, _)| name.starts_with("d_"));
        of.flat_map(|(_, values)| values.clone()).collect()
    };
    let (found, expected) = (gradients(found), gradients(expected));
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(&expected).map(|(a, b)| f64::from(a - b)));
    difference / norm(&mut expected.iter().map(|b| f64::from(*b)))
}

#[test]
fn a_step_is_the_same_whatever_is_left_out_or_asked_for() {
    let Some(emulator) = options("comparing passes") else { return };
    for (name, fields) in MODELS {
        let plain = Options { precision: Some(Dtype::Bf16), head_chunk: Some(50), ..Options::default() };
        let run = |options: &Options| {
            let found = after_step(fields, options, 0.0, &mut device(&emulator, &arch::ALL[0]));
            found.unwrap_or_else(|error| panic!("{name}: {error:?}"))
        };
        let expected = run(&plain);
        let left_out = SWITCHES
            .iter()
            .map(|(switch, _)| (*switch, Options { without: vec![(*switch).to_owned()], ..plain.clone() }));
        let asked = ABLATIONS
            .iter()
            .map(|(form, _)| (*form, Options { with: vec![(*form).to_owned()], ..plain.clone() }));
        for (switch, options) in left_out.chain(asked) {
            let found = run(&options);
            let epsilons = distance(&found, &expected) / Dtype::Bf16.epsilon();
            eprintln!("{name}, `{switch}`: gradients {epsilons:.3} epsilons of bf16 apart");
            if EXACT.contains(&switch) {
                for ((buffer, found), (_, expected)) in found.iter().zip(&expected) {
                    assert!(found == expected, "{name}, `{switch}`: `{buffer}` differs");
                }
            }
            // Each is within four of what is exact.
            assert!(epsilons <= 8.0, "{name}, `{switch}`: {epsilons} epsilons");
        }
    }
}

#[test]
fn what_an_earlier_step_left_in_the_gradients_does_not_matter() {
    let Some(emulator) = options("stale gradients") else { return };
    for (name, fields) in MODELS {
        for without in [Vec::new(), vec!["first_write_overwrites".to_owned()]] {
            for on_host in [true, false] {
                let base = if on_host { Options::host() } else { Options::default() };
                let options = Options { without: without.clone(), head_chunk: Some(50), ..base };
                let run = |stale: f32| {
                    let mut device = device(&emulator, &arch::ALL[0]);
                    let mut cpu = Cpu::new(None).unwrap_or_else(|error| panic!("{error}"));
                    let executor: &mut dyn Executor = if on_host { &mut cpu } else { &mut device };
                    after_step(fields, &options, stale, executor)
                        .unwrap_or_else(|error| panic!("{name}: {error:?}"))
                };
                let (clean, stale) = (run(0.0), run(1e30));
                assert!(clean == stale, "{name}, without {without:?}");
                // Rows that no token of the step took a gradient to.
                let of_table = |(buffer, _): &&(String, Vec<f32>)| buffer == "d_positions.weight";
                for (_, values) in stale.iter().filter(of_table) {
                    let (used, unused) = values.split_at(values.len() / 75 * 37);
                    assert!(used.iter().any(|value| *value != 0.0), "{name}");
                    assert!(unused.iter().all(|value| *value == 0.0), "{name}");
                }
            }
        }
    }
}
