//! The executor that launches generated kernels, through any driver: on a GPU, or on the emulator.
//!
//! In: plans, and the text of each kernel they launch. Out: the content of their buffers. Everything is compiled and
//! lowered when a plan is loaded; whole phases that run together are recorded the first time, as one, and replayed from
//! then on. Must not know models, data, or where texts come from.

mod binding;
mod calls;
pub(crate) mod elements;
mod loading;
mod memory;
mod recording;

use crate::driver::{self, Address, Command, Driver, DriverError, Event, Kernel};
pub use binding::product;
use binding::{Binding, Room, describe};
pub use calls::Caller;
use elements::{decode, encode};
use kernwright_plan::arch::Arch;
use kernwright_plan::buffer::BufferId;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, ExecutorError, Fetch, MicroStep, PlanId, Values};
use kernwright_plan::launch::Lowered;
use kernwright_plan::measure::{Mark, Timed, Timeline, Usage};
use kernwright_plan::passes::memory::lifetimes;
use kernwright_plan::plan::Plan;
use kernwright_plan::spec::KernelSpec;
use loading::tables;
use memory::{Memory, Places, failed};
use recording::{Origin, Recorded, Whole, is_whole, phases};
use std::collections::HashMap;
use std::ops::Range;

/// Gives the text of a kernel, or says why there is none.
pub type Source = Box<dyn Fn(&KernelSpec) -> Result<String, String>>;

/// Runs plans on a device.
pub struct Cuda<D> {
    driver: D,
    arch: Arch,
    source: Source,
    kernels: HashMap<String, Kernel>,
    memory: Memory,
    plans: Vec<Loaded>,
    /// How often something was run.
    n_runs: u64,
    /// Buffers on their way to the host: their names and types.
    fetches: HashMap<usize, (String, Dtype, driver::Fetch)>,
    n_fetches: usize,
}

/// A plan with all that running it takes.
struct Loaded {
    plan: Plan,
    places: Places,
    /// What each step becomes, in the first micro-batch and in later ones.
    lowered: [Vec<Lowered>; 2],
    /// Base buffers that live from this step on: what was there before is nobody's.
    born: Vec<Vec<BufferId>>,
    recorded: HashMap<Whole, Recorded>,
    /// The run that was its last.
    last_run: u64,
}

fn at(micro: MicroStep) -> usize {
    usize::from(micro == MicroStep::Later)
}

impl<D: Driver> Cuda<D> {
    /// An executor without plans. `arch` is what the kernels of `source` were made for, and what `driver` runs them on.
    pub fn new(driver: D, arch: Arch, source: Source) -> Self {
        Self {
            driver,
            arch,
            source,
            kernels: HashMap::new(),
            memory: Memory::default(),
            plans: Vec::new(),
            n_runs: 0,
            fetches: HashMap::new(),
            n_fetches: 0,
        }
    }

