//! Holds an executor to the definition of every op, step by step.
//!
//! In: a plan, its inputs, and an executor that holds the plan too. Out: for each buffer that a step writes, how far it
//! is off. Every step starts from equal inputs, which all number types of the plan hold exactly, so that a difference is
//! the step's own.
//!
//! Tolerance: twice the error of the reference in f32 with operands and results rounded to the plan's types, plus 4 units
//! in the last place of the greatest true value; likewise for the root of the mean square. It comes from the types, never
//! from what passes. The truth is the reference in f64. Where few rounded numbers decide, their error is a matter of luck:
//! if that of the first reference does not suffice, those of some that round on other grids count as well, the greatest
//! of them. What is zero by cancellation has no scale of its own: it is measured by the greatest number that the step
//! writes, times the root of a row's columns, by which the errors of the sums that cancel grow. Long because what is compared and how much it may
//! differ are one thought.

use crate::buffer::{BufferId, Role};
use crate::chain;
use crate::dtype::Dtype;
use crate::executor::{Executor, ExecutorError, MicroStep, PlanId, Values};
use crate::passes::memory::lifetimes;
use crate::plan::{Mode, Plan, Step, Write};
use crate::reference::{Reference, Rounding};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

/// What numbers are multiplied by before they are rounded, to have them rounded otherwise: between powers of two.
const GRIDS: &[f64] = &[1.19, 1.37, 1.61, 1.83];

/// The definition of a plan's ops, beside which an executor runs.
#[derive(Debug)]
pub struct Lockstep {
    truth: Reference<f64>,
    rounded: Reference<f32>,
    narrow: Dtype,
    id: PlanId,
    born: Vec<Option<Range<usize>>>,
}

/// Who hears what came of the last way to do a step, makes the executor do it in another, and says whether it is to.
pub type Next<'a, E> = &'a mut dyn FnMut(&mut E, Option<Outcome>) -> Result<bool, ExecutorError>;

/// A step that the references have run.
struct Told {
    index: usize,
    micro: MicroStep,
    step: Step,
    /// What its base buffers held before.
    before: Vec<(BufferId, Vec<f64>)>,
    /// How far the rounded reference is off in each buffer that is compared.
    errors: Vec<Vec<f64>>,
    /// Grids that it may still be rounded on.
    grids: std::slice::Iter<'static, f64>,
}

/// How one buffer that a step wrote compares.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Index of the step.
    pub step: usize,
    /// Its op.
    pub op: &'static str,
    /// The op's name for the buffer.
    pub slot: &'static str,
    /// The buffer's own name.
    pub buffer: String,
    /// Its element type.
    pub dtype: Dtype,
    /// Elements compared.
    pub elements: usize,
    /// The greatest error as a share of what is allowed; or that of the root of the mean square, where it is greater.
    pub share: f64,
    /// The greatest error.
    pub error: f64,
    /// What is allowed of it.
    pub allowed: f64,
    /// Where it is.
    pub index: usize,
    /// The true value there.
    pub expected: f64,
    /// What the executor has there.
    pub found: f64,
}

impl Row {
    /// Is everything within the tolerance? Not, where a share is no number.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.share <= 1.0
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, op, slot, buffer, dtype, index, expected, found, share, elements, .. } = self;
        write!(
            f,
            "step {step}, `{op}`, {} `{slot}` (`{buffer}`), index {index} of {elements}: expected {expected:e}, found \
             {found:e}, {share:.2} of the tolerance",
            dtype.name()
        )
    }
}

/// What came of a step.
#[derive(Debug)]
pub enum Outcome {
    /// It ran.
    Compared {
        /// A row for each buffer it writes, but for scratch.
        rows: Vec<Row>,
        /// What it changed and should not have, in words.
        strays: Vec<String>,
    },
    /// The executor has no kernel for it; why, in words.
    NoKernel(String),
    /// It failed.
    Failed(ExecutorError),
}

