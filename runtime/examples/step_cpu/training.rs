//! A model in training on random tokens, with nothing around it.

use kernwright_plan::buffer::BufferId;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId, Values};
use kernwright_plan::options::Options;
use kernwright_plan::plan::Phase;
use kernwright_plan::shape::{Initial, Shape};
use kernwright_plan::train_step;
use kernwright_runtime::{Cpu, Profile};
use std::time::Duration;

/// See [`Profile::run_phase`].
pub(crate) type Clock = fn() -> Duration;

/// The executor with a loaded plan, and what is written before each step.
pub(crate) struct Training {
    pub(crate) cpu: Cpu,
    pub(crate) id: PlanId,
    vocab: usize,
    /// tokens, token_order, targets, step, loss.
    buffers: [BufferId; 5],
    done: i32,
    state: u64,
}

/// Tokens, their positions sorted by token, and targets.
pub(crate) struct Batch([Vec<i32>; 3]);

fn missing(name: &str) -> ExecutorError {
    ExecutorError::Plan(format!("it has no buffer `{name}`"))
}

impl Training {
    pub(crate) fn new(
        shape: &Shape,
        batch: usize,
        length: usize,
        threads: usize,
    ) -> Result<Self, ExecutorError> {
        let options = Options::host();
        let mut cpu = Cpu::new(Some(threads))?;
        let id = cpu.load(train_step(shape, &options, batch, length))?;
        let find = |cpu: &Cpu, name: &str| cpu.plan(id).find(name).ok_or_else(|| missing(name));
        let mut training = Self {
            vocab: shape.vocab,
            buffers: ["tokens", "token_order", "targets", "step", "loss"]
                .map(|name| find(&cpu, name))
                .into_iter()
                .collect::<Result<Vec<_>, _>>()?
                .try_into()
                .map_err(|_| missing("loss"))?,
            cpu,
            id,
            done: 0,
            state: 1,
        };
        for parameter in shape.parameters() {
            let n: usize = parameter.shape.iter().product();
            let mut uniform = || training.below(1 << 20) as f32 / (1 << 19) as f32 - 1.0;
            let values: Vec<f32> = match parameter.initial {
                Initial::Normal(deviation) => (0..n).map(|_| 1.7 * deviation as f32 * uniform()).collect(),
                Initial::Ones => vec![1.0; n],
                Initial::Zeros => vec![0.0; n],
            };
            let buffer = find(&training.cpu, &parameter.name)?;
            training.cpu.write(id, buffer, Values::Float(&parameter.pad(&values)))?;
        }
        for (name, value) in [("inverse_count", 1.0 / (batch * length) as f32), ("learning_rate", 1e-3)] {
            let buffer = find(&training.cpu, name)?;
            training.cpu.write(id, buffer, Values::Float(&[value]))?;
        }
        training.cpu.run_phase(id, Phase::Prepare, MicroStep::First)?;
        Ok(training)
    }

    fn below(&mut self, n: usize) -> usize {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % n
    }

    /// Random tokens; the targets are those that follow.
    pub(crate) fn batch(&mut self) -> Batch {
        let rows = self.cpu.plan(self.id).buffer(self.buffers[0]).len();
        let text: Vec<i32> = (0..=rows).map(|_| self.below(self.vocab) as i32).collect();
        let mut order: Vec<i32> = (0..rows as i32).collect();
        order.sort_by_key(|position| text[*position as usize]);
        Batch([text[..rows].to_vec(), order, text[1..].to_vec()])
    }

    /// One whole step, under the profile where there is one; gives the loss.
    pub(crate) fn step(
        &mut self,
        batch: &Batch,
        mut profile: Option<(&mut Profile, Clock)>,
    ) -> Result<f32, ExecutorError> {
        let Self { cpu, id, buffers: [tokens, order, targets, step, loss], done, .. } = self;
        *done += 1;
        for (buffer, values) in [*tokens, *order, *targets].into_iter().zip(&batch.0) {
            cpu.write(*id, buffer, Values::Int(values))?;
        }
        cpu.write(*id, *step, Values::Int(&[*done]))?;
        let phases = [Phase::Forward, Phase::Backward, Phase::Update];
        for phase in phases {
            match &mut profile {
                None => cpu.run_phase(*id, phase, MicroStep::First)?,
                Some((profile, clock)) => profile.run_phase(cpu, *id, phase, MicroStep::First, *clock)?,
            }
        }
        Ok(cpu.read(*id, *loss)?[0])
    }
}
