//! A plan: buffers, and the steps over them, in order.
//!
//! In: passes build it. Out: executors run it, `lower` turns each step into launches. Batch and length are fixed in
//! a plan; the kernels it needs do not depend on them.

use crate::buffer::{Buffer, BufferId, Role, View};
use crate::cost::Cost;
use crate::dtype::Dtype;
use crate::executor::MicroStep;
use crate::ops::Op;
use std::fmt::Write as _;
use std::ops::Range;

/// When a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Once, after the weights were set: fills the working copies.
    Prepare,
    /// For every micro-batch.
    Forward,
    /// For every micro-batch, after `Forward`.
    Backward,
    /// Once per step, after the last micro-batch.
    Update,
}

impl Phase {
    /// Every phase in order.
    pub const ALL: [Self; 4] = [Self::Prepare, Self::Forward, Self::Backward, Self::Update];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Update => "update",
        }
    }
}

/// What happens to what was in a written buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is replaced (beta 0).
    Overwrite,
    /// The result is added to it (beta 1).
    Accumulate,
    /// Replaced in the first micro-batch of a step, added to in later ones.
    AccumulateLater,
}

impl Mode {
    /// Is the result added, in this micro-batch?
    #[must_use]
    pub fn adds(self, micro: MicroStep) -> bool {
        match self {
            Self::Overwrite => false,
            Self::Accumulate => true,
            Self::AccumulateLater => micro == MicroStep::Later,
        }
    }
}

/// A buffer that a step reads, under the op's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The op's name for it: `x`.
    pub slot: &'static str,
    /// Which buffer.
    pub buffer: BufferId,
}

/// A buffer that a step writes, under the op's name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// The op's name for it: `d_x`.
    pub slot: &'static str,
    /// Which buffer.
    pub buffer: BufferId,
    /// Replaces or adds.
    pub mode: Mode,
}

/// One op over some buffers.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What is done.
    pub op: Op,
    /// What it reads.
    pub reads: Vec<Read>,
    /// What it writes; may name a buffer that it reads (in place).
    pub writes: Vec<Write>,
    /// When it runs.
    pub phase: Phase,
}

impl Step {
    /// The same step as it is in this micro-batch: each write replaces or adds. What is lowered to be run is this one.
    #[must_use]
    pub fn at(&self, micro: MicroStep) -> Self {
        let mut step = self.clone();
        for write in &mut step.writes {
            write.mode = if write.mode.adds(micro) { Mode::Accumulate } else { Mode::Overwrite };
        }
        step
    }
}

/// Buffers and steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Every buffer; a [`BufferId`] is an index here.
    pub buffers: Vec<Buffer>,
    /// Every step, sorted by phase.
    pub steps: Vec<Step>,
    /// Bytes of the arena that hold persistent buffers, at its beginning; set by the memory pass.
    pub persistent_bytes: usize,
    /// Bytes of the whole arena: the planned peak; set by the memory pass.
    pub arena_bytes: usize,
}

impl Plan {
    /// Adds a buffer.
    pub fn add(&mut self, name: impl Into<String>, shape: Vec<usize>, dtype: Dtype, role: Role) -> BufferId {
        let name = name.into();
        self.buffers.push(Buffer { name, shape, dtype, role, view: None, offset: None, initial: 0.0 });
        BufferId(self.buffers.len() - 1)
    }

    /// Adds a view of `columns` of a buffer (of its base, when it is a view itself).
    pub fn add_view(&mut self, name: impl Into<String>, of: BufferId, columns: Range<usize>) -> BufferId {
        let (base, first) = self.base(of);
        let source = &self.buffers[base.0];
        let buffer = Buffer {
            name: name.into(),
            shape: vec![source.rows(), columns.len()],
            dtype: source.dtype,
            role: source.role,
            view: Some(View { of: base, column: first + columns.start }),
            offset: None,
            initial: source.initial,
        };
        self.buffers.push(buffer);
        BufferId(self.buffers.len() - 1)
    }

