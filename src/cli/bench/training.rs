//! A model in training on random tokens, with nothing around it.
//!
//! In: a Shape and an executor. Out: steps, their times by the device's clock, the loss. The weights begin as those of a
//! run do; a few batches come again and again, so that the loss must fall.

use kernwright_model::random::Random;
use kernwright_model::weights;
use kernwright_plan::buffer::BufferId;
use kernwright_plan::executor::{Executor, ExecutorError, Fetch, MicroStep, PlanId, Values};
use kernwright_plan::measure::Mark;
use kernwright_plan::plan::{Phase, Plan};
use kernwright_plan::shape::Shape;
use kernwright_plan::{Options, train_step};
use std::error::Error;
use std::ops::Range;
use std::time::Instant;

/// High enough for the loss to fall in a few steps, and low enough for any shape.
pub(in super::super) const LEARNING_RATE: f32 = 3e-4;

/// An executor with a training plan.
pub(in super::super) struct Training {
    pub(in super::super) executor: Box<dyn Executor>,
    pub(in super::super) plan: PlanId,
    batches: Vec<Batch>,
    step: BufferId,
    loss: BufferId,
    done: i32,
}

/// Random tokens.
pub(super) struct Batch {
    /// The tokens, and the one behind the last: targets are the same from the second on.
    pub(super) text: Vec<i32>,
    /// Their indices, sorted by token.
    order: Vec<i32>,
}

impl Batch {
    #[allow(clippy::cast_possible_truncation)]
    fn new(n: usize, vocab: usize, random: &mut Random) -> Self {
        let text: Vec<i32> = (0..=n).map(|_| random.below(vocab as u64) as i32).collect();
        let mut order: Vec<i32> = (0..n as i32).collect();
        order.sort_by_key(|index| text[index.unsigned_abs() as usize]);
        Self { text, order }
    }
}

/// How much a step trains on, and on what.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Data {
    pub(in super::super) batch: usize,
    pub(in super::super) length: usize,
    /// Batches that come in turn.
    pub(in super::super) batches: usize,
    pub(in super::super) seed: u64,
    pub(in super::super) learning_rate: f32,
}

/// A point in time, on the device's clock where it has one.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Device(Mark),
    Host(Instant),
}

/// From before a step to behind it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Span {
    from: Moment,
    to: Moment,
}

impl Training {
    /// A model with its first weights.
    pub(in super::super) fn new(
        mut executor: Box<dyn Executor>,
        shape: &Shape,
        options: &Options,
        data: Data,
    ) -> Result<Self, Box<dyn Error>> {
        let plan = executor.load(train_step(shape, options, data.batch, data.length))?;
        weights::initialise(&mut *executor, plan, shape, data.seed)?;
        let find = |executor: &dyn Executor, name: &str| {
            let missing = || ExecutorError::Plan(format!("it has no buffer `{name}`"));
            executor.plan(plan).find(name).ok_or_else(missing)
        };
        let n = data.batch * data.length;
        let mut random = Random::stream(data.seed, "bench");
        let batches: Vec<Batch> =
            (0..data.batches).map(|_| Batch::new(n, shape.vocab, &mut random)).collect();
        #[allow(clippy::cast_possible_truncation)]
        let inverse = (1.0 / n as f64) as f32;
        for (name, value) in [("inverse_count", inverse), ("learning_rate", data.learning_rate)] {
            let buffer = find(&*executor, name)?;
            executor.write(plan, buffer, Values::Float(&[value]))?;
        }
        executor.run_phase(plan, Phase::Prepare, MicroStep::First)?;
        let (step, loss) = (find(&*executor, "step")?, find(&*executor, "loss")?);
        let mut training = Self { executor, plan, batches, step, loss, done: 0 };
        training.feed(0)?;
        Ok(training)
    }

    fn feed(&mut self, index: usize) -> Result<(), ExecutorError> {
        let Batch { text, order } = &self.batches[index];
        let n = order.len();
        for (name, values) in [("tokens", &text[..n]), ("targets", &text[1..]), ("token_order", order)] {
            let missing = || ExecutorError::Plan(format!("it has no buffer `{name}`"));
            let buffer = self.executor.plan(self.plan).find(name).ok_or_else(missing)?;
            self.executor.write(self.plan, buffer, Values::Int(values))?;
        }
        Ok(())
    }

    /// The batches.
    pub(super) fn batches(&self) -> &[Batch] {
        &self.batches
    }

    /// The plan.
    pub(in super::super) fn plan(&self) -> &Plan {
        self.executor.plan(self.plan)
    }

    /// What a step is: gradients, then the update.
    pub(in super::super) fn parts(&self) -> [Range<usize>; 2] {
        let phase = |phase| self.plan().phase(phase);
        [phase(Phase::Forward).start..phase(Phase::Backward).end, phase(Phase::Update)]
    }

    /// Hands in what the next step is given.
    pub(in super::super) fn begin(&mut self) -> Result<(), ExecutorError> {
        if self.batches.len() > 1 {
            self.feed(self.done.unsigned_abs() as usize % self.batches.len())?;
        }
        self.done += 1;
        self.executor.write(self.plan, self.step, Values::Int(&[self.done]))
    }

    /// Asks for one step, without waiting for it where the device works on its own.
    pub(in super::super) fn step(&mut self) -> Result<Span, ExecutorError> {
        self.begin()?;
        let from = self.moment()?;
        for part in self.parts() {
            self.executor.run(self.plan, part, MicroStep::First)?;
        }
        Ok(Span { from, to: self.moment()? })
    }

    fn moment(&mut self) -> Result<Moment, ExecutorError> {
        Ok(match self.executor.mark()? {
            Some(mark) => Moment::Device(mark),
            None => Moment::Host(Instant::now()),
        })
    }

    /// How long a step took, once it is done.
    pub(in super::super) fn seconds(&mut self, span: Span) -> Result<f64, ExecutorError> {
        match (span.from, span.to) {
            (Moment::Device(from), Moment::Device(to)) => self.executor.seconds(from, to),
            (Moment::Host(from), Moment::Host(to)) => Ok((to - from).as_secs_f64()),
            _ => Err(ExecutorError::Plan("a clock was lost within a step".to_owned())),
        }
    }

    /// Has the device a clock of its own?
    pub(super) fn has_clock(span: Span) -> bool {
        matches!(span.from, Moment::Device(_))
    }

    /// The loss of the newest step, once it is done.
    pub(super) fn loss(&mut self) -> Result<f32, ExecutorError> {
        let fetch = self.executor.fetch(self.plan, self.loss)?;
        self.loss_of(fetch)
    }

    /// Whether updates have stopped, since a loss or a gradient of some step was no number.
    pub(super) fn has_halted(&mut self) -> Result<bool, ExecutorError> {
        let Some(halted) = self.plan().find("halted") else { return Ok(false) };
        let fetch = self.executor.fetch(self.plan, halted)?;
        Ok(self.executor.take(fetch)?.first().is_some_and(|halted| *halted != 0.0))
    }

    /// Asks for the loss of the newest step, without waiting for it.
    pub(super) fn ask_for_loss(&mut self) -> Result<Fetch, ExecutorError> {
        self.executor.fetch(self.plan, self.loss)
    }

    /// What was asked for.
    pub(super) fn loss_of(&mut self, fetch: Fetch) -> Result<f32, ExecutorError> {
        Ok(self.executor.take(fetch)?.first().copied().unwrap_or(f32::NAN))
    }
}
