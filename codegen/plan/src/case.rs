//! Small plans of one op each, forward and backward, with rules for their content: what the sweeps run.
//!
//! In: an op and the shapes of its slots. Out: a plan whose gradients can be checked by differences and compared
//! between executors.

use crate::buffer::{BufferId, Role};
use crate::dtype::Dtype;
use crate::executor::{Executor, ExecutorError, PlanId, Values};
use crate::ops::Op;
use crate::options::Options;
use crate::passes::{attention, memory};
use crate::plan::{Phase, Plan, Read, Step};
use crate::tape::{Tape, read, write};

/// How a buffer of a case is filled.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// Normal around 0 with this deviation.
    Normal(f64),
    /// Normal around this value with a deviation of 0.3.
    Around(f64),
    /// These whole numbers.
    Ints(Vec<i32>),
    /// These numbers.
    Values(Vec<f32>),
}

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is particular about it.
    pub label: String,
    /// Forward and backward steps, placed in memory.
    pub plan: Plan,
    /// What to write before the run.
    pub fills: Vec<(BufferId, Fill)>,
    /// What the objective of a gradient check sums up, times `seed`; both have the same shape.
    pub output: BufferId,
    /// The gradient that enters at `output`.
    pub seed: BufferId,
}

/// A case of one step whose buffers are all separate. Floats that are read count as parameters, so that each gets a
/// gradient; the first write is the output.
#[must_use]
pub fn case(
    label: &str,
    op: impl Into<Op>,
    reads: &[(&'static str, Vec<usize>, Fill)],
    writes: &[(&'static str, Vec<usize>)],
) -> Case {
    let mut plan = Plan::default();
    let mut fills = Vec::new();
    let mut step = Step { op: op.into(), reads: Vec::new(), writes: Vec::new(), phase: Phase::Forward };
    for (slot, shape, fill) in reads {
        // A slot may come several times, a name may not: persistent buffers are matched by it.
        let name = match plan.find(slot) {
            Some(_) => format!("{slot}.{}", plan.buffers.len()),
            None => (*slot).to_owned(),
        };
        let buffer = input(&mut plan, &mut fills, &name, shape, fill);
        step.reads.push(Read { slot, buffer });
    }
    for (slot, shape) in writes {
        step.writes.push(write(slot, plan.add(*slot, shape.clone(), Dtype::Fp32, Role::Output)));
    }
    let output = step.writes[0].buffer;
    plan.steps.push(step);
    finish(label, plan, fills, output)
}

/// Adds a buffer that is filled from outside.
pub fn input(
    plan: &mut Plan,
    fills: &mut Vec<(BufferId, Fill)>,
    name: &str,
    shape: &[usize],
    fill: &Fill,
) -> BufferId {
    let (dtype, role) = match fill {
        Fill::Ints(_) => (Dtype::I32, Role::Input),
        _ => (Dtype::Fp32, Role::Parameter),
    };
    let buffer = plan.add(name, shape.to_vec(), dtype, role);
    fills.push((buffer, fill.clone()));
    buffer
}

/// Adds a step that copies `from` into a new buffer: a way to give an op that works in place something to work on.
pub fn copy(plan: &mut Plan, from: BufferId, name: &str, role: Role) -> BufferId {
    let to = plan.add(name, plan.buffer(from).shape.clone(), Dtype::Fp32, role);
    plan.steps.push(Step {
        op: crate::ops::cast::Cast.into(),
        reads: vec![read("x", from)],
        writes: vec![write("y", to)],
        phase: Phase::Forward,
    });
    to
}

/// Adds the seed and the backward steps to forward steps.
#[must_use]
pub fn finish(label: &str, mut plan: Plan, mut fills: Vec<(BufferId, Fill)>, output: BufferId) -> Case {
    let shape = plan.buffer(output).shape.clone();
    let fill = if shape == [1] { Fill::Values(vec![1.0]) } else { Fill::Normal(1.0) };
    let seed = plan.add("seed", shape, Dtype::Fp32, Role::Input);
    fills.push((seed, fill));
    let mut tape = Tape::new(plan);
    tape.seed(output, seed);
    let plan = memory::place(attention::choose(tape.walk(), &Options::default()));
    Case { label: label.to_owned(), plan, fills, output, seed }
}

impl Case {
    /// The content of each filled buffer, drawn from `seed`.
    #[must_use]
    pub fn content(&self, seed: u64) -> Vec<(BufferId, Content)> {
        let mut state = seed;
        self.fills
            .iter()
            .map(|(buffer, fill)| {
                let n = self.plan.buffer(*buffer).len();
                let content = match fill {
                    Fill::Normal(deviation) => Content::Float(normal(&mut state, n, 0.0, *deviation)),
                    Fill::Around(centre) => Content::Float(normal(&mut state, n, *centre, 0.3)),
                    Fill::Ints(values) => Content::Int(values.clone()),
                    Fill::Values(values) => Content::Float(values.clone()),
                };
                (*buffer, content)
            })
            .collect()
    }

    /// Loads the plan into an executor and fills its buffers.
    ///
    /// # Errors
    /// What the executor says.
    pub fn load(&self, executor: &mut dyn Executor, seed: u64) -> Result<PlanId, ExecutorError> {
        let plan = executor.load(self.plan.clone())?;
        for (buffer, content) in self.content(seed) {
            executor.write(plan, buffer, content.values())?;
        }
        Ok(plan)
    }
}

/// Content of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Floats.
    Float(Vec<f32>),
    /// Whole numbers.
    Int(Vec<i32>),
}

impl Content {
    /// The same, borrowed.
    #[must_use]
    pub fn values(&self) -> Values<'_> {
        match self {
            Self::Float(values) => Values::Float(values),
            Self::Int(values) => Values::Int(values),
        }
    }
}

/// Sums of twelve uniform numbers (Irwin-Hall): normal enough for tests, and the same bits everywhere. The generator
/// is SplitMix64 (G. Steele, D. Lea, C. Flood, 2014).
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
fn normal(state: &mut u64, n: usize, centre: f64, deviation: f64) -> Vec<f32> {
    let mut uniform = || {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..n).map(|_| (centre + deviation * ((0..12).map(|_| uniform()).sum::<f64>() - 6.0)) as f32).collect()
}