impl Outcome {
    /// The first thing that is wrong, in words.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        match self {
            Self::Compared { rows, strays } => {
                let row = rows.iter().find(|row| !row.passes()).map(ToString::to_string);
                row.or_else(|| strays.first().cloned())
            }
            Self::NoKernel(_) => None,
            Self::Failed(error) => Some(chain(error)),
        }
    }
}

impl Lockstep {
    /// Loads the plan.
    ///
    /// # Errors
    /// When it is not sound.
    pub fn new(plan: &Plan) -> Result<Self, ExecutorError> {
        let narrow = plan.buffers.iter().map(|buffer| buffer.dtype).find(|dtype| dtype.bytes() < 4);
        let mut truth = Reference::new(Rounding::None);
        let narrow = narrow.unwrap_or(Dtype::Fp32);
        let mut rounded = Reference::new(Rounding::Follow(narrow));
        let id = truth.load(plan.clone())?;
        rounded.load(plan.clone())?;
        Ok(Self { truth, rounded, narrow, id, born: lifetimes(plan) })
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.truth.plan(self.id)
    }

    /// Sets the content of a buffer, rounded to its type; the executor gets it with the step that reads it.
    ///
    /// # Errors
    /// When length or kind differ from the buffer's.
    pub fn write(&mut self, buffer: BufferId, values: Values<'_>) -> Result<(), ExecutorError> {
        self.truth.write(self.id, buffer, values)?;
        let exact = self.truth.values(self.id, buffer);
        self.set(buffer, &exact);
        Ok(())
    }

    /// The content of a buffer, of which the types of the plan are true.
    #[must_use]
    pub fn values(&self, buffer: BufferId) -> Vec<f64> {
        self.truth.values(self.id, buffer)
    }

    fn set(&mut self, buffer: BufferId, values: &[f64]) {
        let dtype = self.plan().buffer(buffer).dtype;
        let values: Vec<f64> = values.iter().map(|value| dtype.round(*value)).collect();
        self.truth.set(self.id, buffer, &values, false);
        let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        self.rounded.set(self.id, buffer, &values, false);
    }

    /// Runs one step on the references and on `executor`, which holds the same plan as `plan`, and compares what it
    /// wrote and that it wrote nothing else.
    ///
    /// # Errors
    /// When the reference refuses the data, or the executor to have its buffers written or read.
    pub fn step(
        &mut self,
        executor: &mut dyn Executor,
        plan: PlanId,
        index: usize,
        micro: MicroStep,
    ) -> Result<Outcome, ExecutorError> {
        let mut found = None;
        self.step_repeatedly(executor, plan, (index, micro), &mut |_, outcome| {
            found = outcome;
            Ok(found.is_none())
        })?;
        Ok(found.unwrap_or(Outcome::NoKernel(String::new())))
    }

    /// The same of several ways in which an executor may do the step, each from the same inputs: `next` hears what came of the last
    /// one, makes the executor do the step in another way, and says whether it is to be done; the references run once.
    ///
    /// # Errors
    /// As [`Lockstep::step`], and those of `next`.
    pub fn step_repeatedly<E: Executor + ?Sized>(
        &mut self,
        executor: &mut E,
        plan: PlanId,
        (index, micro): (usize, MicroStep),
        next: Next<'_, E>,
    ) -> Result<(), ExecutorError> {
        let step = self.plan().steps[index].at(micro);
        let buffers = step.reads.iter().map(|read| read.buffer).chain(step.writes.iter().map(|w| w.buffer));
        let bases: BTreeSet<BufferId> = buffers.map(|id| self.plan().base(id).0).collect();
        for base in &bases {
            let is_new = self.born[base.0].as_ref().is_some_and(|life| life.start == index);
            if is_new && !self.plan().buffer(*base).role.is_persistent() {
                self.set(*base, &vec![f64::NAN; self.plan().buffer(*base).len()]);
            }
        }
        let before: Vec<(BufferId, Vec<f64>)> =
            bases.iter().map(|base| (*base, self.values(*base))).collect();
        self.truth.run(self.id, index..index + 1, micro)?;
        self.rounded.run(self.id, index..index + 1, micro)?;
        let written =
            step.writes.iter().filter(|write| self.plan().buffer(write.buffer).role != Role::Scratch);
        let errors = written.map(|write| self.rounding_errors(write)).collect();
        let mut told = Told { index, micro, step, before, errors, grids: GRIDS.iter() };
        let mut outcome = None;
        while next(executor, outcome.take())? {
            for (base, values) in &told.before {
                self.hand_over(executor, plan, (*base, values), &told.step)?;
            }
            outcome = Some(match executor.run(plan, index..index + 1, micro) {
                Err(ExecutorError::NoKernel { why, .. }) => Outcome::NoKernel(why),
                Err(error) => Outcome::Failed(error),
                Ok(()) => self.compare(executor, plan, &mut told)?,
            });
        }
        for write in &told.step.writes {
            if self.plan().buffer(write.buffer).role != Role::Scratch {
                let exact = self.values(write.buffer);
                self.set(write.buffer, &exact);
            }
        }
        Ok(())
    }

