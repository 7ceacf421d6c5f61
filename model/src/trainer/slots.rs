//! Where a plan takes what a step is given and leaves what it yields.
//!
//! In: a loaded plan. Out: its buffers, by name. It knows nothing of what is written there.

use kernwright_plan::buffer::BufferId;
use kernwright_plan::executor::{Executor, ExecutorError, PlanId};
use kernwright_plan::plan::Phase;

/// The buffers of a plan that a micro-batch is written to, and its loss.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputSlots {
    pub(super) tokens: BufferId,
    pub(super) token_order: BufferId,
    pub(super) targets: BufferId,
    pub(super) inverse_count: BufferId,
    pub(super) loss: BufferId,
}

/// Those of a plan with an update.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepSlots {
    pub(super) inputs: InputSlots,
    pub(super) learning_rate: BufferId,
    pub(super) step: BufferId,
    pub(super) gradient_norm: BufferId,
    /// The end of the steps of the update that the norm comes from.
    pub(super) norm_end: usize,
    /// The step since which updates leave weights alone, since loss or norm were no numbers; 0 while there is none.
    pub(super) halted: BufferId,
    /// Where the loss is scaled: `halted` again, its scale, and the steps that were skipped.
    pub(super) scaling: Option<[BufferId; 3]>,
}

impl InputSlots {
    /// Those of `plan`.
    pub(super) fn find(executor: &dyn Executor, plan: PlanId) -> Result<Self, ExecutorError> {
        let find = |name| find(executor, plan, name);
        Ok(Self {
            tokens: find("tokens")?,
            token_order: find("token_order")?,
            targets: find("targets")?,
            inverse_count: find("inverse_count")?,
            loss: find("loss")?,
        })
    }
}

impl StepSlots {
    /// Those of `plan`.
    pub(super) fn find(executor: &dyn Executor, plan: PlanId) -> Result<Self, ExecutorError> {
        let gradient_norm = find(executor, plan, "gradient_norm")?;
        let about = executor.plan(plan);
        let update = about.phase(Phase::Update);
        let halted = find(executor, plan, "halted")?;
        let writes =
            |index: &usize| about.steps[*index].writes.iter().any(|write| write.buffer == gradient_norm);
        Ok(Self {
            inputs: InputSlots::find(executor, plan)?,
            learning_rate: find(executor, plan, "learning_rate")?,
            step: find(executor, plan, "step")?,
            gradient_norm,
            norm_end: update.clone().find(writes).map_or(update.start, |index| index + 1),
            halted,
            scaling: about
                .find("loss_scale")
                .zip(about.find("skipped_steps"))
                .map(|(scale, skipped)| [halted, scale, skipped]),
        })
    }
}

/// The buffer called `name`, which every plan of its kind has.
fn find(executor: &dyn Executor, plan: PlanId, name: &str) -> Result<BufferId, ExecutorError> {
    let missing = || ExecutorError::Plan(format!("it has no buffer `{name}`"));
    executor.plan(plan).find(name).ok_or_else(missing)
}