    /// The same, whose texts are changed on their way to the device: for measuring what a part of a kernel costs.
    #[must_use]
    pub fn with_texts(mut self, change: impl Fn(String) -> String + 'static) -> Self
    where
        D: 'static,
    {
        let source = self.source;
        self.source = Box::new(move |spec| source(spec).map(&change));
        self
    }

    /// The driver, for what only it knows.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// What its kernels are made for.
    pub fn arch(&self) -> &Arch {
        &self.arch
    }

    /// The kernels that are loaded, by name, sorted.
    pub fn kernels(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.kernels.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Drops every plan and gives all memory back; kernels stay loaded. Numbers of plans and fetches are void. It is for who
    /// runs many plans that share nothing, as sweeps over ops do: opening a device anew would load every kernel again.
    ///
    /// # Errors
    /// When the device fails.
    pub fn clear(&mut self) -> Result<(), ExecutorError> {
        for (_, old) in self.plans.drain(..).flat_map(|loaded| loaded.recorded) {
            self.driver.forget(old.recording);
        }
        self.fetches.clear();
        self.memory.clear(&mut self.driver)
    }

    /// Lowers what is loaded from now on for this GPU.
    pub fn lower_for(&mut self, arch: Arch) {
        self.arch = arch;
    }

    /// Lowers a plan that is loaded anew, for the same target with other tiles: what its buffers hold stays. It is for who measures
    /// which tile is the best.
    ///
    /// # Errors
    /// When a kernel is not to be had, or the plan needs tables of tensors, which stay those of before.
    pub fn lower_again(&mut self, plan: PlanId, arch: Arch) -> Result<(), ExecutorError> {
        let lowered = lowered(&self.plans[plan.0].plan, &arch);
        if tables(&lowered) != tables(&self.plans[plan.0].lowered) {
            return Err(ExecutorError::Plan("its tables of tensors depend on tiles".to_owned()));
        }
        self.arch = arch;
        self.load_kernels(&lowered)?;
        let loaded = &mut self.plans[plan.0];
        loaded.lowered = lowered;
        for (_, old) in loaded.recorded.drain() {
            self.driver.forget(old.recording);
        }
        Ok(())
    }

    /// What some steps tell the driver, in order, and where each command comes from.
    fn commands(
        &self,
        loaded: &Loaded,
        steps: Range<usize>,
        micro: MicroStep,
    ) -> Result<(Vec<Command>, Vec<Origin>), ExecutorError> {
        let Loaded { plan, places, lowered, born, .. } = loaded;
        let binding = Binding { plan, room: Room::Placed(places, &self.memory), kernels: &self.kernels };
        let (mut commands, mut origins) = (Vec::new(), Vec::new());
        for index in steps {
            let launches = match &lowered[at(micro)][index] {
                Lowered::Launches(launches) => launches,
                Lowered::NoKernel(why) => {
                    return Err(ExecutorError::NoKernel {
                        step: index,
                        op: plan.steps[index].op.name(),
                        arch: self.arch.name.to_string(),
                        why: (*why).to_owned(),
                    });
                }
            };
            for id in &born[index] {
                let bytes = plan.buffer(*id).bytes();
                commands.push(Command::Discard { at: binding.address(*id)?, bytes });
                origins.push(None);
            }
            for (number, launch) in launches.iter().enumerate() {
                commands.push(binding.command(launch)?);
                origins.push(Some((index, number)));
            }
        }
        Ok((commands, origins))
    }

    /// The bytes of the base of a buffer, and where in each of its rows the buffer lies.
    fn download(&self, loaded: &Loaded, buffer: BufferId) -> Result<(Vec<u8>, Rows), ExecutorError> {
        let (base, rows, at) = self.rows(loaded, buffer)?;
        let owner = loaded.plan.buffer(base);
        let mut bytes = vec![0; owner.bytes()];
        let what = || format!("read `{}`", owner.name);
        self.driver.download(at, &mut bytes).map_err(|error| failed(&what(), error))?;
        Ok((bytes, rows))
    }

    fn rows(&self, loaded: &Loaded, buffer: BufferId) -> Result<(BufferId, Rows, Address), ExecutorError> {
        let plan = &loaded.plan;
        let base = plan.base(buffer).0;
        let size = plan.buffer(base).dtype.bytes();
        let columns = plan.columns(buffer);
        let part = columns.start * size..columns.end * size;
        let rows = Rows { stride: plan.row_stride(buffer) * size, part };
        Ok((base, rows, self.memory.address(plan, &loaded.places, base)?))
    }
}

/// What each step becomes, in the first micro-batch and in later ones.
fn lowered(plan: &Plan, arch: &Arch) -> [Vec<Lowered>; 2] {
    [MicroStep::First, MicroStep::Later].map(|micro| {
        let steps = plan.steps.iter().map(|step| step.at(micro));
        steps.map(|step| step.op.lower(&plan.io(&step), arch)).collect()
    })
}

/// Bytes of a row of a base buffer, and those that belong to a view of it.
struct Rows {
    stride: usize,
    part: Range<usize>,
}

/// The failure of a launch, which names step, op, kernel and launch shape.
fn of_launch(loaded: &Loaded, micro: MicroStep, origin: (usize, usize), error: DriverError) -> ExecutorError {
    let (step, number) = origin;
    let op = loaded.plan.steps[step].op.name();
    let launch = match &loaded.lowered[at(micro)][step] {
        Lowered::Launches(launches) => describe(&loaded.plan, &launches[number]),
        Lowered::NoKernel(_) => String::new(),
    };
    failed(&format!("run step {step} (`{op}`), {launch}"), error)
}

impl<D: Driver> Executor for Cuda<D> {
    fn load(&mut self, plan: Plan) -> Result<PlanId, ExecutorError> {
        plan.check().map_err(ExecutorError::Plan)?;
        let lowered = lowered(&plan, &self.arch);
        self.load_kernels(&lowered)?;
        let mut born = vec![Vec::new(); plan.steps.len()];
        for (index, life) in lifetimes(&plan).into_iter().enumerate() {
            let is_transient =
                !plan.buffers[index].role.is_persistent() && plan.buffers[index].view.is_none();
            if let (Some(life), true) = (life, is_transient) {
                born[life.start].push(BufferId(index));
            }
        }
        let (places, moved) = self.memory.load(&mut self.driver, &plan, tables(&lowered))?;
        if moved {
            for (_, old) in self.plans.iter_mut().flat_map(|loaded| loaded.recorded.drain()) {
                self.driver.forget(old.recording);
            }
        }
        self.plans.push(Loaded { plan, places, lowered, born, recorded: HashMap::new(), last_run: 0 });
        let last = self.plans.len() - 1;
        // What moved, the tables of earlier plans name as well.
        (if moved { 0 } else { last }..=last).try_for_each(|index| self.fill_tables(index))?;
        Ok(PlanId(last))
    }

    fn plan(&self, plan: PlanId) -> &Plan {
        &self.plans[plan.0].plan
    }

    fn write(&mut self, plan: PlanId, buffer: BufferId, values: Values<'_>) -> Result<(), ExecutorError> {
        let loaded = &self.plans[plan.0];
        let target = loaded.plan.buffer(buffer);
        values.check(target)?;
        let encoded = encode(target.dtype, values);
        let (base, Rows { stride, part }, at) = self.rows(loaded, buffer)?;
        let bytes = if base == buffer {
            encoded
        } else {
            let (mut bytes, _) = self.download(loaded, buffer)?;
            for (row, new) in bytes.chunks_mut(stride.max(1)).zip(encoded.chunks(part.len().max(1))) {
                row[part.clone()].copy_from_slice(new);
            }
            bytes
        };
        let what = || format!("write `{}`", target.name);
        self.driver.upload(at, &bytes).map_err(|error| failed(&what(), error))
    }

    #[allow(clippy::cast_possible_truncation)]
    fn read(&self, plan: PlanId, buffer: BufferId) -> Result<Vec<f32>, ExecutorError> {
        let loaded = &self.plans[plan.0];
        let dtype = loaded.plan.buffer(buffer).dtype;
        let (bytes, Rows { stride, part }) = self.download(loaded, buffer)?;
        let mut values = Vec::with_capacity(bytes.len() / dtype.bytes());
        bytes.chunks(stride.max(1)).for_each(|row| decode(dtype, &row[part.clone()], &mut values));
        Ok(values)
    }

    fn fetch(&mut self, plan: PlanId, buffer: BufferId) -> Result<Fetch, ExecutorError> {
        let loaded = &self.plans[plan.0];
        let owner = loaded.plan.buffer(buffer);
        let (base, _, at) = self.rows(loaded, buffer)?;
        if base != buffer {
            return Ok(Fetch::Here(self.read(plan, buffer)?));
        }
        let (name, dtype, bytes) = (owner.name.clone(), owner.dtype, owner.bytes());
        let fetch = self.driver.fetch(at, bytes).map_err(|error| failed(&format!("read `{name}`"), error))?;
        let number = self.n_fetches;
        self.n_fetches += 1;
        self.fetches.insert(number, (name, dtype, fetch));
        Ok(Fetch::UnderWay(number))
    }

    #[allow(clippy::cast_possible_truncation)]
    fn take(&mut self, fetch: Fetch) -> Result<Vec<f32>, ExecutorError> {
        let number = match fetch {
            Fetch::Here(values) => return Ok(values),
            Fetch::UnderWay(number) => number,
        };
        let Some((name, dtype, fetch)) = self.fetches.remove(&number) else {
            return Err(ExecutorError::Plan(format!("fetch {number} is not under way")));
        };
        let bytes = self.driver.take(fetch).map_err(|error| failed(&format!("read `{name}`"), error))?;
        Ok(dtype.decode_all(&bytes).map(|value| value as f32).collect())
    }

    fn wait(&mut self) -> Result<(), ExecutorError> {
        self.driver.synchronize().map_err(|error| failed("finish what was asked for", error))
    }

    fn mark(&mut self) -> Result<Option<Mark>, ExecutorError> {
        let event = self.driver.mark().map_err(|error| failed("mark a point in time", error))?;
        Ok(Some(Mark(event.0)))
    }

    fn seconds(&mut self, from: Mark, to: Mark) -> Result<f64, ExecutorError> {
        let seconds = self.driver.seconds(Event(from.0), Event(to.0));
        seconds.map_err(|error| failed("take the time between two points", error))
    }

    fn usage(&self) -> Usage {
        self.driver.usage()
    }

    fn time_launches(
        &mut self,
        plan: PlanId,
        steps: Range<usize>,
        micro: MicroStep,
    ) -> Result<Option<Timeline>, ExecutorError> {
        let (commands, origins) = self.commands(&self.plans[plan.0], steps, micro)?;
        let (by, seconds) = self.driver.time(&commands).map_err(|failure| {
            match failure.command.and_then(|index| origins.get(index).copied().flatten()) {
                Some(origin) => of_launch(&self.plans[plan.0], micro, origin, failure.error),
                None => failed("time the launches of a plan", failure.error),
            }
        })?;
        let timed = origins.into_iter().zip(seconds).filter_map(|(origin, seconds)| {
            let (step, launch) = origin?;
            Some(Timed { step, launch, seconds })
        });
        Ok(Some(Timeline { by, launches: timed.collect() }))
    }

    fn choices(&self) -> Option<String> {
        self.driver.choices()
    }

    fn adopt(&mut self, choices: &str) -> Result<(), ExecutorError> {
        self.driver.adopt(choices).map_err(|error| failed("go on with what the run chose", error))
    }

    fn run(&mut self, plan: PlanId, steps: Range<usize>, micro: MicroStep) -> Result<(), ExecutorError> {
        let loaded = &self.plans[plan.0];
        let n_steps = loaded.plan.steps.len();
        if steps.start > steps.end || steps.end > n_steps {
            return Err(ExecutorError::Plan(format!("it has {n_steps} steps, asked for {steps:?}")));
        }
        if is_whole(&loaded.plan, &steps) {
            let key = self.record(plan, &steps, micro)?;
            let loaded = &self.plans[plan.0];
            let recorded = &loaded.recorded[&key];
            return self.driver.replay(recorded.recording).map_err(|failure| {
                match failure.command.and_then(|index| recorded.origins.get(index).copied().flatten()) {
                    Some(origin) => of_launch(loaded, micro, origin, failure.error),
                    None => failed(&format!("run {}", phases(&loaded.plan, &steps)), failure.error),
                }
            });
        }
        let (commands, origins) = self.commands(loaded, steps, micro)?;
        for (command, origin) in commands.iter().zip(origins) {
            self.driver.launch(command).map_err(|error| match origin {
                Some(origin) => of_launch(loaded, micro, origin, error),
                None => failed("discard what a buffer held", error),
            })?;
        }
        Ok(())
    }
}