    /// Compares what a step, which the references have run too, left in `executor`.
    fn compare<E: Executor + ?Sized>(
        &mut self,
        executor: &E,
        plan: PlanId,
        told: &mut Told,
    ) -> Result<Outcome, ExecutorError> {
        let Told { index, micro, step, before, errors, grids } = told;
        let mut found = Vec::new();
        for write in &step.writes {
            if self.plan().buffer(write.buffer).role != Role::Scratch {
                found.push((write, executor.read(plan, write.buffer)?));
            }
        }
        let mut rows = self.rows(*index, step, &found, errors);
        while self.narrow != Dtype::Fp32 && !rows.iter().all(Row::passes) {
            let Some(grid) = grids.next() else { break };
            self.rounded.round(Rounding::OnGrid(self.narrow, *grid));
            for (base, values) in before.iter() {
                let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
                self.rounded.set(self.id, *base, &values, false);
            }
            self.rounded.run(self.id, *index..*index + 1, *micro)?;
            self.rounded.round(Rounding::Follow(self.narrow));
            for ((write, _), errors) in found.iter().zip(errors.iter_mut()) {
                let others = self.rounding_errors(write);
                if greatest(&others) > greatest(errors) {
                    *errors = others;
                }
            }
            rows = self.rows(*index, step, &found, errors);
        }
        let mut strays = Vec::new();
        for (base, before) in before.iter() {
            let after = executor.read(plan, *base)?;
            strays.extend(stray(self.plan(), step, *base, before, &after));
        }
        Ok(Outcome::Compared { rows, strays })
    }

    /// Runs steps in order and stops at the first that differs; `None` where none does.
    ///
    /// # Errors
    /// As [`Lockstep::step`].
    pub fn first_fault(
        &mut self,
        executor: &mut dyn Executor,
        plan: PlanId,
        steps: Range<usize>,
        micro: MicroStep,
    ) -> Result<Option<String>, ExecutorError> {
        for index in steps {
            if let Some(fault) = self.step(executor, plan, index, micro)?.fault() {
                return Ok(Some(fault));
            }
        }
        Ok(None)
    }

    /// Gives the executor a base buffer with what was there before the step; what the step replaces is no number.
    fn hand_over<E: Executor + ?Sized>(
        &self,
        executor: &mut E,
        plan: PlanId,
        (base, before): (BufferId, &[f64]),
        step: &Step,
    ) -> Result<(), ExecutorError> {
        let buffer = self.plan().buffer(base);
        let mut values: Vec<f32> = before.iter().map(|value| *value as f32).collect();
        if buffer.dtype.is_integer() {
            let values: Vec<i32> = values.iter().map(|value| *value as i32).collect();
            return executor.write(plan, base, Values::Int(&values));
        }
        let columns = buffer.columns().max(1);
        let of = |id: BufferId| self.plan().base(id).0 == base;
        for (index, value) in values.iter_mut().enumerate() {
            let holds = |id: BufferId| of(id) && self.plan().columns(id).contains(&(index % columns));
            let is_read = step.reads.iter().any(|read| holds(read.buffer));
            let is_replaced =
                step.writes.iter().any(|write| write.mode == Mode::Overwrite && holds(write.buffer));
            if is_replaced && !is_read {
                *value = f32::NAN;
            }
        }
        executor.write(plan, base, Values::Float(&values))
    }

