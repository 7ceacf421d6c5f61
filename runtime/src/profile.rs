//! Where the time of a plan goes, step by step, on any executor whose `run` returns when the work is done.
//!
//! In: an executor and a plan it holds. Out: the least time of each step over the measured runs, and their sums by op.

use kernwright_plan::cost::Cost;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId};
use kernwright_plan::plan::{Phase, Plan};
use std::time::Duration;

/// The least time of each step of a plan; what never ran has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// In the order of the plan's steps.
    pub steps: Vec<Option<Duration>>,
}

/// All steps of one op.
#[derive(Clone, Debug, PartialEq)]
pub struct OpTime {
    /// The op's name.
    pub op: &'static str,
    /// How many steps ran.
    pub steps: usize,
    /// Their least times, added up.
    pub time: Duration,
    /// Their work and traffic.
    pub cost: Cost,
}

impl Profile {
    /// Runs a phase step by step and keeps each time that is the least so far. `clock` tells the time: that of the
    /// wall, or what the process has used of its processors where others work on them as well.
    ///
    /// # Errors
    /// As [`Executor::run`].
    pub fn run_phase(
        &mut self,
        executor: &mut dyn Executor,
        plan: PlanId,
        phase: Phase,
        micro: MicroStep,
        clock: impl Fn() -> Duration,
    ) -> Result<(), ExecutorError> {
        self.steps.resize(executor.plan(plan).steps.len().max(self.steps.len()), None);
        for index in executor.plan(plan).phase(phase) {
            let start = clock();
            executor.run(plan, index..index + 1, micro)?;
            let time = clock().saturating_sub(start);
            self.steps[index] = Some(self.steps[index].map_or(time, |least| least.min(time)));
        }
        Ok(())
    }

    /// The times by op, the longest first.
    #[must_use]
    pub fn by_op(&self, plan: &Plan) -> Vec<OpTime> {
        let mut rows: Vec<OpTime> = Vec::new();
        for (step, time) in plan.steps.iter().zip(&self.steps) {
            let Some(time) = time else { continue };
            let op = step.op.name();
            let at = rows.iter().position(|row| row.op == op).unwrap_or_else(|| {
                rows.push(OpTime { op, steps: 0, time: Duration::ZERO, cost: Cost::default() });
                rows.len() - 1
            });
            rows[at].steps += 1;
            rows[at].time += *time;
            rows[at].cost += step.op.cost(&plan.io(step));
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.time));
        rows
    }

    /// The sum of all times.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.steps.iter().flatten().sum()
    }
}