    /// The buffer.
    #[must_use]
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0]
    }

    /// The buffer that owns the memory of `id`, and the first column there.
    #[must_use]
    pub fn base(&self, id: BufferId) -> (BufferId, usize) {
        self.buffer(id).view.map_or((id, 0), |view| (view.of, view.column))
    }

    /// Distance between rows, in elements.
    #[must_use]
    pub fn row_stride(&self, id: BufferId) -> usize {
        self.buffer(self.base(id).0).columns()
    }

    /// Columns of its base that the buffer covers.
    #[must_use]
    pub fn columns(&self, id: BufferId) -> Range<usize> {
        let column = self.base(id).1;
        column..column + self.buffer(id).columns()
    }

    /// The buffer of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<BufferId> {
        self.buffers.iter().position(|buffer| buffer.name == name).map(BufferId)
    }

    /// What a step leaves to the next one besides weights and moments. Who resumes a run sets it to what it was.
    pub fn state_buffers(&self) -> impl Iterator<Item = BufferId> {
        let is_state = |(_, buffer): &(usize, &Buffer)| buffer.role == Role::State;
        self.buffers.iter().enumerate().filter(is_state).map(|(index, _)| BufferId(index))
    }

    /// The steps of a phase.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> Range<usize> {
        let start = self.steps.partition_point(|step| step.phase < phase);
        start..self.steps.partition_point(|step| step.phase <= phase)
    }

    /// A step with its plan, as ops see it.
    #[must_use]
    pub fn io<'a>(&'a self, step: &'a Step) -> Io<'a> {
        Io { plan: self, step }
    }

    /// Cost of all steps of the phases that run for every step of training (all but `Prepare`).
    #[must_use]
    pub fn cost(&self) -> Cost {
        let mut total = Cost::default();
        for step in self.steps.iter().filter(|step| step.phase != Phase::Prepare) {
            total += step.op.cost(&self.io(step));
        }
        total
    }

    /// The plan as text: a line per step with what it reads and writes.
    #[must_use]
    pub fn dump(&self) -> String {
        let mut text = String::new();
        let show = |id: BufferId| {
            let buffer = self.buffer(id);
            let shape: Vec<_> = buffer.shape.iter().map(ToString::to_string).collect();
            format!("{}:{}[{}]", buffer.name, buffer.dtype.name(), shape.join("x"))
        };
        for (index, step) in self.steps.iter().enumerate() {
            let writes: Vec<_> = step
                .writes
                .iter()
                .map(|write| {
                    let sign = match write.mode {
                        Mode::Overwrite => "",
                        Mode::Accumulate => " +",
                        Mode::AccumulateLater => " 0+",
                    };
                    format!("{}{sign}={}", write.slot, show(write.buffer))
                })
                .collect();
            let reads: Vec<_> =
                step.reads.iter().map(|read| format!("{}={}", read.slot, show(read.buffer))).collect();
            let (phase, op) = (step.phase.name(), step.op.name());
            let _ = writeln!(text, "{index:4} {phase:8} {op:20} {} <- {}", writes.join(" "), reads.join(" "));
        }
        text
    }

    /// Proves that each read was written before, each accumulation has something to add to, no step follows one of a
    /// later phase, and no two buffers that live at once share memory.
    ///
    /// # Errors
    /// The first fault found, naming step and buffer.
    pub fn check(&self) -> Result<(), String> {
        let mut written: Vec<Vec<Range<usize>>> = vec![Vec::new(); self.buffers.len()];
        for (index, buffer) in self.buffers.iter().enumerate() {
            let is_given = matches!(buffer.role, Role::Input | Role::Parameter | Role::Moment | Role::State);
            if is_given && buffer.view.is_none() {
                written[index].push(0..buffer.columns());
            }
        }
        let mut phase = Phase::Prepare;
        for (index, step) in self.steps.iter().enumerate() {
            let place = format!("step {index} ({})", step.op.name());
            if step.phase < phase {
                return Err(format!("{place} of phase {} follows {}", step.phase.name(), phase.name()));
            }
            phase = step.phase;
            let is_written = |id: BufferId, written: &[Vec<Range<usize>>]| {
                covers(&written[self.base(id).0.0], &self.columns(id))
            };
            for read in &step.reads {
                let prepared = self.buffer(read.buffer).role == Role::Working;
                if !prepared && !is_written(read.buffer, &written) {
                    let name = &self.buffer(read.buffer).name;
                    return Err(format!("{place} reads `{name}` as `{}` before it is written", read.slot));
                }
            }
            for write in &step.writes {
                if write.mode == Mode::Accumulate && !is_written(write.buffer, &written) {
                    let name = &self.buffer(write.buffer).name;
                    return Err(format!("{place} adds to `{name}` before it is written"));
                }
                written[self.base(write.buffer).0.0].push(self.columns(write.buffer));
            }
        }
        crate::passes::memory::check(self)
    }
}

/// Do the ranges together cover `wanted`?
fn covers(ranges: &[Range<usize>], wanted: &Range<usize>) -> bool {
    let mut reached = wanted.start;
    while reached < wanted.end {
        match ranges.iter().filter(|range| range.start <= reached).map(|range| range.end).max() {
            Some(end) if end > reached => reached = end,
            _ => return false,
        }
    }
    true
}

/// A step and its plan: what an op may look at.
#[derive(Clone, Copy, Debug)]
pub struct Io<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The step.
    pub step: &'a Step,
}

impl<'a> Io<'a> {
    /// The buffer of a slot, written or read.
    #[must_use]
    pub fn id(&self, slot: &str) -> Option<BufferId> {
        let write = self.step.writes.iter().find(|write| write.slot == slot).map(|write| write.buffer);
        write.or_else(|| self.step.reads.iter().find(|read| read.slot == slot).map(|read| read.buffer))
    }

