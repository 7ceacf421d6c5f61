//! A queue over an executor on the host: memory is the host's, and a call is done when it returns.
//!
//! In: an executor that computes in fp32. Out: the same calls as on a GPU; elements are rounded as they are written.

use super::{Given, Queue};
use crate::cuda::elements::{decode, encode};
use crate::driver::{Address, Allocation};
use kernwright_plan::buffer::BufferId;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId, Values};
use kernwright_plan::measure::{Mark, Usage};
use kernwright_plan::plan::Plan;
use std::time::Instant;

/// Makes an executor without plans.
pub type Make = Box<dyn Fn() -> Result<Box<dyn Executor>, ExecutorError>>;

/// Runs plans through executors on the host, one for each plan.
pub struct Host {
    make: Make,
    plans: Vec<Option<(Box<dyn Executor>, PlanId)>>,
    memory: Vec<Option<Vec<u8>>>,
    start: Instant,
}

impl Host {
    /// A queue without memory and plans.
    #[must_use]
    pub fn new(make: Make) -> Self {
        Self { make, plans: Vec::new(), memory: Vec::new(), start: Instant::now() }
    }

    fn bytes(&self, at: Address, n: usize) -> Result<&[u8], ExecutorError> {
        let held = self.memory.get(at.allocation.0).and_then(Option::as_ref);
        held.and_then(|held| held.get(at.offset..at.offset.checked_add(n)?)).ok_or_else(|| outside(at, n))
    }

    fn run(&mut self, executor: &mut dyn Executor, id: PlanId, given: &[Given]) -> Result<(), ExecutorError> {
        let plan = executor.plan(id);
        let (reads, writes) = (touched(plan, given, false), touched(plan, given, true));
        let n_steps = plan.steps.len();
        for (one, n) in reads {
            let bytes = self.bytes(one.at, n * one.dtype.bytes())?;
            let mut values = Vec::with_capacity(n);
            decode(one.dtype, bytes, &mut values);
            executor.write(id, one.buffer, Values::Float(&values))?;
        }
        executor.run(id, 0..n_steps, MicroStep::First)?;
        for (one, n) in writes {
            let values = executor.read(id, one.buffer)?;
            let encoded = encode(one.dtype, Values::Float(&values));
            self.bytes_mut(one.at, n * one.dtype.bytes())?.copy_from_slice(&encoded);
        }
        Ok(())
    }

    fn bytes_mut(&mut self, at: Address, n: usize) -> Result<&mut [u8], ExecutorError> {
        let held = self.memory.get_mut(at.allocation.0).and_then(Option::as_mut);
        held.and_then(|held| held.get_mut(at.offset..at.offset.checked_add(n)?)).ok_or_else(|| outside(at, n))
    }
}

fn outside(at: Address, n: usize) -> ExecutorError {
    ExecutorError::Plan(format!("{n} bytes from byte {} on lie outside of their memory", at.offset))
}

/// The given buffers that a plan reads, or that it writes.
fn touched(plan: &Plan, given: &[Given], writes: bool) -> Vec<(Given, usize)> {
    let is_touched = |id: BufferId| {
        let mut reads = plan.steps.iter().flat_map(|step| &step.reads).map(|read| read.buffer);
        let mut written = plan.steps.iter().flat_map(|step| &step.writes).map(|write| write.buffer);
        if writes {
            written.any(|other| plan.base(other).0 == id)
        } else {
            reads.any(|other| plan.base(other).0 == id)
        }
    };
    let of = given.iter().filter(|one| is_touched(one.buffer));
    of.map(|one| (*one, plan.buffer(one.buffer).len())).collect()
}

impl Queue for Host {
    fn prepare(&mut self, plan: Plan) -> Result<PlanId, ExecutorError> {
        let mut executor = (self.make)()?;
        let id = executor.load(plan)?;
        self.plans.push(Some((executor, id)));
        Ok(PlanId(self.plans.len() - 1))
    }

    fn forget(&mut self, plan: PlanId) {
        if let Some(held) = self.plans.get_mut(plan.0) {
            *held = None;
        }
    }

    fn take(&mut self, _name: &str, bytes: usize) -> Result<Allocation, ExecutorError> {
        let mut room = Vec::new();
        room.try_reserve_exact(bytes).map_err(|_| ExecutorError::Memory { needed: bytes })?;
        room.resize(bytes, 0);
        self.memory.push(Some(room));
        Ok(Allocation(self.memory.len() - 1))
    }

    fn give_back(&mut self, memory: Allocation) {
        if let Some(held) = self.memory.get_mut(memory.0) {
            *held = None;
        }
    }

    fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<(), ExecutorError> {
        self.bytes_mut(to, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), ExecutorError> {
        bytes.copy_from_slice(self.bytes(from, bytes.len())?);
        Ok(())
    }

    fn call(&mut self, plan: PlanId, given: &[Given]) -> Result<(), ExecutorError> {
        let held = self.plans.get_mut(plan.0).and_then(Option::take);
        let (mut executor, id) = held.ok_or_else(|| ExecutorError::Plan("it was dropped".to_owned()))?;
        let result = self.run(executor.as_mut(), id, given);
        self.plans[plan.0] = Some((executor, id));
        result
    }

    #[allow(clippy::cast_possible_truncation)]
    fn mark(&mut self) -> Result<Mark, ExecutorError> {
        Ok(Mark(self.start.elapsed().as_nanos() as usize))
    }

    #[allow(clippy::cast_precision_loss)]
    fn seconds(&mut self, from: Mark, to: Mark) -> Result<f64, ExecutorError> {
        Ok(to.0.saturating_sub(from.0) as f64 * 1e-9)
    }

    fn wait(&mut self) -> Result<(), ExecutorError> {
        Ok(())
    }

    fn usage(&self) -> Usage {
        let held: usize = self.memory.iter().flatten().map(Vec::len).sum();
        Usage { allocations: Some(self.memory.len()), allocated: Some(held as u64), taken: None }
    }
}
