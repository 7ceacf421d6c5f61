//! The executor that defines every op: naive, single-threaded, in f32 or f64.
//!
//! In: a plan. Out: the content of any buffer. With rounding on it follows the element types of the plan, to predict
//! a GPU. Scratch buffers are left alone.

use crate::buffer::{BufferId, Role};
use crate::dtype::Dtype;
use crate::executor::{Executor, ExecutorError, MicroStep, PlanId, Values};
use crate::float::Float;
use crate::plan::{Plan, Step, Write};
use std::collections::HashMap;
use std::ops::Range;

/// What an op returns: the content of each slot it writes, row-major and complete.
pub type Outputs<F> = Vec<(&'static str, Vec<F>)>;

/// What an op reads: the content of each slot, row-major.
#[derive(Debug)]
pub struct Inputs<F> {
    slots: Vec<(&'static str, Vec<F>, (usize, usize))>,
    wanted: Vec<(&'static str, (usize, usize))>,
    added: Vec<(&'static str, Vec<F>)>,
    operands: Option<(Dtype, f64)>,
}

impl<F: Float> Inputs<F> {
    /// The content of a slot that the op always has.
    ///
    /// # Panics
    /// When the step lacks it.
    #[must_use]
    pub fn get(&self, slot: &str) -> &[F] {
        match self.find(slot) {
            Some(values) => values,
            None => panic!("the step has no `{slot}`"),
        }
    }

    /// The content of an optional slot.
    #[must_use]
    pub fn find(&self, slot: &str) -> Option<&[F]> {
        self.slots.iter().find(|(name, ..)| *name == slot).map(|(_, values, _)| values.as_slice())
    }

    /// The contents of all slots of that name.
    pub fn all(&self, slot: &str) -> impl Iterator<Item = &[F]> {
        self.slots.iter().filter(move |(name, ..)| *name == slot).map(|(_, values, _)| values.as_slice())
    }

    /// The slots that the step writes, in their order.
    pub fn written(&self) -> impl Iterator<Item = &'static str> {
        self.wanted.iter().map(|(slot, _)| *slot)
    }

    /// What a slot that the step writes held before, where the result is added to it.
    #[must_use]
    pub fn added_to(&self, slot: &str) -> Option<&[F]> {
        self.added.iter().find(|(name, _)| *name == slot).map(|(_, values)| values.as_slice())
    }

    /// Does the step write this slot?
    #[must_use]
    pub fn wants(&self, slot: &str) -> bool {
        self.wanted.iter().any(|(name, _)| *name == slot)
    }

    /// Rows and columns of a slot it reads; (0, 0) when the step lacks it.
    #[must_use]
    pub fn dims(&self, slot: &str) -> (usize, usize) {
        self.slots.iter().find(|(name, ..)| *name == slot).map_or((0, 0), |(_, _, dims)| *dims)
    }

    /// Rows and columns of a slot it writes; (0, 0) when the step lacks it.
    #[must_use]
    pub fn output_dims(&self, slot: &str) -> (usize, usize) {
        self.wanted.iter().find(|(name, _)| *name == slot).map_or((0, 0), |(_, dims)| *dims)
    }

    /// A slot of whole numbers.
    ///
    /// # Panics
    /// When the step lacks it.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub fn integers(&self, slot: &str) -> Vec<i64> {
        self.get(slot).iter().map(|value| value.f64() as i64).collect()
    }

    /// `value` as a tensor core would take it.
    #[must_use]
    pub fn operand(&self, value: F) -> F {
        let Some((dtype, grid)) = self.operands else { return value };
        let (exact, rounded) = (value.f64(), dtype.round(value.f64()));
        let is_on_grid = rounded == exact || grid == 1.0;
        F::of(if is_on_grid { rounded } else { dtype.round(exact * grid) / grid })
    }
}

/// What the reference rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rounding {
    /// Nothing beyond its own number type.
    None,
    /// Every write to the buffer's element type, and operands of matrix products to this type.
    Follow(Dtype),
    /// As `Follow`, but numbers that an op computes and that are operands then are multiplied by this before they are
    /// rounded, and divided by it afterwards: as large an error, and another one.
    OnGrid(Dtype, f64),
}

/// The naive executor.
#[derive(Debug)]
pub struct Reference<F> {
    rounding: Rounding,
    plans: Vec<Loaded<F>>,
    shared: HashMap<String, Vec<F>>,
}

#[derive(Debug)]
struct Loaded<F> {
    plan: Plan,
    /// Content of every base buffer that no other plan shares.
    own: Vec<Vec<F>>,
}

impl<F: Float> Reference<F> {
    /// An executor without plans.
    #[must_use]
    pub fn new(rounding: Rounding) -> Self {
        Self { rounding, plans: Vec::new(), shared: HashMap::new() }
    }

    /// Rounds otherwise from now on.
    pub fn round(&mut self, rounding: Rounding) {
        self.rounding = rounding;
    }

    /// The content of a buffer at full precision.
    #[must_use]
    pub fn values(&self, plan: PlanId, buffer: BufferId) -> Vec<F> {
        let loaded = &self.plans[plan.0];
        let (base, _) = loaded.plan.base(buffer);
        let owner = loaded.plan.buffer(base);
        let content = if owner.role.is_shared() { &self.shared[&owner.name] } else { &loaded.own[base.0] };
        if base == buffer {
            return content.clone();
        }
        let columns = loaded.plan.columns(buffer);
        content.chunks(owner.columns()).flat_map(|row| row[columns.clone()].iter().copied()).collect()
    }

    /// Sets the content of a buffer at full precision; `mode` says whether it is added.
    pub fn set(&mut self, plan: PlanId, buffer: BufferId, values: &[F], add: bool) {
        let loaded = &mut self.plans[plan.0];
        let (base, _) = loaded.plan.base(buffer);
        let columns = loaded.plan.columns(buffer);
        let owner = loaded.plan.buffer(base);
        let (dtype, width) = (owner.dtype, owner.columns());
        let content = match owner.role.is_shared() {
            true => self.shared.entry(owner.name.clone()).or_default(),
            false => &mut loaded.own[base.0],
        };
        let rows = content.chunks_mut(width.max(1)).zip(values.chunks(columns.len().max(1)));
        for (row, values) in rows {
            for (slot, value) in row[columns.clone()].iter_mut().zip(values) {
                let sum = if add { *slot + *value } else { *value };
                *slot = match self.rounding {
                    Rounding::None => sum,
                    Rounding::Follow(_) | Rounding::OnGrid(..) => F::of(dtype.round(sum.f64())),
                };
            }
        }
    }

    fn step(&mut self, plan: PlanId, step: &Step, micro: MicroStep) -> Result<(), ExecutorError> {
        let dims = |buffer: BufferId| {
            let buffer = self.plans[plan.0].plan.buffer(buffer);
            (buffer.rows(), buffer.columns())
        };
        let slots = step.reads.iter();
        let slots =
            slots.map(|read| (read.slot, self.values(plan, read.buffer), dims(read.buffer))).collect();
        let operands = match self.rounding {
            Rounding::None => None,
            Rounding::Follow(dtype) => Some((dtype, 1.0)),
            Rounding::OnGrid(dtype, grid) => Some((dtype, grid)),
        };
        let wanted = step.writes.iter().map(|write| (write.slot, dims(write.buffer))).collect();
        let is_added = |write: &&Write| {
            write.mode.adds(micro) && self.plans[plan.0].plan.buffer(write.buffer).role != Role::Scratch
        };
        let added = step.writes.iter().filter(is_added);
        let added = added.map(|write| (write.slot, self.values(plan, write.buffer))).collect();
        let inputs = Inputs { slots, wanted, added, operands };
        let outputs = step.op.reference(&inputs).map_err(ExecutorError::Data)?;
        for (index, write) in step.writes.iter().enumerate() {
            let buffer = self.plans[plan.0].plan.buffer(write.buffer);
            if buffer.role == Role::Scratch {
                continue;
            }
            // A slot that comes several times takes the outputs of its name in their order.
            let before = step.writes[..index].iter().filter(|other| other.slot == write.slot).count();
            let Some((_, values)) = outputs.iter().filter(|(slot, _)| *slot == write.slot).nth(before) else {
                let (op, slot) = (step.op.name(), write.slot);
                return Err(ExecutorError::Plan(format!("the reference of `{op}` does not write `{slot}`")));
            };
            if values.len() != buffer.len() {
                let (op, slot, found, expected) = (step.op.name(), write.slot, values.len(), buffer.len());
                return Err(ExecutorError::Plan(format!(
                    "the reference of `{op}` writes {found} values to `{slot}`, which has {expected}"
                )));
            }
            self.set(plan, write.buffer, values, write.mode.adds(micro));
        }
        Ok(())
    }
}

impl<F: Float> Executor for Reference<F> {
    fn load(&mut self, plan: Plan) -> Result<PlanId, ExecutorError> {
        plan.check().map_err(ExecutorError::Plan)?;
        let mut own = vec![Vec::new(); plan.buffers.len()];
        for (index, buffer) in plan.buffers.iter().enumerate().filter(|(_, b)| b.view.is_none()) {
            if !buffer.role.is_shared() {
                let initial = if buffer.role.is_persistent() { 0.0 } else { f64::NAN };
                own[index] = vec![F::of(initial); buffer.len()];
                continue;
            }
            let initial = || vec![F::of(f64::from(buffer.initial)); buffer.len()];
            let content = self.shared.entry(buffer.name.clone()).or_insert_with(initial);
            if content.len() != buffer.len() {
                return Err(ExecutorError::Mismatch {
                    buffer: buffer.name.clone(),
                    before: format!("{} elements", content.len()),
                    now: format!("{} elements", buffer.len()),
                });
            }
        }
        self.plans.push(Loaded { plan, own });
        Ok(PlanId(self.plans.len() - 1))
    }

    fn plan(&self, plan: PlanId) -> &Plan {
        &self.plans[plan.0].plan
    }

    fn write(&mut self, plan: PlanId, buffer: BufferId, values: Values<'_>) -> Result<(), ExecutorError> {
        values.check(self.plans[plan.0].plan.buffer(buffer))?;
        let values: Vec<F> = match values {
            Values::Float(values) => values.iter().map(|value| F::of(f64::from(*value))).collect(),
            Values::Int(values) => values.iter().map(|value| F::of(f64::from(*value))).collect(),
        };
        self.set(plan, buffer, &values, false);
        Ok(())
    }

    #[allow(clippy::cast_possible_truncation)]
    fn read(&self, plan: PlanId, buffer: BufferId) -> Result<Vec<f32>, ExecutorError> {
        Ok(self.values(plan, buffer).iter().map(|value| value.f64() as f32).collect())
    }

    fn run(&mut self, plan: PlanId, steps: Range<usize>, micro: MicroStep) -> Result<(), ExecutorError> {
        for index in steps {
            let step = self.plans[plan.0].plan.steps[index].clone();
            self.step(plan, &step, micro)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_grid_rounds_otherwise_but_leaves_what_needs_no_rounding() {
        let inputs = |grid| Inputs::<f64> {
            slots: Vec::new(),
            wanted: Vec::new(),
            added: Vec::new(),
            operands: Some((Dtype::Bf16, grid)),
        };
        for value in [1.0, -0.75, 1.0 + 0.5_f64.powi(7), 0.0, f64::INFINITY] {
            assert_eq!(inputs(1.37).operand(value), value);
        }
        let third = 1.0 / 3.0;
        let (plain, other) = (inputs(1.0).operand(third), inputs(1.37).operand(third));
        assert_eq!(plain, Dtype::Bf16.round(third));
        assert!(plain != other && (other - third).abs() < Dtype::Bf16.epsilon() * third, "{plain} {other}");
    }
}
