//! Which tensor first stopped being finite.
//!
//! In: a plan whose outcome is not finite, on the executor that ran it. Out: the first bad tensor in the order of the
//! plan's steps. Activations share memory, so what a whole pass left behind cannot tell: the steps are run again, one
//! by one, and what each wrote is looked at before the next may write over it.

use std::fmt;
use std::ops::Range;

use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId};
use kernwright_plan::plan::Phase;

/// A number that is not finite, and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// The tensor's name in the plan.
    pub tensor: String,
    /// Where in it the first such number is, outermost dimension first.
    pub at: Vec<usize>,
    /// That number.
    pub value: f32,
    /// Who wrote it.
    pub origin: Origin,
}

/// Who wrote a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was so before the step: a weight that was given, or that an earlier update wrote.
    Before,
    /// A step of the plan.
    Step {
        /// Its op.
        op: &'static str,
        /// When it ran.
        phase: Phase,
        /// The number of the micro-batch, from 1.
        micro_batch: usize,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensor, at, value, .. } = self;
        write!(f, "the first tensor that is not finite is `{tensor}`, `{value}` at `{at:?}`, ")?;
        match self.origin {
            Origin::Before => write!(f, "which was so before the step"),
            Origin::Step { op, phase: Phase::Update, .. } => write!(f, "written by `{op}` in update"),
            Origin::Step { op, phase, micro_batch } => {
                write!(f, "written by `{op}` in {} of micro-batch {micro_batch}", phase.name())
            }
        }
    }
}

/// The first weight, working copy or moment that is not finite.
pub(super) fn stored(executor: &dyn Executor, plan: PlanId) -> Result<Option<Fault>, ExecutorError> {
    let buffers = &executor.plan(plan).buffers;
    for role in [Role::Parameter, Role::Working, Role::Moment] {
        for (index, buffer) in buffers.iter().enumerate() {
            if buffer.role == role && buffer.view.is_none() {
                let fault = look(executor, plan, BufferId(index), Origin::Before)?;
                if fault.is_some() {
                    return Ok(fault);
                }
            }
        }
    }
    Ok(None)
}

/// Runs `steps` again, micro-batch number `micro_batch` from 0, up to the first that writes a number that is not
/// finite.
pub(super) fn rerun(
    executor: &mut dyn Executor,
    plan: PlanId,
    steps: Range<usize>,
    micro_batch: usize,
) -> Result<Option<Fault>, ExecutorError> {
    let micro = if micro_batch == 0 { MicroStep::First } else { MicroStep::Later };
    for index in steps {
        executor.run(plan, index..index + 1, micro)?;
        let step = &executor.plan(plan).steps[index];
        let origin = Origin::Step { op: step.op.name(), phase: step.phase, micro_batch: micro_batch + 1 };
        for write in &step.writes {
            let fault = look(executor, plan, write.buffer, origin)?;
            if fault.is_some() {
                return Ok(fault);
            }
        }
    }
    Ok(None)
}

fn look(
    executor: &dyn Executor,
    plan: PlanId,
    buffer: BufferId,
    origin: Origin,
) -> Result<Option<Fault>, ExecutorError> {
    let about = executor.plan(plan).buffer(buffer);
    if about.role == Role::Scratch || about.dtype.is_integer() {
        return Ok(None);
    }
    let Some((index, value)) = executor.first_not_finite(plan, buffer)? else { return Ok(None) };
    let mut at = vec![0; about.shape.len()];
    let mut rest = index;
    for (place, n) in at.iter_mut().zip(&about.shape).rev() {
        (*place, rest) = (rest % n, rest / n);
    }
    Ok(Some(Fault { tensor: about.name.clone(), at, value, origin }))
}
