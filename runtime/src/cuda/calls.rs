//! The queue of a GPU or the emulator: plans over the caller's buffers, launched one by one.
//!
//! In: plans, and where their inputs and outputs lie. Out: launches. Scratch is taken from the pool for the time of a call;
//! what was bound for a call is kept for the next one over the same memory.

use super::binding::{Binding, Room, describe};
use super::memory::failed;
use super::{Cuda, Source};
use crate::driver::{Address, Allocation, Command, Driver};
use crate::queue::{Given, Pool, Queue};
use kernwright_plan::arch::Arch;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId};
use kernwright_plan::launch::{Launch, Lowered};
use kernwright_plan::measure::{Mark, Usage};
use kernwright_plan::plan::{Mode, Plan};

/// Runs plans over the caller's buffers through a driver.
pub struct Caller<D> {
    cuda: Cuda<D>,
    pool: Pool,
    /// None where one was dropped.
    plans: Vec<Option<Prepared>>,
}

/// A plan, what its steps are launched as, and the last call of it.
struct Prepared {
    plan: Plan,
    launches: Vec<(usize, Launch)>,
    bound: Option<Bound>,
}

/// The commands of a call, with the launch that each of them is, and where its buffers lay.
struct Bound {
    addresses: Vec<Option<Address>>,
    commands: Vec<(Option<usize>, Command)>,
}

impl<D: Driver> Caller<D> {
    /// A queue without memory and plans; see [`Cuda::new`].
    pub fn new(driver: D, arch: Arch, source: Source) -> Self {
        Self { cuda: Cuda::new(driver, arch, source), pool: Pool::default(), plans: Vec::new() }
    }

    /// The executor behind it, for what only it knows.
    pub fn cuda(&self) -> &Cuda<D> {
        &self.cuda
    }

    /// Launches a plan over these addresses.
    fn launch(&mut self, id: PlanId, addresses: Vec<Option<Address>>) -> Result<(), ExecutorError> {
        let prepared = self.plans.get_mut(id.0).and_then(Option::as_mut).ok_or_else(dropped)?;
        let Prepared { plan, launches, bound } = prepared;
        if bound.as_ref().is_none_or(|bound| bound.addresses != addresses) {
            let binding = Binding { plan, room: Room::Given(&addresses), kernels: &self.cuda.kernels };
            let mut commands = Vec::new();
            for write in plan.steps.iter().flat_map(|step| &step.writes) {
                // Only what is replaced whole: columns of a wider buffer lie between others.
                if write.mode == Mode::Overwrite && plan.buffer(write.buffer).view.is_none() {
                    let at = binding.address(write.buffer)?;
                    commands.push((None, Command::Discard { at, bytes: plan.buffer(write.buffer).bytes() }));
                }
            }
            for (number, (_, launch)) in launches.iter().enumerate() {
                commands.push((Some(number), binding.command(launch)?));
            }
            *bound = Some(Bound { addresses, commands });
        }
        for (launch, command) in bound.iter().flat_map(|bound| &bound.commands) {
            self.cuda.driver.launch(command).map_err(|error| match launch {
                Some(number) => {
                    let (step, launch) = &launches[*number];
                    let op = plan.steps[*step].op.name();
                    failed(&format!("run step {step} (`{op}`), {}", describe(plan, launch)), error)
                }
                None => failed("discard what a buffer held", error),
            })?;
        }
        Ok(())
    }
}

fn dropped() -> ExecutorError {
    ExecutorError::Plan("it was dropped".to_owned())
}

impl<D: Driver> Queue for Caller<D> {
    fn prepare(&mut self, plan: Plan) -> Result<PlanId, ExecutorError> {
        plan.check().map_err(ExecutorError::Plan)?;
        let arch = &self.cuda.arch;
        let steps = plan.steps.iter().map(|step| step.at(MicroStep::First));
        let lowered: Vec<Lowered> = steps.map(|step| step.op.lower(&plan.io(&step), arch)).collect();
        let mut launches = Vec::new();
        for (step, lowered) in lowered.iter().enumerate() {
            match lowered {
                Lowered::Launches(of_step) => {
                    launches.extend(of_step.iter().map(|launch| (step, launch.clone())));
                }
                Lowered::NoKernel(why) => {
                    let (op, why) = (plan.steps[step].op.name(), (*why).to_owned());
                    return Err(ExecutorError::NoKernel { step, op, arch: arch.name.to_string(), why });
                }
            }
        }
        self.cuda.load_kernels(&[lowered, Vec::new()])?;
        let free = self.plans.iter().position(Option::is_none).unwrap_or(self.plans.len());
        let prepared = Some(Prepared { plan, launches, bound: None });
        match self.plans.get_mut(free) {
            Some(place) => *place = prepared,
            None => self.plans.push(prepared),
        }
        Ok(PlanId(free))
    }

    fn forget(&mut self, plan: PlanId) {
        if let Some(prepared) = self.plans.get_mut(plan.0) {
            *prepared = None;
        }
    }

    fn take(&mut self, name: &str, bytes: usize) -> Result<Allocation, ExecutorError> {
        let taken = self.pool.take(&mut self.cuda.driver, name, bytes);
        taken.map_err(|error| failed(&format!("allocate `{name}`"), error))
    }

    fn give_back(&mut self, memory: Allocation) {
        self.pool.give_back(memory);
    }

    fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<(), ExecutorError> {
        self.cuda.driver.upload(to, bytes).map_err(|error| failed("write a buffer", error))
    }

    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), ExecutorError> {
        self.cuda.driver.download(from, bytes).map_err(|error| failed("read a buffer", error))
    }

    fn call(&mut self, id: PlanId, given: &[Given]) -> Result<(), ExecutorError> {
        let plan = &self.plans.get(id.0).and_then(Option::as_ref).ok_or_else(dropped)?.plan;
        let mut addresses = vec![None; plan.buffers.len()];
        for one in given {
            let buffer = plan.buffer(one.buffer);
            if buffer.dtype != one.dtype {
                let (name, wanted, found) = (&buffer.name, buffer.dtype.name(), one.dtype.name());
                return Err(ExecutorError::Plan(format!(
                    "`{name}` is {wanted}, and what is given is {found}"
                )));
            }
            addresses[one.buffer.0] = Some(one.at);
        }
        let missing: Vec<(usize, String, usize)> = plan
            .buffers
            .iter()
            .enumerate()
            .filter(|(index, buffer)| addresses[*index].is_none() && buffer.offset.is_some())
            .map(|(index, buffer)| (index, buffer.name.clone(), buffer.bytes()))
            .collect();
        let mut scratch = Vec::new();
        let mut result = Ok(());
        for (index, name, bytes) in missing {
            match self.take(&name, bytes) {
                Ok(allocation) => {
                    scratch.push(allocation);
                    addresses[index] = Some(Address { allocation, offset: 0 });
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let result = result.and_then(|()| self.launch(id, addresses));
        // In the order of the queue, whoever takes it next comes after these launches. The next call finds it in the same
        // order.
        scratch.into_iter().rev().for_each(|memory| self.pool.give_back(memory));
        result
    }

    fn mark(&mut self) -> Result<Mark, ExecutorError> {
        let mark = self.cuda.mark()?;
        mark.ok_or_else(|| ExecutorError::Plan("a device has no clock".to_owned()))
    }

    fn seconds(&mut self, from: Mark, to: Mark) -> Result<f64, ExecutorError> {
        self.cuda.seconds(from, to)
    }

    fn wait(&mut self) -> Result<(), ExecutorError> {
        self.cuda.wait()
    }

    fn usage(&self) -> Usage {
        self.cuda.usage()
    }
}
