//! Where gradients go while the gradient pass walks the forward steps backwards.
//!
//! In: the forward plan. Out: backward steps. Ops say what to emit; the tape decides which buffer holds a gradient
//! and whether a write replaces or adds: the first writer replaces, later ones add.

use crate::buffer::{BufferId, Role};
use crate::ops::Op;
use crate::plan::{Mode, Phase, Plan, Read, Step, Write};
use std::collections::HashMap;
use std::ops::Range;

/// State of the gradient pass.
#[derive(Debug)]
pub struct Tape {
    plan: Plan,
    n_forward: usize,
    /// Base buffer -> base buffer that holds its gradient.
    gradients: HashMap<BufferId, BufferId>,
    /// Gradient base -> columns written so far.
    written: HashMap<BufferId, Vec<Range<usize>>>,
}

/// Shorthand for a read.
#[must_use]
pub fn read(slot: &'static str, buffer: BufferId) -> Read {
    Read { slot, buffer }
}

/// Shorthand for a write that replaces.
#[must_use]
pub fn write(slot: &'static str, buffer: BufferId) -> Write {
    Write { slot, buffer, mode: Mode::Overwrite }
}

impl Tape {
    /// A tape over a plan that has only forward steps.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let n_forward = plan.steps.len();
        Self { plan, n_forward, gradients: HashMap::new(), written: HashMap::new() }
    }

    /// Walks the forward steps from the last to the first, then gives the plan back.
    #[must_use]
    pub fn walk(mut self) -> Plan {
        for index in (0..self.n_forward).rev() {
            let step = self.plan.steps[index].clone();
            step.op.backward(&step, index, &mut self);
        }
        self.plan
    }

    /// The plan as it is now.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Names `gradient` as the finished gradient of `of`: how a gradient enters from outside.
    pub fn seed(&mut self, of: BufferId, gradient: BufferId) {
        self.gradients.insert(of, gradient);
        self.written.insert(gradient, std::iter::once(0..self.plan.buffer(gradient).columns()).collect());
    }

    /// The buffer that a slot of a forward step names.
    #[must_use]
    pub fn id(step: &Step, slot: &str) -> Option<BufferId> {
        let read = step.reads.iter().find(|read| read.slot == slot).map(|read| read.buffer);
        read.or_else(|| step.writes.iter().find(|write| write.slot == slot).map(|write| write.buffer))
    }

    /// A read of the gradient of what a forward step wrote as `slot`; `None` when nothing downstream used it.
    pub fn gradient(&mut self, step: &Step, slot: &'static str, as_slot: &'static str) -> Option<Read> {
        let of = Self::id(step, slot)?;
        let (base, _) = self.plan.base(of);
        self.gradients.get(&base)?;
        Some(read(as_slot, self.gradient_buffer(of)))
    }

    /// A write of the gradient of what a forward step read as `slot`; `None` when the step lacks the slot.
    pub fn into(&mut self, step: &Step, slot: &'static str, as_slot: &'static str) -> Option<Write> {
        let of = Self::id(step, slot)?;
        let buffer = self.gradient_buffer(of);
        let (base, _) = self.plan.base(buffer);
        let columns = self.plan.columns(buffer);
        let written = self.written.entry(base).or_default();
        let known = written.iter().any(|range| range.start < columns.end && columns.start < range.end);
        written.push(columns);
        let persistent = self.plan.buffer(base).role == Role::Gradient;
        let in_place = step.writes.iter().any(|write| write.buffer == of);
        let mode = match (known, persistent) {
            _ if in_place => Mode::Overwrite,
            (true, _) => Mode::Accumulate,
            (false, true) => Mode::AccumulateLater,
            (false, false) => Mode::Overwrite,
        };
        Some(Write { slot: as_slot, buffer, mode })
    }

    /// Hands the gradient of what the step wrote as `from` on to what it read as `to`, unchanged: by sharing the
    /// buffer where nobody could tell, else by a copy or an addition. Call it after everything of this step that
    /// reads the gradient was emitted.
    pub fn pass_on(&mut self, step: &Step, index: usize, from: &'static str, to: &[&'static str]) {
        let Some(source) = self.gradient(step, from, "x") else { return };
        let mut owner: Option<BufferId> = None;
        for slot in to {
            let Some(of) = Self::id(step, slot) else { continue };
            let (base, _) = self.plan.base(of);
            let whole = base == of && self.plan.base(source.buffer).0 == source.buffer;
            let free = whole && !self.gradients.contains_key(&of) && !self.is_parameter(of);
            let shareable = free && owner.is_none_or(|owner| self.outlives(owner, of, index));
            if shareable {
                self.gradients.insert(of, source.buffer);
                owner = owner.or(Some(of));
            } else if let Some(write) = self.into(step, slot, "y") {
                self.emit(crate::ops::cast::Cast, vec![source], vec![write]);
            }
        }
    }

    /// May `second` share the gradient buffer of `first`, both read by step `index`? The walk changes or hands on the
    /// gradient of `first` at its other readers and at its producers; by then the one producer of `second` must have
    /// been passed.
    fn outlives(&self, first: BufferId, second: BufferId, index: usize) -> bool {
        let steps = || self.plan.steps[..self.n_forward].iter().enumerate();
        let is = |id: BufferId, other: BufferId| self.plan.base(other).0 == self.plan.base(id).0;
        let readers = |id: BufferId| {
            let reads = move |step: &Step| step.reads.iter().any(|read| is(id, read.buffer));
            steps().filter(move |(at, step)| *at != index && reads(step)).map(|(at, _)| at)
        };
        let producers = |id: BufferId| {
            let writes = move |step: &Step| step.writes.iter().any(|write| is(id, write.buffer));
            steps().filter(move |(_, step)| writes(step)).map(|(at, _)| at)
        };
        let mut of_second = producers(second);
        let (Some(produced), None) = (of_second.next(), of_second.next()) else { return false };
        readers(second).next().is_none() && readers(first).chain(producers(first)).all(|at| at < produced)
    }

    fn is_parameter(&self, id: BufferId) -> bool {
        self.plan.buffer(id).role == Role::Parameter
    }

    /// Scratch room for the step about to be emitted.
    pub fn scratch(&mut self, name: String, shape: Vec<usize>) -> BufferId {
        self.plan.add(name, shape, crate::dtype::Dtype::Fp32, Role::Scratch)
    }

    /// Adds a backward step.
    pub fn emit(&mut self, op: impl Into<Op>, reads: Vec<Read>, writes: Vec<Write>) {
        self.plan.steps.push(Step { op: op.into(), reads, writes, phase: Phase::Backward });
    }

    /// Adds writes to a forward step that makes gradients itself.
    pub fn extend_forward(&mut self, index: usize, writes: Vec<Write>) {
        self.plan.steps[index].writes.extend(writes);
    }

    fn gradient_buffer(&mut self, of: BufferId) -> BufferId {
        let (base, _) = self.plan.base(of);
        let gradient = match self.gradients.get(&base) {
            Some(gradient) => *gradient,
            None => {
                let buffer = self.plan.buffer(base);
                let role = if self.is_parameter(base) { Role::Gradient } else { Role::Activation };
                let (name, shape) = (format!("d_{}", buffer.name), buffer.shape.clone());
                let gradient = self.plan.add(name, shape, crate::dtype::Dtype::Fp32, role);
                self.gradients.insert(base, gradient);
                gradient
            }
        };
        if base == of {
            return gradient;
        }
        let name = format!("d_{}", self.plan.buffer(of).name);
        match self.plan.find(&name) {
            Some(view) => view,
            None => {
                let columns = self.plan.columns(of);
                self.plan.add_view(name, gradient, columns)
            }
        }
    }
}
