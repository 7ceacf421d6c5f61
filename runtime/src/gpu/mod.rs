//! A real GPU as a driver: NVIDIA's, through the driver's own interface.
//!
//! In: commands, and a function that makes cubins of texts. Out: what they leave in the GPU's memory. Everything is asked
//! of one stream of our own and done in order; a recording is a CUDA graph. Calls are `calls`, bytes on their way are
//! `staging`, products are `products`. The program is built and starts without CUDA: nothing here is called before
//! `opening` found it. Must not know plans, where texts come from, or where cubins are kept.

mod activity;
mod arguments;
mod assignment;
mod beside;
mod calls;
mod kernels;
mod opening;
pub mod products;
mod ring;
mod rooms;
mod signature;
mod staging;
mod timing;

pub use beside::{beside, pinned};
pub use opening::{GpuFacts, OLDEST_DRIVER, OpenError, find, gpus};

use crate::driver::{
    Address, Allocation, Command, Driver, DriverError, Event, Fetch, Kernel, Layout, Recording, ReplayError,
    Text,
};
use activity::Activity;
use calls::{Context, DeviceMemory, Event as Mark, Fault, Graph, Stream, Timing};
pub use kernels::StandIn;
use kernels::{Loaded, source_of};
use kernwright_compile::Libraries;
use kernwright_plan::measure::Usage;
use products::Products;
use rooms::{Held, Rooms};
use staging::Staging;
use std::cell::RefCell;

/// Makes a cubin of each text, in their order.
pub type Cubins = Box<dyn FnMut(&[Text]) -> Result<Vec<Vec<u8>>, DriverError>>;

/// How a GPU is to be used.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Wait for each launch, and keep no graphs? Slow, and the only way to be told which launch failed.
    pub synchronous: bool,
    /// How products of matrices are computed.
    pub products: products::Settings,
    /// The GPU in whose place this one measures kernels.
    pub stands_in: Option<StandIn>,
}

/// What a recording is.
#[derive(Debug)]
enum Kept {
    Graph(Graph),
    /// Launched one by one where the driver is synchronous.
    Commands(Vec<Command>),
}

/// An opened GPU.
pub struct Gpu {
    facts: GpuFacts,
    synchronous: bool,
    stands_in: Option<StandIn>,
    cubins: Cubins,
    // What is dropped first stands first: the context outlives all that is in it.
    recordings: Vec<Option<Kept>>,
    kernels: Vec<Loaded>,
    products: Products,
    rooms: Rooms,
    marks: Vec<Option<Mark>>,
    spare_marks: Vec<Mark>,
    staging: RefCell<Staging>,
    stream: Stream,
    context: Context,
    /// Bytes of its memory that were free when it was opened.
    free: Option<u64>,
    /// Opened when something is first to be timed.
    activity: Option<Activity>,
    libraries: Libraries,
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu").field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Gpu {
    /// Opens the GPU of these facts. It may be used from the thread that opened it.
    ///
    /// # Errors
    /// When a library is missing, or the driver refuses.
    pub fn open(
        libraries: &Libraries,
        facts: GpuFacts,
        settings: Settings,
        cubins: Cubins,
    ) -> Result<Self, OpenError> {
        let context = opening::context(libraries, &facts)?;
        let free = context.memory().ok().map(|(free, _)| free);
        let products = Products::open(libraries, &facts.name, facts.capability, settings.products)?;
        Ok(Self {
            facts,
            synchronous: settings.synchronous,
            stands_in: settings.stands_in,
            cubins,
            recordings: Vec::new(),
            kernels: Vec::new(),
            products,
            rooms: Rooms::default(),
            marks: Vec::new(),
            spare_marks: Vec::new(),
            staging: RefCell::new(Staging::new()?),
            stream: Stream::new()?,
            context,
            free,
            activity: None,
            libraries: libraries.clone(),
        })
    }

    /// What is known of it.
    #[must_use]
    pub fn facts(&self) -> &GpuFacts {
        &self.facts
    }

