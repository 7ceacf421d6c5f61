//! Recordings: whole phases that run together, kept by the device as one.
//!
//! In: a loaded plan and some of its steps. Out: a recording, made the first time; those of plans that have not run for
//! the longest time are dropped.

use super::memory::failed;
use super::{Cuda, Loaded, at};
use crate::driver::{Driver, Recording};
use kernwright_plan::executor::{ExecutorError, MicroStep, PlanId};
use kernwright_plan::plan::{Phase, Plan};
use std::ops::Range;

/// Whole phases, from the first step to before the last one's end, and which micro-batch they are for.
pub(super) type Whole = (usize, usize, usize);

/// So many plans have recordings at once: each holds memory of the device, and generation makes a plan for each length.
const MOST_RECORDED: usize = 4;

/// Step and launch that a command is; none for one that is not a launch.
pub(super) type Origin = Option<(usize, usize)>;

/// A recording, and where each of its commands comes from.
pub(super) struct Recorded {
    pub(super) recording: Recording,
    pub(super) origins: Vec<Origin>,
}

impl<D: Driver> Cuda<D> {
    /// Records whole phases, unless they were.
    pub(super) fn record(
        &mut self,
        id: PlanId,
        steps: &Range<usize>,
        micro: MicroStep,
    ) -> Result<Whole, ExecutorError> {
        let key = (steps.start, steps.end, at(micro));
        self.n_runs += 1;
        self.plans[id.0].last_run = self.n_runs;
        let loaded = &self.plans[id.0];
        if loaded.recorded.contains_key(&key) {
            return Ok(key);
        }
        let (commands, origins) = self.commands(loaded, steps.clone(), micro)?;
        let what = || format!("record {}", phases(&loaded.plan, steps));
        let recording = self.driver.record(commands).map_err(|error| failed(&what(), error))?;
        self.plans[id.0].recorded.insert(key, Recorded { recording, origins });
        self.forget_old();
        Ok(key)
    }

    /// Drops the recordings of the plans that have not run for the longest time, where too many have some.
    fn forget_old(&mut self) {
        let mut recorded: Vec<&mut Loaded> =
            self.plans.iter_mut().filter(|loaded| !loaded.recorded.is_empty()).collect();
        recorded.sort_by_key(|loaded| std::cmp::Reverse(loaded.last_run));
        for (_, old) in recorded.into_iter().skip(MOST_RECORDED).flat_map(|loaded| loaded.recorded.drain()) {
            self.driver.forget(old.recording);
        }
    }
}

/// Are these steps whole phases, one after the other?
pub(super) fn is_whole(plan: &Plan, steps: &Range<usize>) -> bool {
    let any =
        |edge: &dyn Fn(Range<usize>) -> bool| Phase::ALL.into_iter().any(|phase| edge(plan.phase(phase)));
    !steps.is_empty()
        && any(&|phase| !phase.is_empty() && phase.start == steps.start)
        && any(&|phase| !phase.is_empty() && phase.end == steps.end)
}

/// The phases of some steps, in words.
pub(super) fn phases(plan: &Plan, steps: &Range<usize>) -> String {
    let within = |phase: &Phase| {
        let phase = plan.phase(*phase);
        !phase.is_empty() && steps.start <= phase.start && phase.end <= steps.end
    };
    let names: Vec<_> =
        Phase::ALL.into_iter().filter(within).map(|one| format!("`{}`", one.name())).collect();
    format!("phase {}", names.join(" and "))
}