    /// How far the rounded reference is off in a buffer, where the truth is a number.
    fn rounding_errors(&self, write: &Write) -> Vec<f64> {
        let dtype = self.plan().buffer(write.buffer).dtype;
        let truth = self.truth.values(self.id, write.buffer);
        let rounded = self.rounded.values(self.id, write.buffer);
        let errors = truth.iter().zip(rounded).map(|(a, b)| difference(dtype, *a, f64::from(b)));
        finite(errors)
    }

    /// A row for each buffer that was found, given the errors of the rounded reference.
    fn rows(&self, step: usize, of: &Step, found: &[(&Write, Vec<f32>)], base: &[Vec<f64>]) -> Vec<Row> {
        let sizes: Vec<Vec<f64>> = found.iter().map(|(write, _)| finite(self.values(write.buffer))).collect();
        let scale = sizes.iter().map(|size| greatest(size)).fold(0.0, f64::max);
        let rows = found.iter().zip(base).zip(&sizes);
        let rows = rows.map(|(((write, found), base), size)| {
            let buffer = self.plan().buffer(write.buffer);
            let dtype = buffer.dtype;
            let truth = self.values(write.buffer);
            let errors: Vec<f64> =
                truth.iter().zip(found).map(|(a, b)| difference(dtype, *a, f64::from(*b))).collect();
            let (error, error_rms) = (greatest(&errors), root_mean_square(&errors));
            let unit = 4.0 * dtype.epsilon();
            let is_zero = greatest(size) == 0.0;
            let sums = 4.0 * Dtype::Fp32.epsilon() * scale * (buffer.columns() as f64).sqrt();
            let floor = if is_zero { sums } else { 0.0 };
            let allowed = 2.0 * greatest(base) + unit * greatest(size) + floor;
            let allowed_rms = 2.0 * root_mean_square(base) + unit * root_mean_square(size) + floor;
            let share = |error: f64, allowed: f64| if error == 0.0 { 0.0 } else { error / allowed };
            let at = errors.iter().position(|one| *one == error || one.is_nan()).unwrap_or(0);
            Row {
                step,
                op: of.op.name(),
                slot: write.slot,
                buffer: buffer.name.clone(),
                dtype,
                elements: truth.len(),
                share: greatest(&[share(error, allowed), share(error_rms, allowed_rms)]),
                error,
                allowed,
                index: at,
                expected: truth.get(at).copied().unwrap_or(0.0),
                found: found.get(at).copied().map_or(0.0, f64::from),
            }
        });
        rows.collect()
    }
}

/// Sizes of numbers, 0 for one that is not finite.
fn finite(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    values.into_iter().map(|value| if value.is_finite() { value.abs() } else { 0.0 }).collect()
}

/// The distance of `found` from the truth; none from what lies beyond the type's numbers to infinity, and none between
/// two that are no numbers.
fn difference(dtype: Dtype, truth: f64, found: f64) -> f64 {
    let same = truth.is_nan() && found.is_nan() || !found.is_finite() && dtype.round(truth) == found;
    if same { 0.0 } else { (truth - found).abs() }
}

/// The greatest; no number, where there is one.
fn greatest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, value| if *value > most || value.is_nan() { *value } else { most })
}

fn root_mean_square(values: &[f64]) -> f64 {
    (values.iter().map(|value| value * value).sum::<f64>() / values.len().max(1) as f64).sqrt()
}

