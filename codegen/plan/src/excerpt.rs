//! One step of a plan as a plan of its own: what it takes to run that step and nothing else.
//!
//! In: a plan, a step and the micro-batch it is in. Out: a plan whose inputs are what the step reads, and which buffer of
//! the old plan each of its buffers was.

use crate::buffer::{Buffer, BufferId, Role, View};
use crate::executor::MicroStep;
use crate::passes::memory;
use crate::plan::{Mode, Plan, Read, Write};
use std::collections::BTreeMap;

/// A plan of one step.
#[derive(Clone, Debug)]
pub struct Excerpt {
    /// The plan.
    pub plan: Plan,
    /// Buffers whose content must be set before the step runs: the one here, and the one it was.
    pub inputs: Vec<(BufferId, BufferId)>,
}

/// The step as it is in this micro-batch, alone. What it reads or adds to becomes an input, what it only writes lives from
/// there on.
///
/// # Panics
/// When there is no such step.
#[must_use]
pub fn excerpt(plan: &Plan, index: usize, micro: MicroStep) -> Excerpt {
    let mut step = plan.steps[index].at(micro);
    let mut is_input: BTreeMap<BufferId, bool> = BTreeMap::new();
    for Read { buffer, .. } in &step.reads {
        is_input.insert(plan.base(*buffer).0, true);
    }
    for Write { buffer, mode, .. } in &step.writes {
        *is_input.entry(plan.base(*buffer).0).or_default() |= *mode == Mode::Accumulate;
    }
    let mut alone = Plan::default();
    let (mut bases, mut inputs) = (BTreeMap::new(), Vec::new());
    for (old, is_input) in is_input {
        let Buffer { role, .. } = plan.buffer(old);
        let role = match (is_input, role) {
            (true, _) => Role::Input,
            (false, Role::Scratch) => Role::Scratch,
            (false, _) => Role::Activation,
        };
        let new = BufferId(alone.buffers.len());
        alone.buffers.push(Buffer { role, offset: None, ..plan.buffer(old).clone() });
        bases.insert(old, new);
        inputs.extend(is_input.then_some((new, old)));
    }
    let mut known = bases.clone();
    let mut moved = |old: BufferId| {
        *known.entry(old).or_insert_with(|| {
            let (base, column) = plan.base(old);
            let of = bases[&base];
            let role = alone.buffers[of.0].role;
            let view = Some(View { of, column });
            alone.buffers.push(Buffer { role, view, offset: None, ..plan.buffer(old).clone() });
            BufferId(alone.buffers.len() - 1)
        })
    };
    step.reads.iter_mut().for_each(|read| read.buffer = moved(read.buffer));
    step.writes.iter_mut().for_each(|write| write.buffer = moved(write.buffer));
    alone.steps.push(step);
    Excerpt { plan: memory::place(alone), inputs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::passes::train_step;
    use crate::shape::presets;

    #[test]
    fn every_step_of_every_preset_stands_alone() {
        for preset in presets::ALL {
            let plan = train_step(&preset.shape(), &Options::default(), 1, 3);
            for index in 0..plan.steps.len() {
                for micro in [MicroStep::First, MicroStep::Later] {
                    let Excerpt { plan: alone, inputs } = excerpt(&plan, index, micro);
                    let place = format!("{} step {index}", preset.name);
                    assert_eq!(alone.check(), Ok(()), "{place}");
                    let (before, after) = (plan.steps[index].at(micro), &alone.steps[0]);
                    assert_eq!((&before.op, before.reads.len()), (&after.op, after.reads.len()), "{place}");
                    for (old, new) in before.writes.iter().zip(&after.writes) {
                        assert_eq!((old.slot, old.mode), (new.slot, new.mode), "{place}");
                        assert_eq!(plan.columns(old.buffer), alone.columns(new.buffer), "{place}");
                    }
                    for (new, old) in inputs {
                        assert_eq!(plan.buffer(old).name, alone.buffer(new).name, "{place}");
                    }
                }
            }
        }
    }
}
