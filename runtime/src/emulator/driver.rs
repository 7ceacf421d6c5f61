//! The emulator as a driver: what a GPU would be told, it is told.
//!
//! In: commands of an executor. Out: what they leave in the emulator's memory, or its report of the first fault. Products
//! are the host's; they too read only what somebody wrote.

use super::{Address as Place, Emulator, EmulatorError, KernelId, Word};
use crate::driver::{
    Address, Allocation, Command, Driver, DriverError, Event, Kernel, Layout, Recording, ReplayError, Text,
    Value,
};
use crate::product::{HostMemory, multiply};
use kernwright_plan::chain;
use kernwright_plan::measure::Usage;
use std::time::Instant;

/// The emulator, behind the trait that GPUs are behind.
#[derive(Debug)]
pub struct EmulatorDriver {
    emulator: Emulator,
    layout: Layout,
    allocations: Vec<Option<Held>>,
    kernels: Vec<Loaded>,
    recordings: Vec<Vec<Command>>,
    marks: Vec<Instant>,
    launches: usize,
}

/// An allocation.
#[derive(Clone, Debug)]
struct Held {
    name: String,
    place: Place,
    bytes: usize,
}

/// A kernel and the launch shape that it is always launched with.
#[derive(Clone, Copy, Debug)]
struct Loaded {
    kernel: KernelId,
    block: u32,
    shared_memory: u32,
}

impl EmulatorDriver {
    /// A driver over this emulator. With [`Layout::Separate`] every access outside of a buffer is found.
    #[must_use]
    pub fn new(emulator: Emulator, layout: Layout) -> Self {
        let (allocations, kernels, recordings, marks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { emulator, layout, allocations, kernels, recordings, marks, launches: 0 }
    }

    /// The emulator, for what only it knows.
    #[must_use]
    pub fn emulator(&self) -> &Emulator {
        &self.emulator
    }

    /// Kernels launched so far.
    #[must_use]
    pub fn launches(&self) -> usize {
        self.launches
    }

    /// The emulator's own address of a place, of which so many bytes are wanted.
    fn place(&self, at: Address, bytes: usize) -> Result<Place, DriverError> {
        let Some(held) = self.allocations.get(at.allocation.0).and_then(Option::as_ref) else {
            return Err(DriverError::Failed(format!(
                "allocation {} is not there: it was given back",
                at.allocation.0
            )));
        };
        if at.offset.checked_add(bytes).is_none_or(|end| end > held.bytes) {
            let (name, size) = (held.name.clone(), held.bytes);
            return Err(DriverError::Bounds { name, size, offset: at.offset, bytes });
        }
        Ok(held.place.after(at.offset as u64))
    }

    fn word(&self, value: Value) -> Result<Word, DriverError> {
        Ok(match value {
            Value::Address(Some(at)) => Word::Address(self.place(at, 0)?),
            Value::Address(None) => Word::Address(Place::NULL),
            Value::TensorMap { at, layout } => Word::TensorMap { at: self.place(at, 0)?, layout },
            Value::I32(number) => Word::I32(number),
            Value::I64(number) => Word::I64(number),
            Value::F32(number) => Word::F32(number),
        })
    }
}

/// An error of the emulator as one of a driver.
fn failed(error: EmulatorError) -> DriverError {
    match error {
        EmulatorError::NoRoom { name, bytes } => DriverError::Memory { name, bytes: bytes as usize },
        EmulatorError::Rejected { kernel, log } => DriverError::Compile { kernel, reason: log },
        error => DriverError::Failed(chain(&error)),
    }
}

impl HostMemory for EmulatorDriver {
    fn load(&self, from: Address, bytes: &mut [u8]) -> Result<(), DriverError> {
        let place = self.place(from, bytes.len())?;
        let first = self.emulator.first_unwritten(place, bytes.len() as u64).map_err(failed)?;
        if let (Some(first), Some(held)) = (first, &self.allocations[from.allocation.0]) {
            let byte = from.offset + first as usize;
            return Err(DriverError::Failed(format!(
                "it reads byte {byte} of the {} bytes of `{}`, which nobody wrote",
                held.bytes, held.name
            )));
        }
        self.emulator.download(place, bytes).map_err(failed)
    }

    fn store(&mut self, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        self.upload(to, bytes)
    }
}

impl Driver for EmulatorDriver {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn allocate(&mut self, name: &str, bytes: usize) -> Result<Allocation, DriverError> {
        let place = self.emulator.allocate(name, bytes as u64).map_err(failed)?;
        self.allocations.push(Some(Held { name: name.to_owned(), place, bytes }));
        Ok(Allocation(self.allocations.len() - 1))
    }