    /// Is there such a slot?
    #[must_use]
    pub fn has(&self, slot: &str) -> bool {
        self.id(slot).is_some()
    }

    /// The buffer of a slot that the op always has.
    ///
    /// # Panics
    /// When the step lacks the slot: whoever built the plan made a step that the op does not allow.
    #[must_use]
    pub fn buffer(&self, slot: &str) -> &'a Buffer {
        match self.id(slot) {
            Some(id) => self.plan.buffer(id),
            None => panic!("a `{}` step has no `{slot}`", self.step.op.name()),
        }
    }

    /// The buffers of all slots.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &'a Buffer> {
        let reads = self.step.reads.iter().map(|read| read.buffer);
        let writes = self.step.writes.iter().map(|write| write.buffer);
        reads.chain(writes).map(|id| self.plan.buffer(id))
    }

    /// Rows of a slot.
    #[must_use]
    pub fn rows(&self, slot: &str) -> usize {
        self.buffer(slot).rows()
    }

    /// Columns of a slot.
    #[must_use]
    pub fn columns(&self, slot: &str) -> usize {
        self.buffer(slot).columns()
    }

    /// Distance between rows of a slot, in elements; 0 when the step lacks it.
    #[must_use]
    pub fn row_stride(&self, slot: &str) -> usize {
        self.id(slot).map_or(0, |id| self.plan.row_stride(id))
    }

    /// Element type of a slot.
    #[must_use]
    pub fn dtype(&self, slot: &str) -> Dtype {
        self.buffer(slot).dtype
    }

    /// How a slot is written.
    #[must_use]
    pub fn mode(&self, slot: &str) -> Option<Mode> {
        self.step.writes.iter().find(|write| write.slot == slot).map(|write| write.mode)
    }

    /// Bytes that the step reads and writes, each buffer once, accumulated ones twice, scratch not at all.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn bytes(&self) -> f64 {
        let counted = |id: BufferId| {
            let buffer = self.plan.buffer(id);
            if buffer.role == Role::Scratch { 0.0 } else { buffer.bytes() as f64 }
        };
        let reads: f64 = self.step.reads.iter().map(|read| counted(read.buffer)).sum();
        let writes = self.step.writes.iter().map(|write| {
            let passes = if write.mode == Mode::Accumulate { 2.0 } else { 1.0 };
            passes * counted(write.buffer)
        });
        reads + writes.sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::add::Add;

    fn step(reads: [BufferId; 2], write: BufferId, mode: Mode, phase: Phase) -> Step {
        Step {
            op: Add.into(),
            reads: vec![Read { slot: "a", buffer: reads[0] }, Read { slot: "b", buffer: reads[1] }],
            writes: vec![Write { slot: "y", buffer: write, mode }],
            phase,
        }
    }

    #[test]
    fn check_finds_a_read_before_a_write() {
        let mut plan = Plan::default();
        let a = plan.add("a", vec![2, 4], Dtype::Fp32, Role::Input);
        let b = plan.add("b", vec![2, 8], Dtype::Fp32, Role::Activation);
        let left = plan.add_view("b.left", b, 0..4);
        let right = plan.add_view("b.right", b, 4..8);
        plan.steps.push(step([a, a], left, Mode::Overwrite, Phase::Forward));
        assert_eq!(plan.check(), Ok(()));
        plan.steps.push(step([left, right], right, Mode::Overwrite, Phase::Forward));
        assert!(plan.check().is_err_and(|error| error.contains("reads `b.right`")));
        plan.steps[1] = step([left, left], right, Mode::Accumulate, Phase::Forward);
        assert!(plan.check().is_err_and(|error| error.contains("adds to `b.right`")));
        plan.steps[1] = step([left, left], right, Mode::Overwrite, Phase::Prepare);
        assert!(plan.check().is_err_and(|error| error.contains("follows forward")));
    }

    #[test]
    fn a_step_in_a_micro_batch_replaces_or_adds() {
        let a = BufferId(0);
        for (mode, first, later) in [
            (Mode::Overwrite, Mode::Overwrite, Mode::Overwrite),
            (Mode::Accumulate, Mode::Accumulate, Mode::Accumulate),
            (Mode::AccumulateLater, Mode::Overwrite, Mode::Accumulate),
        ] {
            let plain = step([a, a], a, mode, Phase::Backward);
            for (micro, wanted) in [(MicroStep::First, first), (MicroStep::Later, later)] {
                assert_eq!(plain.at(micro), step([a, a], a, wanted, Phase::Backward), "{mode:?} {micro:?}");
            }
        }
    }

    #[test]
    fn ranges_cover_only_without_gaps() {
        assert!(covers(&[4..8, 0..4], &(1..7)));
        assert!(!covers(&[5..8, 0..4], &(1..7)));
        assert!(covers(&[], &(3..3)));
    }
}
