//! A tiny model trains on the emulator as it does on the host; where it does not, the first op that differs is named.

use crate::device::{Device, device, edited, options};
use crate::models::{batch, shape, weights};
use kernwright_plan::arch;
use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::case::Content;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId};
use kernwright_plan::lockstep::Lockstep;
use kernwright_plan::options::AttentionPath;
use kernwright_plan::plan::{Phase, Plan};
use kernwright_plan::shape::Shape;
use kernwright_plan::{Options, train_step};
use kernwright_runtime::Cpu;
use kernwright_runtime::driver::Layout;
use std::time::Instant;

const MODEL: &str = "model.vocab = 97\nmodel.context = 40\nmodel.d_model = 64\nmodel.layers = 2\nmodel.tied\n\
                     attention.heads = 4\nattention.kv_heads = 2\nattention.head_dim = 16\nattention.rope\n\
                     feed_forward.swiglu\nfeed_forward.d_ff = 168\n";
const BATCH: usize = 3;
const LENGTH: usize = 37;
const STEPS: usize = 3;

const PATHS: [AttentionPath; 2] = [AttentionPath::Split, AttentionPath::Fused];

pub(crate) fn narrow(attention: AttentionPath) -> Options {
    Options { precision: Some(Dtype::Bf16), attention, ..Options::default() }
}

pub(crate) fn plan(options: &Options) -> (Shape, Plan) {
    let shape = shape(MODEL);
    let plan = train_step(&shape, options, BATCH, LENGTH);
    (shape, plan)
}

pub(crate) fn write(
    executor: &mut dyn Executor,
    id: PlanId,
    content: Vec<(BufferId, Content)>,
) -> Result<(), ExecutorError> {
    content.into_iter().try_for_each(|(buffer, content)| executor.write(id, buffer, content.values()))
}

/// The losses of some steps of two micro-batches each.
fn train(executor: &mut dyn Executor, options: &Options, steps: usize) -> Result<Vec<f32>, ExecutorError> {
    let (shape, plan) = plan(options);
    let id = executor.load(plan.clone())?;
    write(executor, id, weights(&shape, &plan))?;
    executor.run_phase(id, Phase::Prepare, MicroStep::First)?;
    let mut losses = Vec::new();
    for _ in 0..steps {
        for (seed, micro) in [(1, MicroStep::First), (2, MicroStep::Later)] {
            write(executor, id, batch(&plan, shape.vocab, seed))?;
            executor.run_phase(id, Phase::Forward, micro)?;
            executor.run_phase(id, Phase::Backward, micro)?;
        }
        executor.run_phase(id, Phase::Update, MicroStep::First)?;
        let loss = plan.find("loss").map(|id| executor.read(PlanId(0), id)).transpose()?;
        losses.extend(loss.into_iter().flatten());
    }
    Ok(losses)
}

/// The first op of a training step that differs from its definition, in words.
fn first_difference(device: &mut Device, options: &Options) -> Result<Option<String>, ExecutorError> {
    let (shape, plan) = plan(options);
    let id = device.load(plan.clone())?;
    let mut lockstep = Lockstep::new(&plan)?;
    let mut content = weights(&shape, &plan);
    for (phase, micro, seed) in [
        (Phase::Prepare, MicroStep::First, 1),
        (Phase::Forward, MicroStep::First, 1),
        (Phase::Backward, MicroStep::First, 1),
        (Phase::Forward, MicroStep::Later, 2),
        (Phase::Backward, MicroStep::Later, 2),
        (Phase::Update, MicroStep::First, 2),
    ] {
        content.extend(batch(&plan, shape.vocab, seed));
        for (buffer, content) in content.drain(..) {
            lockstep.write(buffer, content.values())?;
        }
        let fault = lockstep.first_fault(device, id, plan.phase(phase), micro)?;
        if fault.is_some() {
            return Ok(fault);
        }
    }
    Ok(None)
}

#[test]
fn a_tiny_model_trains_on_the_emulator_as_on_the_host() {
    let Some(emulator) = options("training a tiny model") else { return };
    let mut cpu = Cpu::new(None).unwrap_or_else(|error| panic!("{error}"));
    let expected = train(&mut cpu, &Options::host(), STEPS).unwrap_or_else(|error| panic!("{error}"));
    for path in PATHS {
        let (options, arch) = (narrow(path), &arch::ALL[0]);
        let start = Instant::now();
        let mut device = device(&emulator, arch);
        let found = train(&mut device, &options, STEPS).unwrap_or_else(|error| panic!("{error:?}"));
        let (launches, seconds) = (device.driver().launches(), start.elapsed().as_secs_f64());
        eprintln!(
            "{path:?}: losses {found:?} on the emulator, {expected:?} on the host; {launches} launches in {seconds:.1} s"
        );
        let agrees = found.iter().zip(&expected).all(|(found, expected)| {
            (found - expected).abs() <= Dtype::Bf16.epsilon() as f32 * expected.abs()
        });
        if !agrees {
            let first = first_difference(&mut self::device(&emulator, arch), &options);
            panic!("{path:?}: losses differ; the first step that differs from its definition: {first:?}");
        }
        assert!(found.len() == STEPS && found[STEPS - 1] < found[0] - 0.05, "it does not learn: {found:?}");
    }
}

#[test]
fn the_first_op_that_differs_is_named() {
    let Some(options) = options("naming the first op that differs") else { return };
    // Right but for the constant of one op's kernels.
    let wrong = |text: String| {
        let (from, to) = ("constexpr float EPSILON = 1e-5f;", "constexpr float EPSILON = 1e-2f;");
        if text.contains("norm_forward") { text.replace(from, to) } else { text }
    };
    let mut device = edited(&options, &arch::ALL[0], Layout::Separate, wrong);
    let fault = first_difference(&mut device, &narrow(PATHS[0]));
    let fault = fault.unwrap_or_else(|error| panic!("{error:?}")).unwrap_or_default();
    assert!(fault.contains("`norm`, bf16 `y` (`layers.0."), "{fault}");
}

#[test]
fn buffers_of_their_own_and_one_arena_give_the_same_bits() {
    let Some(options) = options("comparing layouts") else { return };
    for path in PATHS {
        let mut kept: Vec<Vec<(String, Vec<u32>)>> = Vec::new();
        for layout in [Layout::Separate, Layout::Arena] {
            let mut device = edited(&options, &arch::ALL[0], layout, |text| text);
            train(&mut device, &narrow(path), 1).unwrap_or_else(|error| panic!("{error:?}"));
            let (_, plan) = plan(&narrow(path));
            let wanted = plan.buffers.iter().enumerate().filter(|(_, buffer)| buffer.role == Role::Parameter);
            let bits = wanted.map(|(index, buffer)| {
                let values =
                    device.read(PlanId(0), BufferId(index)).unwrap_or_else(|error| panic!("{error:?}"));
                (buffer.name.clone(), values.into_iter().map(f32::to_bits).collect())
            });
            kept.push(bits.collect());
        }
        assert!(kept[0].len() > 10 && kept[0] == kept[1], "{path:?}");
    }
}
