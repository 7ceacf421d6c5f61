//! What runs a plan. The model crate knows nothing else of the device.
//!
//! In: plans and the content of their inputs. Out: the content of any buffer. One executor holds several plans
//! (training, evaluation, generation) over one set of weights and what belongs to them, matched by name
//! (`Role::is_shared`); inputs and outputs are each plan's own.

use crate::buffer::{Buffer, BufferId};
use crate::measure::{Mark, Timed, Usage};
use crate::plan::{Phase, Plan};
use std::ops::Range;

/// A plan that an executor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlanId(pub usize);

/// Which micro-batch of a step is running: decides whether `Mode::AccumulateLater` replaces or adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MicroStep {
    /// The first one.
    First,
    /// Any other.
    Later,
}

/// Elements to write, row-major.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// For buffers of floats; converted to the buffer's type.
    Float(&'a [f32]),
    /// For buffers of whole numbers.
    Int(&'a [i32]),
}

impl Values<'_> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Float(values) => values.len(),
            Self::Int(values) => values.len(),
        }
    }

    /// None at all?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Do they fit this buffer?
    ///
    /// # Errors
    /// When length or kind differ.
    pub fn check(&self, buffer: &Buffer) -> Result<(), ExecutorError> {
        let integer = matches!(self, Self::Int(_));
        if self.len() == buffer.len() && integer == buffer.dtype.is_integer() {
            return Ok(());
        }
        Err(ExecutorError::WrongValues {
            buffer: buffer.name.clone(),
            expected: buffer.len(),
            dtype: buffer.dtype.name(),
            found: format!("{} {}", self.len(), if integer { "whole numbers" } else { "floats" }),
        })
    }
}

/// The content of a buffer at the moment when it was asked for; see [`Executor::fetch`].
#[derive(Clone, Debug, PartialEq)]
pub enum Fetch {
    /// Here already.
    Here(Vec<f32>),
    /// On its way from the device; a number of the executor's own.
    UnderWay(usize),
}