/// The first element of a base buffer that changed although the step does not write it.
fn stray(plan: &Plan, step: &Step, base: BufferId, before: &[f64], after: &[f32]) -> Option<String> {
    let buffer = plan.buffer(base);
    let columns = buffer.columns().max(1);
    let is_written = |index: usize| {
        let holds = |id: BufferId| plan.base(id).0 == base && plan.columns(id).contains(&(index % columns));
        step.writes.iter().any(|write| holds(write.buffer))
    };
    let changed = before.iter().zip(after).enumerate().find(|(index, (before, after))| {
        let after = f64::from(**after);
        **before != after && !(before.is_nan() && after.is_nan()) && !is_written(*index)
    });
    changed.map(|(index, (before, after))| {
        let (op, name) = (step.op.name(), &buffer.name);
        format!(
            "`{op}` changes index {index} of `{name}` from {before:e} to {after:e}, and does not write it"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Case, Fill, case};
    use crate::ops::add::Add;

    /// An executor that spoils one element after each step.
    struct Wrong {
        right: Reference<f32>,
        plan: PlanId,
        buffer: BufferId,
        index: usize,
        by: f32,
    }

    impl Executor for Wrong {
        fn load(&mut self, plan: Plan) -> Result<PlanId, ExecutorError> {
            self.right.load(plan)
        }
        fn plan(&self, plan: PlanId) -> &Plan {
            self.right.plan(plan)
        }
        fn write(&mut self, plan: PlanId, id: BufferId, values: Values<'_>) -> Result<(), ExecutorError> {
            self.right.write(plan, id, values)
        }
        fn read(&self, plan: PlanId, id: BufferId) -> Result<Vec<f32>, ExecutorError> {
            self.right.read(plan, id)
        }
        fn run(&mut self, id: PlanId, steps: Range<usize>, micro: MicroStep) -> Result<(), ExecutorError> {
            self.right.run(id, steps, micro)?;
            let mut values = self.right.values(self.plan, self.buffer);
            values[self.index] += self.by;
            self.right.set(self.plan, self.buffer, &values, false);
            Ok(())
        }
    }

    fn sum() -> Case {
        let shapes = ["a", "b"].map(|slot| (slot, vec![3, 8], Fill::Values(vec![0.75; 24])));
        case("3x8", Add, &shapes, &[("y", vec![3, 8])])
    }

    fn fault(buffer: &str, by: f32) -> Option<String> {
        let case = sum();
        let mut lockstep = Lockstep::new(&case.plan).ok()?;
        let (plan, buffer) = (PlanId(0), case.plan.find(buffer)?);
        let mut wrong = Wrong { right: Reference::new(Rounding::None), plan, buffer, index: 13, by };
        wrong.load(case.plan.clone()).ok()?;
        for (buffer, content) in case.content(1) {
            lockstep.write(buffer, content.values()).ok()?;
        }
        lockstep.first_fault(&mut wrong, plan, 0..1, MicroStep::First).ok()?
    }

    #[test]
    fn a_difference_is_told_with_op_type_index_values_and_share() {
        let ulp = 2.0 * f32::EPSILON;
        assert_eq!(fault("y", 2.0 * ulp), None, "a few units are no difference");
        let found = fault("y", 40.0 * ulp).unwrap_or_default();
        let expected = "step 0, `add`, fp32 `y` (`y`), index 13 of 24: expected 1.5e0, found 1.500009536743164e0, \
                        13.33 of the tolerance";
        assert_eq!(found, expected);
        let found = fault("y", f32::NAN).unwrap_or_default();
        assert!(found.contains("found NaN, NaN of the tolerance"), "{found}");
    }

    #[test]
    fn what_a_step_does_not_write_is_not_to_change() {
        let found = fault("a", 1.0).unwrap_or_default();
        assert_eq!(found, "`add` changes index 13 of `a` from 7.5e-1 to 1.75e0, and does not write it");
    }

    #[test]
    fn overflow_to_infinity_is_as_good_as_the_truth() {
        assert_eq!(difference(Dtype::Fp16, 70_000.0, f64::INFINITY), 0.0);
        assert!(difference(Dtype::Fp16, 60_000.0, f64::INFINITY).is_infinite());
        assert!(difference(Dtype::Fp16, -70_000.0, f64::INFINITY).is_infinite());
        assert!(difference(Dtype::Bf16, 1.0, f64::NAN).is_nan());
    }
}
