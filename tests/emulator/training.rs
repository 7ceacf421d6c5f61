//! A tiny model trains on the device as it does on the host; where it does not, the first op that differs is named.

use crate::device::{Device, device, edited, options};
use crate::devices::{NAME, archs};
use crate::models::{batch, shape, weights};
use kernwright_plan::buffer::BufferId;
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
const STEPS: usize = 3;

pub(crate) const PATHS: [AttentionPath; 2] = [AttentionPath::Split, AttentionPath::Fused];

/// Values that a plan's buffers begin with.
type Weights = fn(&Shape, &Plan) -> Vec<(BufferId, Content)>;

/// What is trained a little.
pub(crate) struct Model {
    pub(crate) shape: Shape,
    pub(crate) batch: usize,
    pub(crate) length: usize,
    pub(crate) weights: Weights,
}

/// A tiny one, as after some steps.
pub(crate) fn tiny() -> Model {
    Model { shape: shape(MODEL), batch: 3, length: 37, weights }
}

pub(crate) fn narrow(attention: AttentionPath) -> Options {
    Options { precision: Some(Dtype::Bf16), attention, ..Options::default() }
}

impl Model {
    pub(crate) fn plan(&self, options: &Options) -> Plan {
        train_step(&self.shape, options, self.batch, self.length)
    }

    /// The losses of some steps of two micro-batches each.
    pub(crate) fn train(
        &self,
        executor: &mut dyn Executor,
        options: &Options,
        steps: usize,
    ) -> Result<Vec<f32>, ExecutorError> {
        let plan = self.plan(options);
        let id = executor.load(plan.clone())?;
        write(executor, id, (self.weights)(&self.shape, &plan))?;
        executor.run_phase(id, Phase::Prepare, MicroStep::First)?;
        let mut losses = Vec::new();
        for _ in 0..steps {
            for (seed, micro) in [(1, MicroStep::First), (2, MicroStep::Later)] {
                write(executor, id, batch(&plan, self.shape.vocab, seed))?;
                executor.run_phase(id, Phase::Forward, micro)?;
                executor.run_phase(id, Phase::Backward, micro)?;
            }
            executor.run_phase(id, Phase::Update, MicroStep::First)?;
            let loss = plan.find("loss").map(|loss| executor.read(id, loss)).transpose()?;
            losses.extend(loss.into_iter().flatten());
        }
        Ok(losses)
    }

    /// The first op of a training step that differs from its definition, in words.
    pub(crate) fn first_difference(
        &self,
        device: &mut Device,
        options: &Options,
    ) -> Result<Option<String>, ExecutorError> {
        let plan = self.plan(options);
        let id = device.load(plan.clone())?;
        let mut lockstep = Lockstep::new(&plan)?;
        let mut content = (self.weights)(&self.shape, &plan);
        for (phase, micro, seed) in [
            (Phase::Prepare, MicroStep::First, 1),
            (Phase::Forward, MicroStep::First, 1),
            (Phase::Backward, MicroStep::First, 1),
            (Phase::Forward, MicroStep::Later, 2),
            (Phase::Backward, MicroStep::Later, 2),
            (Phase::Update, MicroStep::First, 2),
        ] {
            content.extend(batch(&plan, self.shape.vocab, seed));
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
}

/// Are these the same but for what narrow operands cost?
pub(crate) fn agree(found: &[f32], expected: &[f32]) -> bool {
    let close = |(found, expected): (&f32, &f32)| {
        (found - expected).abs() <= Dtype::Bf16.epsilon() as f32 * expected.abs()
    };
    found.len() == expected.len() && found.iter().zip(expected).all(close)
}

pub(crate) fn write(
    executor: &mut dyn Executor,
    id: PlanId,
    content: Vec<(BufferId, Content)>,
) -> Result<(), ExecutorError> {
    content.into_iter().try_for_each(|(buffer, content)| executor.write(id, buffer, content.values()))
}

#[test]
fn a_tiny_model_trains_as_on_the_host() {
    let Some(available) = options("training a tiny model") else { return };
    let mut cpu = Cpu::new(None).unwrap_or_else(|error| panic!("{error}"));
    let model = tiny();
    let expected = model.train(&mut cpu, &Options::host(), STEPS).unwrap_or_else(|error| panic!("{error}"));
    for path in PATHS {
        let (options, arch) = (narrow(path), archs(&available)[0]);
        let start = Instant::now();
        let mut device = device(&available, arch);
        let found = model.train(&mut device, &options, STEPS).unwrap_or_else(|error| panic!("{error:?}"));
        let seconds = start.elapsed().as_secs_f64();
        eprintln!("{path:?}: losses {found:?} on {NAME}, {expected:?} on the host; {seconds:.1} s");
        if !agree(&found, &expected) {
            let first = model.first_difference(&mut self::device(&available, arch), &options);
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
    let mut device = edited(&options, archs(&options)[0], Layout::Separate, wrong);
    let fault = tiny().first_difference(&mut device, &narrow(PATHS[0]));
    let fault = fault.unwrap_or_else(|error| panic!("{error:?}")).unwrap_or_default();
    assert!(fault.contains("`norm`, bf16 `y` (`layers.0."), "{fault}");
}
