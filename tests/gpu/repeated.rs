//! Many steps in a row: the same bits every time, and no memory taken after the first.

use crate::device::{Device, device, options};
use crate::models::batch;
use crate::training::{PATHS, narrow, tiny};
use kernwright_plan::Options;
use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep};
use kernwright_plan::plan::Phase;

const STEPS: u64 = 100;

/// What many steps leave: the bits of each loss and of every weight and moment.
#[derive(PartialEq)]
struct Left {
    losses: Vec<u32>,
    weights: Vec<(String, Vec<u32>)>,
}

/// Runs them as training does: forward and backward together, losses fetched and taken a step later.
fn run(device: &mut Device, options: &Options) -> Result<Left, ExecutorError> {
    let model = tiny();
    let (shape, plan) = (&model.shape, model.plan(options));
    let id = device.load(plan.clone())?;
    let loss = plan.find("loss").expect("a training step has a loss");
    for (buffer, content) in (model.weights)(shape, &plan) {
        device.write(id, buffer, content.values())?;
    }
    device.run_phase(id, Phase::Prepare, MicroStep::First)?;
    let both = plan.phase(Phase::Forward).start..plan.phase(Phase::Backward).end;
    let (mut losses, mut under_way, mut taken) = (Vec::new(), None, 0);
    for step in 0..STEPS {
        for (seed, micro) in [(2 * step, MicroStep::First), (2 * step + 1, MicroStep::Later)] {
            for (buffer, content) in batch(&plan, shape.vocab, seed) {
                device.write(id, buffer, content.values())?;
            }
            device.run(id, both.clone(), micro)?;
        }
        device.run_phase(id, Phase::Update, MicroStep::First)?;
        if let Some(fetch) = under_way.replace(device.fetch(id, loss)?) {
            losses.extend(device.take(fetch)?);
        }
        match step {
            0 => taken = device.driver().n_allocations(),
            _ => assert_eq!(device.driver().n_allocations(), taken, "step {step} took memory"),
        }
    }
    if let Some(fetch) = under_way {
        losses.extend(device.take(fetch)?);
    }
    let mut kept = Vec::new();
    for (index, buffer) in plan.buffers.iter().enumerate() {
        if matches!(buffer.role, Role::Parameter | Role::Moment) {
            let values = device.read(id, BufferId(index))?;
            kept.push((buffer.name.clone(), values.into_iter().map(f32::to_bits).collect()));
        }
    }
    Ok(Left { losses: losses.into_iter().map(f32::to_bits).collect(), weights: kept })
}

#[test]
fn a_hundred_steps_give_the_same_bits_twice_and_take_no_memory_after_the_first() {
    let Some(available) = options("repeating a hundred steps") else { return };
    for path in PATHS {
        // As a resumed run does it: with the algorithms of the first, which other tests may choose anew meanwhile.
        let mut choices: Option<String> = None;
        let twice = [0, 1].map(|_| {
            let mut device = device(&available, available.arch);
            if let Some(choices) = &choices {
                device.adopt(choices).unwrap_or_else(|error| panic!("{path:?}: {error:?}"));
            }
            let left = run(&mut device, &narrow(path)).unwrap_or_else(|error| panic!("{path:?}: {error:?}"));
            choices = device.choices();
            left
        });
        assert!(choices.is_some(), "a step has products");
        let losses: Vec<f32> = twice[0].losses.iter().map(|bits| f32::from_bits(*bits)).collect();
        assert!(losses.len() == STEPS as usize && losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
        eprintln!("{path:?}: losses {:?} to {:?}", losses.first(), losses.last());
        let differs = twice[0].losses.iter().zip(&twice[1].losses).position(|(one, other)| one != other);
        assert_eq!(differs, None, "{path:?}: the first step whose loss differs");
        for ((name, one), (_, other)) in twice[0].weights.iter().zip(&twice[1].weights) {
            assert!(one == other, "{path:?}: `{name}` differs");
        }
        assert!(twice[0] == twice[1]);
    }
}