    /// Bytes of its memory that nobody uses, and all there are.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn memory(&self) -> Result<(u64, u64), DriverError> {
        Ok(self.context.memory()?)
    }

    /// What tells it from others of its kind, as NVIDIA's tools print it.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn uuid(&self) -> Result<String, DriverError> {
        Ok(self.context.uuid()?)
    }

    /// Before anything is asked of the stream: this thread is the GPU's, and what was uploaded goes first.
    fn ready(&self) -> Result<(), DriverError> {
        self.context.bind()?;
        Ok(self.staging.borrow_mut().flush(&self.stream)?)
    }

    /// Chooses how the products of these commands are computed, unless that was done.
    fn prepare(&mut self, commands: &[Command]) -> Result<(), DriverError> {
        let Self { products, rooms, stream, .. } = self;
        products.prepare(commands, &|at| rooms.place(at, 0), stream.raw())
    }

    /// Asks the stream for one thing.
    fn ask(&self, command: &Command) -> Result<(), DriverError> {
        match command {
            Command::Kernel { kernel, grid, arguments } => {
                let missing = || DriverError::Failed(format!("kernel {} was not loaded", kernel.0));
                let loaded = self.kernels.get(kernel.0).ok_or_else(missing)?;
                let parameters = loaded.function.parameters();
                let place = |at| self.rooms.place(at, 0);
                let mut words = arguments::words(arguments, parameters, place, calls::tensor_map)?;
                let Loaded { name, function, block, shared_memory } = loaded;
                function
                    .launch(*grid, *block, *shared_memory, &mut words, &self.stream)
                    .map_err(|fault| DriverError::Failed(format!("{fault}; {}", source_of(name))))
            }
            Command::Product(product) => {
                self.products.launch(product, &|at| self.rooms.place(at, 0), self.stream.raw())
            }
            Command::Copy { from, to, bytes } => {
                let (from, to) = (self.rooms.place(*from, *bytes)?, self.rooms.place(*to, *bytes)?);
                Ok(self.stream.copy(from, to, *bytes)?)
            }
            Command::Zero { at, bytes } => Ok(self.stream.zero(self.rooms.place(*at, *bytes)?, *bytes)?),
            Command::Discard { .. } => Ok(()),
        }
    }

    /// Asks, and where the driver is synchronous waits for what comes of it.
    fn ask_and_see(&self, command: &Command) -> Result<(), DriverError> {
        self.ask(command)?;
        if !self.synchronous {
            return Ok(());
        }
        self.stream.synchronize().map_err(|fault| match command {
            Command::Kernel { kernel, .. } => {
                let source = self.kernels.get(kernel.0).map_or(String::new(), |one| source_of(&one.name));
                DriverError::Failed(format!("{fault}; {source}"))
            }
            _ => fault.into(),
        })
    }

    /// What came up while waiting for several things.
    fn late(&self, fault: Fault) -> DriverError {
        if self.synchronous || !fault.is_of_a_launch() {
            return fault.into();
        }
        DriverError::Failed(format!(
            "{fault}; something that was launched before has failed: run it again with \
             `KERNWRIGHT_GPU_SYNCHRONOUS=1` to be told which kernel"
        ))
    }

    fn graph(&self, commands: &[Command]) -> Result<Graph, DriverError> {
        Graph::capture(&self.stream, || commands.iter().try_for_each(|command| self.ask(command)))
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Nothing may be given back that a copy still reads or writes. After a failure there is nothing to wait for.
        // Not the whole device: that would make captures of other threads void.
        let streams = |(): ()| self.staging.get_mut().synchronize().and_then(|()| self.stream.synchronize());
        let _ = self.context.bind().and_then(streams);
    }
}

impl Driver for Gpu {
    fn layout(&self) -> Layout {
        Layout::Arena
    }

    fn allocate(&mut self, name: &str, bytes: usize) -> Result<Allocation, DriverError> {
        self.context.bind()?;
        let memory = DeviceMemory::take(bytes).map_err(|fault| match fault.is_out_of_memory() {
            true => DriverError::Memory { name: name.to_owned(), bytes },
            false => fault.into(),
        })?;
        self.rooms.0.push(Some(Held { name: name.to_owned(), memory }));
        Ok(Allocation(self.rooms.0.len() - 1))
    }

    fn free(&mut self, allocation: Allocation) -> Result<(), DriverError> {
        self.rooms.place(Address { allocation, offset: 0 }, 0)?;
        self.ready()?;
        // What was asked for may still use it.
        self.stream.synchronize().map_err(|fault| self.late(fault))?;
        self.rooms.0[allocation.0] = None;
        Ok(())
    }

    fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        let place = self.rooms.place(to, bytes.len())?;
        self.context.bind()?;
        let uploaded = self.staging.borrow_mut().upload(place, bytes, &self.stream);
        uploaded.map_err(|fault| self.late(fault))
    }

    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), DriverError> {
        let place = self.rooms.place(from, bytes.len())?;
        self.context.bind()?;
        let downloaded = self.staging.borrow_mut().download(place, bytes, &self.stream);
        downloaded.map_err(|fault| self.late(fault))
    }

    fn fetch(&mut self, from: Address, bytes: usize) -> Result<Fetch, DriverError> {
        let place = self.rooms.place(from, bytes)?;
        self.context.bind()?;
        let fetched = self.staging.borrow_mut().fetch(place, bytes, &self.stream);
        if let Some(slot) = fetched.map_err(|fault| self.late(fault))? {
            return Ok(Fetch::UnderWay(slot));
        }
        let mut here = vec![0; bytes];
        self.download(from, &mut here)?;
        Ok(Fetch::Here(here))
    }

    fn take(&mut self, fetch: Fetch) -> Result<Vec<u8>, DriverError> {
        let slot = match fetch {
            Fetch::Here(bytes) => return Ok(bytes),
            Fetch::UnderWay(slot) => slot,
        };
        self.context.bind()?;
        let taken = self.staging.borrow_mut().take(slot).map_err(|fault| self.late(fault))?;
        taken.ok_or_else(|| DriverError::Failed(format!("fetch {slot} is not under way")))
    }

    fn pointer(&self, at: Address) -> Result<u64, DriverError> {
        self.rooms.place(at, 0)
    }

    fn load(&mut self, texts: &[Text]) -> Result<Vec<Kernel>, DriverError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        self.context.bind()?;
        let cubins = (self.cubins)(texts)?;
        if cubins.len() != texts.len() {
            let (texts, cubins) = (texts.len(), cubins.len());
            return Err(DriverError::Failed(format!("{texts} texts became {cubins} cubins")));
        }
        let loaded: Vec<Loaded> = texts
            .iter()
            .zip(&cubins)
            .map(|(text, cubin)| Loaded::new(text, cubin, self.stands_in.as_ref()))
            .collect::<Result<_, _>>()?;
        let first = self.kernels.len();
        self.kernels.extend(loaded);
        Ok((first..self.kernels.len()).map(Kernel).collect())
    }

    fn launch(&mut self, command: &Command) -> Result<(), DriverError> {
        self.ready()?;
        self.prepare(std::slice::from_ref(command))?;
        self.ask_and_see(command)
    }

    fn record(&mut self, commands: Vec<Command>) -> Result<Recording, DriverError> {
        self.ready()?;
        self.prepare(&commands)?;
        let kept = match self.synchronous {
            true => Kept::Commands(commands),
            false => Kept::Graph(self.graph(&commands)?),
        };
        self.recordings.push(Some(kept));
        Ok(Recording(self.recordings.len() - 1))
    }

    fn replay(&mut self, recording: Recording) -> Result<(), ReplayError> {
        let whole = |error| ReplayError { command: None, error };
        self.ready().map_err(whole)?;
        match self.recordings.get(recording.0).and_then(Option::as_ref) {
            Some(Kept::Graph(graph)) => graph.launch(&self.stream).map_err(|fault| whole(self.late(fault))),
            Some(Kept::Commands(commands)) => commands.iter().enumerate().try_for_each(|(index, command)| {
                self.ask_and_see(command).map_err(|error| ReplayError { command: Some(index), error })
            }),
            None => Err(whole(DriverError::Failed(format!("recording {} was not made", recording.0)))),
        }
    }

    fn forget(&mut self, recording: Recording) {
        if let Some(kept) = self.recordings.get_mut(recording.0) {
            *kept = None;
        }
    }

    fn mark(&mut self) -> Result<Event, DriverError> {
        self.ready()?;
        let mark = self.spare_marks.pop().map_or_else(|| Mark::new(Timing::On), Ok)?;
        mark.record(&self.stream)?;
        let free = self.marks.iter().position(Option::is_none);
        let number = free.unwrap_or(self.marks.len());
        match free {
            Some(number) => self.marks[number] = Some(mark),
            None => self.marks.push(Some(mark)),
        }
        Ok(Event(number))
    }

    fn seconds(&mut self, from: Event, to: Event) -> Result<f64, DriverError> {
        self.context.bind()?;
        let mut take = |event: Event| self.marks.get_mut(event.0).and_then(Option::take);
        let (Some(from), Some(to)) = (take(from), take(to)) else {
            return Err(DriverError::Failed("no such event was recorded".to_owned()));
        };
        let seconds = to.synchronize().and_then(|()| from.seconds_until(&to));
        self.spare_marks.extend([from, to]);
        seconds.map_err(|fault| self.late(fault))
    }

    fn choices(&self) -> Option<String> {
        self.products.record()
    }

    fn adopt(&mut self, choices: &str) -> Result<(), DriverError> {
        self.products.adopt(choices)
    }

    fn time(&mut self, commands: &[Command]) -> Result<(&'static str, Vec<f64>), ReplayError> {
        let whole = |error| ReplayError { command: None, error };
        self.ready().and_then(|()| self.prepare(commands)).map_err(whole)?;
        if self.activity.is_none() {
            self.activity = Activity::open(&self.libraries).ok();
        }
        timing::time(self, commands).map_err(whole)
    }

    fn usage(&self) -> Usage {
        let now = self.context.bind().and_then(|()| self.context.memory()).ok();
        let taken = self.free.zip(now).map(|(before, (now, _))| before.saturating_sub(now));
        let allocated = Some((self.bytes_in_use() + self.bytes_beside()) as u64);
        Usage { allocations: Some(self.n_allocations()), allocated, taken }
    }

    fn synchronize(&mut self) -> Result<(), DriverError> {
        self.ready()?;
        self.stream.synchronize().map_err(|fault| self.late(fault))
    }
}
