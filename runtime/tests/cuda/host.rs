//! A driver whose memory is the host's and whose kernels do nothing: what is tested is all that lies around them.

use kernwright_runtime::driver::{
    Address, Allocation, Command, Driver, DriverError, Event, Kernel, Layout, Recording, ReplayError, Text,
};
use kernwright_runtime::product::{HostMemory, multiply};

pub(crate) struct Host {
    pub(crate) layout: Layout,
    /// Bytes that can be had.
    pub(crate) room: usize,
    pub(crate) allocations: Vec<Option<(String, Vec<u8>)>>,
    pub(crate) kernels: Vec<String>,
    /// Kernels whose name has this in it fail.
    pub(crate) broken: Option<&'static str>,
    pub(crate) recordings: Vec<Option<Vec<Command>>>,
    pub(crate) replays: usize,
    /// Commands done: what its clock counts, a second each.
    pub(crate) done: usize,
}

impl Host {
    pub(crate) fn new(layout: Layout) -> Self {
        let (allocations, kernels, recordings) = (Vec::new(), Vec::new(), Vec::new());
        Self { layout, room: 1 << 30, allocations, kernels, broken: None, recordings, replays: 0, done: 0 }
    }

    pub(crate) fn used(&self) -> usize {
        self.allocations.iter().flatten().map(|(_, bytes)| bytes.len()).sum()
    }

    fn find(&self, at: Address, bytes: usize) -> Result<usize, DriverError> {
        let Some((name, content)) = &self.allocations[at.allocation.0] else {
            return Err(DriverError::Failed("that memory was given back".to_owned()));
        };
        if at.offset + bytes <= content.len() {
            return Ok(at.offset);
        }
        let (name, size) = (name.clone(), content.len());
        Err(DriverError::Bounds { name, size, offset: at.offset, bytes })
    }
}

impl HostMemory for Host {
    fn load(&self, from: Address, bytes: &mut [u8]) -> Result<(), DriverError> {
        let start = self.find(from, bytes.len())?;
        if let Some((_, content)) = &self.allocations[from.allocation.0] {
            bytes.copy_from_slice(&content[start..start + bytes.len()]);
        }
        Ok(())
    }

    fn store(&mut self, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        let start = self.find(to, bytes.len())?;
        if let Some((_, content)) = &mut self.allocations[to.allocation.0] {
            content[start..start + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }
}

impl Driver for Host {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn allocate(&mut self, name: &str, bytes: usize) -> Result<Allocation, DriverError> {
        if self.used() + bytes > self.room {
            return Err(DriverError::Memory { name: name.to_owned(), bytes });
        }
        self.allocations.push(Some((name.to_owned(), vec![0xff; bytes])));
        Ok(Allocation(self.allocations.len() - 1))
    }

    fn free(&mut self, allocation: Allocation) -> Result<(), DriverError> {
        self.allocations[allocation.0] = None;
        Ok(())
    }

    fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        self.store(to, bytes)
    }

    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), DriverError> {
        self.load(from, bytes)
    }

    fn pointer(&self, at: Address) -> Result<u64, DriverError> {
        Ok(((at.allocation.0 as u64) << 40) + at.offset as u64)
    }

    fn load(&mut self, texts: &[Text]) -> Result<Vec<Kernel>, DriverError> {
        let first = self.kernels.len();
        self.kernels.extend(texts.iter().map(|text| text.spec.name()));
        Ok((first..self.kernels.len()).map(Kernel).collect())
    }

    fn launch(&mut self, command: &Command) -> Result<(), DriverError> {
        self.done += 1;
        match command {
            Command::Kernel { kernel, .. } => {
                let name = &self.kernels[kernel.0];
                match self.broken.filter(|part| name.contains(part)) {
                    Some(_) => Err(DriverError::Failed("an illegal address was used".to_owned())),
                    None => Ok(()),
                }
            }
            Command::Product(product) => multiply(product, self),
            Command::Copy { from, to, bytes } => {
                let mut content = vec![0; *bytes];
                HostMemory::load(self, *from, &mut content)?;
                self.store(*to, &content)
            }
            Command::Zero { at, bytes } => self.store(*at, &vec![0; *bytes]),
            Command::Discard { at, bytes } => self.store(*at, &vec![0xff; *bytes]),
        }
    }

    fn record(&mut self, commands: Vec<Command>) -> Result<Recording, DriverError> {
        self.recordings.push(Some(commands));
        Ok(Recording(self.recordings.len() - 1))
    }

    fn replay(&mut self, recording: Recording) -> Result<(), ReplayError> {
        self.replays += 1;
        let commands = self.recordings[recording.0].clone().unwrap_or_default();
        for (index, command) in commands.iter().enumerate() {
            self.launch(command).map_err(|error| ReplayError { command: Some(index), error })?;
        }
        Ok(())
    }

    fn forget(&mut self, recording: Recording) {
        self.recordings[recording.0] = None;
    }

    fn mark(&mut self) -> Result<Event, DriverError> {
        Ok(Event(self.done))
    }

    fn seconds(&mut self, from: Event, to: Event) -> Result<f64, DriverError> {
        Ok((to.0 - from.0) as f64)
    }

    fn synchronize(&mut self) -> Result<(), DriverError> {
        Ok(())
    }
}