    fn free(&mut self, allocation: Allocation) -> Result<(), DriverError> {
        let place = self.place(Address { allocation, offset: 0 }, 0)?;
        self.allocations[allocation.0] = None;
        self.emulator.free(place).map_err(failed)
    }

    fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        let place = self.place(to, bytes.len())?;
        self.emulator.upload(place, bytes).map_err(failed)
    }

    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), DriverError> {
        let place = self.place(from, bytes.len())?;
        self.emulator.download(place, bytes).map_err(failed)
    }

    fn pointer(&self, at: Address) -> Result<u64, DriverError> {
        Ok(self.place(at, 0)?.0)
    }

    fn load(&mut self, texts: &[Text]) -> Result<Vec<Kernel>, DriverError> {
        let names: Vec<String> = texts.iter().map(|one| one.spec.name()).collect();
        let kernels: Vec<(&str, &str)> =
            names.iter().zip(texts).map(|(name, one)| (name.as_str(), one.text.as_str())).collect();
        let first = self.kernels.len();
        let loaded = self.emulator.load_all(&kernels).map_err(failed)?;
        self.kernels.extend(texts.iter().zip(loaded).map(|(one, kernel)| Loaded {
            kernel,
            block: one.spec.block,
            shared_memory: one.spec.shared_memory,
        }));
        Ok((first..self.kernels.len()).map(Kernel).collect())
    }

    fn launch(&mut self, command: &Command) -> Result<(), DriverError> {
        match command {
            Command::Kernel { kernel, grid, arguments } => {
                let words: Vec<Word> =
                    arguments.iter().map(|one| self.word(*one)).collect::<Result<_, _>>()?;
                let missing = || DriverError::Failed(format!("kernel {} was not loaded", kernel.0));
                let Loaded { kernel, block, shared_memory } =
                    *self.kernels.get(kernel.0).ok_or_else(missing)?;
                self.launches += 1;
                self.emulator.launch(kernel, *grid, block, shared_memory, &words).map_err(failed)
            }
            Command::Product(product) => multiply(product, self),
            Command::Copy { from, to, bytes } => {
                let (from, to) = (self.place(*from, *bytes)?, self.place(*to, *bytes)?);
                self.emulator.copy(to, from, *bytes as u64).map_err(failed)
            }
            Command::Zero { at, bytes } => {
                let place = self.place(*at, *bytes)?;
                self.emulator.zero(place, *bytes as u64).map_err(failed)
            }
            Command::Discard { at, bytes } => {
                let place = self.place(*at, *bytes)?;
                self.emulator.discard(place, *bytes as u64).map_err(failed)
            }
        }
    }

    fn record(&mut self, commands: Vec<Command>) -> Result<Recording, DriverError> {
        self.recordings.push(commands);
        Ok(Recording(self.recordings.len() - 1))
    }

    fn replay(&mut self, recording: Recording) -> Result<(), ReplayError> {
        // Taken for the time of the run, since a launch changes the driver.
        let Some(kept) = self.recordings.get_mut(recording.0) else {
            let error = DriverError::Failed(format!("recording {} was not made", recording.0));
            return Err(ReplayError { command: None, error });
        };
        let commands = std::mem::take(kept);
        let mut result = Ok(());
        for (index, command) in commands.iter().enumerate() {
            if let Err(error) = self.launch(command) {
                result = Err(ReplayError { command: Some(index), error });
                break;
            }
        }
        self.recordings[recording.0] = commands;
        result
    }

    fn forget(&mut self, recording: Recording) {
        if let Some(commands) = self.recordings.get_mut(recording.0) {
            commands.clear();
        }
    }

    fn mark(&mut self) -> Result<Event, DriverError> {
        self.marks.push(Instant::now());
        Ok(Event(self.marks.len() - 1))
    }

    fn seconds(&mut self, from: Event, to: Event) -> Result<f64, DriverError> {
        match [from, to].map(|event| self.marks.get(event.0)) {
            [Some(from), Some(to)] => Ok(to.saturating_duration_since(*from).as_secs_f64()),
            _ => Err(DriverError::Failed("no such event was recorded".to_owned())),
        }
    }

    fn usage(&self) -> Usage {
        let held: usize = self.allocations.iter().flatten().map(|held| held.bytes).sum();
        Usage { allocations: Some(self.allocations.len()), allocated: Some(held as u64), taken: None }
    }

    fn synchronize(&mut self) -> Result<(), DriverError> {
        Ok(())
    }
}
