//! Where a plan takes what a step is given and leaves what it yields.
//!
//! In: a loaded plan. Out: its buffers, by name. It knows nothing of what is written there.

use kernwright_plan::buffer::BufferId;
use kernwright_plan::executor::{Executor, ExecutorError, PlanId};

/// The buffers of a plan that a step writes and reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slots {
    pub(super) tokens: BufferId,
    pub(super) token_order: BufferId,
    pub(super) targets: BufferId,
    pub(super) inverse_count: BufferId,
    pub(super) loss: BufferId,
}

impl Slots {
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

/// The buffer called `name`, which every plan of its kind has.
pub(super) fn find(executor: &dyn Executor, plan: PlanId, name: &str) -> Result<BufferId, ExecutorError> {
    let missing = || ExecutorError::Plan(format!("it has no buffer `{name}`"));
    executor.plan(plan).find(name).ok_or_else(missing)
}