/// What can go wrong in an executor.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// Content of the wrong length or kind was handed in.
    #[error("buffer `{buffer}` holds {expected} elements of {dtype}, found {found}")]
    WrongValues {
        /// Name of the buffer.
        buffer: String,
        /// Its number of elements.
        expected: usize,
        /// Its element type.
        dtype: &'static str,
        /// What was handed in, in words.
        found: String,
    },
    /// Two plans disagree about a shared buffer.
    #[error("buffer `{buffer}` is {before} in an earlier plan and {now} in this one")]
    Mismatch {
        /// Name of the buffer.
        buffer: String,
        /// Its shape and type before.
        before: String,
        /// Its shape and type now.
        now: String,
    },
    /// The plan itself is at fault.
    #[error("the plan is not sound: {0}")]
    Plan(String),
    /// The memory could not be had.
    #[error("out of memory: the plan needs {needed} bytes")]
    Memory {
        /// Bytes asked for.
        needed: usize,
    },
    /// An index in the data is out of range.
    #[error("{0}")]
    Data(String),
    /// A step has no kernel.
    #[error("step {step} (`{op}`) cannot run on `{arch}`: {why}")]
    NoKernel {
        /// Its index in the plan.
        step: usize,
        /// Its op.
        op: &'static str,
        /// The GPU.
        arch: String,
        /// What is in the way, in words.
        why: String,
    },
    /// A device failed.
    #[error("cannot {what}")]
    Device {
        /// What was asked of it, in words: which launch of which step, where it was one.
        what: String,
        /// What the device says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Runs plans.
pub trait Executor {
    /// Takes a plan in. Shared buffers that an earlier plan brought keep their content; new ones are zero.
    ///
    /// # Errors
    /// When the plan is not sound, disagrees with an earlier one, or does not fit into memory.
    fn load(&mut self, plan: Plan) -> Result<PlanId, ExecutorError>;

    /// A plan that was taken in.
    fn plan(&self, plan: PlanId) -> &Plan;

    /// Sets the content of a buffer.
    ///
    /// # Errors
    /// When length or kind differ from the buffer's.
    fn write(&mut self, plan: PlanId, buffer: BufferId, values: Values<'_>) -> Result<(), ExecutorError>;

    /// The content of a buffer, row-major, as f32 (whole numbers below 2^24 are exact). Only persistent buffers and
    /// those of the step that ran last are certain to be intact.
    ///
    /// # Errors
    /// When a device fails.
    fn read(&self, plan: PlanId, buffer: BufferId) -> Result<Vec<f32>, ExecutorError>;

    /// Asks for the content of a buffer as it is once everything asked for so far is done, without waiting for that.
    /// What is fetched is to be taken with [`Executor::take`].
    ///
    /// # Errors
    /// As [`Executor::read`].
    fn fetch(&mut self, plan: PlanId, buffer: BufferId) -> Result<Fetch, ExecutorError> {
        Ok(Fetch::Here(self.read(plan, buffer)?))
    }

    /// What was fetched, waiting for it alone and not for what was asked for later.
    ///
    /// # Errors
    /// When anything that was asked for before it failed.
    fn take(&mut self, fetch: Fetch) -> Result<Vec<f32>, ExecutorError> {
        match fetch {
            Fetch::Here(values) => Ok(values),
            Fetch::UnderWay(number) => {
                Err(ExecutorError::Plan(format!("fetch {number} is not of this executor")))
            }
        }
    }

    /// Waits until everything that was asked for is done.
    ///
    /// # Errors
    /// What any of it met with.
    fn wait(&mut self) -> Result<(), ExecutorError> {
        Ok(())
    }

    /// Marks the point after everything that was asked for so far, on a device with a clock of its own. `None` says that
    /// the host's clock will do, since work is done when calls return.
    ///
    /// # Errors
    /// When a device fails.
    fn mark(&mut self) -> Result<Option<Mark>, ExecutorError> {
        Ok(None)
    }

    /// Seconds from one point to a later one, once the later one is reached. Both marks are used up.
    ///
    /// # Errors
    /// When there are no such marks or the device fails.
    fn seconds(&mut self, from: Mark, to: Mark) -> Result<f64, ExecutorError> {
        Err(ExecutorError::Plan(format!("marks {} and {} are not of this executor", from.0, to.0)))
    }

    /// What it has taken of its device's memory.
    fn usage(&self) -> Usage {
        Usage::default()
    }

    /// Runs some steps and times each of their launches; `None` from an executor without launches, which ran nothing.
    ///
    /// # Errors
    /// As [`Executor::run`].
    fn time_launches(
        &mut self,
        plan: PlanId,
        steps: Range<usize>,
        micro: MicroStep,
    ) -> Result<Option<Vec<Timed>>, ExecutorError> {
        let _ = (plan, steps, micro);
        Ok(None)
    }

    /// What it chose by measuring and must be told again to repeat its bits, as JSON; `None` where it chose nothing.
    fn choices(&self) -> Option<String> {
        None
    }

    /// Takes the choices of an earlier run, before any plan runs. What means nothing to it is chosen anew.
    ///
    /// # Errors
    /// When they are not what [`Executor::choices`] gives.
    fn recall(&mut self, _choices: &str) -> Result<(), ExecutorError> {
        Ok(())
    }

    /// The first element of a buffer of floats that is not finite: its place, row-major, and its value. As
    /// [`Executor::read`], it is sure of persistent buffers and those of the step that ran last; an executor whose
    /// memory is far away may look for it there.
    ///
    /// # Errors
    /// When a device fails.
    fn first_not_finite(
        &self,
        plan: PlanId,
        buffer: BufferId,
    ) -> Result<Option<(usize, f32)>, ExecutorError> {
        let values = self.read(plan, buffer)?;
        Ok(values.into_iter().enumerate().find(|(_, value)| !value.is_finite()))
    }

    /// Runs some steps, in order.
    ///
    /// # Errors
    /// When data is out of range or a device fails.
    fn run(&mut self, plan: PlanId, steps: Range<usize>, micro: MicroStep) -> Result<(), ExecutorError>;

    /// Runs one phase.
    ///
    /// # Errors
    /// As [`Executor::run`].
    fn run_phase(&mut self, plan: PlanId, phase: Phase, micro: MicroStep) -> Result<(), ExecutorError> {
        let steps = self.plan(plan).phase(phase);
        self.run(plan, steps, micro)
    }
}
