//! Devices for calls: one queue of a GPU, of the emulator or of the host, and buffers on it.
//!
//! In: which one, and the environment. Out: a [`Device`]. What is called on it, such as attention alone, is elsewhere; the
//! command line opens devices for whole models in its own way.

pub(crate) mod kernels;
mod kind;

pub use kind::DeviceKind;

use crate::environment::Environment;
use crate::error::Error;
use kernels::Carried;
use kernwright_compile::{HostCompiler, Libraries, Library, usable_libraries};
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::card::Card;
use kernwright_plan::executor::{Executor, ExecutorError};
use kernwright_plan::float::Float;
use kernwright_plan::measure::Usage;
use kernwright_plan::options::Options;
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_plan::tile::attention_backward_hopper::takes_turns;
use kernwright_runtime::Cpu;
use kernwright_runtime::cuda::Caller;
use kernwright_runtime::driver::Layout;
use kernwright_runtime::emulator::{self, Emulator, EmulatorDriver};
use kernwright_runtime::gpu::{self, Gpu, GpuFacts};
use kernwright_runtime::queue::{DeviceBuffer, Element, Host, SharedQueue};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A device with one queue: it does what it is asked for in order, and calls return before it is done.
///
/// It belongs to the thread that opened it.
pub struct Device {
    pub(crate) queue: SharedQueue,
    /// For plans that it is to run.
    pub(crate) options: Options,
    pub(crate) carried: Carried,
    description: String,
    card: Option<&'static Card>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("description", &self.description).finish_non_exhaustive()
    }
}

impl Device {
    /// Opens a device. With [`DeviceKind::Auto`] it is the first GPU if there is one that can be used, else the CPU;
    /// [`Device::description`] tells.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open(kind: &DeviceKind) -> Result<Self, Error> {
        Self::open_for(kind, &[])
    }

    /// The same, where GPUs may have been declared that the table does not have: `Seed::targets()`.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open_for(kind: &DeviceKind, targets: &[Arch]) -> Result<Self, Error> {
        let environment = Environment::read();
        match kind {
            DeviceKind::Auto => {
                // Looking for the driver alone costs next to nothing where there is none.
                let driver = Libraries::find_driver(&environment.places);
                let is_there = driver.best(Library::Driver).is_some();
                let gpu = is_there.then(|| Self::gpu(0, targets, &environment).ok()).flatten();
                gpu.map_or_else(|| Self::open_for(&DeviceKind::Cpu, targets), Ok)
            }
            DeviceKind::Cuda(index) => Self::gpu(*index, targets, &environment),
            DeviceKind::Emulator(name) => {
                let cache = environment.cache.clone();
                let cache = cache.unwrap_or_else(|| std::env::temp_dir().join("kernwright"));
                Self::emulator(name, targets, &environment, &cache.join("emulator"))
            }
            DeviceKind::Cpu => Self::host("CPU", || Ok(Box::new(Cpu::new(None)?))),
            DeviceKind::Reference => Self::reference::<f64>(),
        }
    }

    fn gpu(index: u32, targets: &[Arch], environment: &Environment) -> Result<Self, Error> {
        let libraries = usable_libraries(&environment.places);
        let facts = gpu::find(&libraries, index).map_err(Error::open)?;
        let arch = target(targets, &facts).map_err(Error::Device)?;
        let description =
            format!("GPU {index}, {} ({}, CUDA {} driver)", facts.name, arch.name, facts.driver);
        let options = Options {
            multiprocessors: Some(facts.multiprocessors as usize),
            in_turns: takes_turns(&arch),
            ..Options::default()
        };
        let card = Card::of(&facts.name, facts.memory);
        let settings = gpu::Settings { synchronous: environment.gpu_synchronous, ..gpu::Settings::default() };
        let carried = Carried::default();
        let cubins = kernels::cubins(&libraries, &arch, carried.clone(), environment, |_| {});
        let gpu = Gpu::open(&libraries, facts, settings, cubins).map_err(Error::open)?;
        let source = kernels::source(arch.clone(), carried.clone());
        let queue: SharedQueue = Rc::new(RefCell::new(Caller::new(gpu, arch, source)));
        Ok(Self { queue, options, carried, description, card })
    }

    /// The emulator as a GPU of this target, whose compiled kernels are kept in a folder of your own.
    ///
    /// # Errors
    /// When there is no such target, no C++ compiler, or the folder cannot be used.
    pub fn emulate(target: &str, cache: &Path) -> Result<Self, Error> {
        Self::emulator(target, &[], &Environment::read(), cache)
    }

    fn emulator(
        name: &str,
        targets: &[Arch],
        environment: &Environment,
        cache: &Path,
    ) -> Result<Self, Error> {
        let declared = targets.iter().find(|arch| arch.name == name).or_else(|| arch::find(name));
        let arch = declared.cloned().ok_or_else(|| {
            Error::Device(format!("`{name}` is not a known GPU: allowed are {}", arch::names()))
        })?;
        let compiler = HostCompiler::find(&environment.places).map_err(Error::open)?;
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let cache = PathBuf::from(cache);
        let options = emulator::Options { compiler, cache, workers, checks: true, debug: false };
        let emulator = Emulator::new(options).map_err(Error::open)?;
        let carried = Carried::default();
        let source = kernels::source(arch.clone(), carried.clone());
        let options = Options { in_turns: takes_turns(&arch), ..Options::default() };
        let description = format!("emulator of {}", arch.name);
        let driver = EmulatorDriver::new(emulator, Layout::Separate);
        let queue: SharedQueue = Rc::new(RefCell::new(Caller::new(driver, arch, source)));
        Ok(Self { queue, options, carried, description, card: None })
    }

    fn reference<F: Float + 'static>() -> Result<Self, Error> {
        Self::host("reference", || Ok(Box::new(Reference::<F>::new(Rounding::None))))
    }

    fn host(
        description: &str,
        executor: impl Fn() -> Result<Box<dyn Executor>, ExecutorError> + 'static,
    ) -> Result<Self, Error> {
        let queue: SharedQueue = Rc::new(RefCell::new(Host::new(Box::new(executor))));
        let (options, carried) = (Options::host(), Carried::default());
        Ok(Self { queue, options, carried, description: description.to_owned(), card: None })
    }

    /// What it is, in a few words: `CPU`, or the GPU's number, name and target.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The speeds of the card, where it is a GPU that the table has.
    #[must_use]
    pub fn card(&self) -> Option<&'static Card> {
        self.card
    }

    /// A buffer with a copy of these elements; returns before they are there.
    ///
    /// # Errors
    /// When the memory cannot be had or the device fails.
    pub fn upload<T: Element>(&self, elements: &[T]) -> Result<DeviceBuffer<T>, Error> {
        Ok(DeviceBuffer::of(&self.queue, elements)?)
    }

    /// A buffer of zeros.
    ///
    /// # Errors
    /// When the memory cannot be had or the device fails.
    pub fn zeros<T: Element>(&self, len: usize) -> Result<DeviceBuffer<T>, Error> {
        let mut elements = Vec::new();
        let needed = len.saturating_mul(size_of::<T>());
        elements.try_reserve_exact(len).map_err(|_| ExecutorError::Memory { needed })?;
        elements.resize(len, T::zeroed());
        self.upload(&elements)
    }

    /// Waits until everything that was asked for is done.
    ///
    /// # Errors
    /// What any of it met with.
    pub fn synchronize(&self) -> Result<(), Error> {
        Ok(self.queue.borrow_mut().wait()?)
    }

    /// What it has taken of its memory.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.queue.borrow().usage()
    }
}

/// What kernels are made for on a GPU: the declared target with its number, else the row of the table, with the multiprocessors that it has.
pub(crate) fn target(declared: &[Arch], facts: &GpuFacts) -> Result<Arch, String> {
    let (major, minor) = facts.capability;
    let number = format!("{major}{minor}");
    let declared = declared.iter().find(|arch| arch.number() == number);
    let of_this = |arch: &Arch| Arch { multiprocessors: Some(facts.multiprocessors), ..arch.clone() };
    declared.or(facts.arch).map(of_this).ok_or_else(|| {
        let name = &facts.name;
        format!(
            "`{name}` has compute capability {major}.{minor}, for which there is no target: allowed is {} and later; \
             one that is newer is declared by one it is like, as in `#[target(sm_{number}(like = sm_120a))]`",
            arch::ALL[0].name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_compile::Version;

    fn facts(capability: (u32, u32)) -> GpuFacts {
        GpuFacts {
            index: 0,
            name: "RTX 9999".to_owned(),
            capability,
            arch: arch::of_capability(capability),
            memory: 1 << 30,
            multiprocessors: 10,
            shared_memory: 100 << 10,
            driver: Version(vec![13, 0]),
        }
    }

    #[test]
    fn a_gpu_gets_the_target_of_its_number_and_a_new_one_is_told_how_to_get_one() {
        assert_eq!(target(&[], &facts((9, 0))).map(|arch| arch.name.to_string()), Ok("sm_90a".to_owned()));
        let error = target(&[], &facts((13, 0))).expect_err("nobody knows it");
        assert!(error.contains("`#[target(sm_130(like = sm_120a))]`"), "{error}");
        let new = Arch { name: "sm_130".into(), like: Some("sm_120a".into()), ..arch::ALL[0].clone() };
        let of_this = Arch { multiprocessors: Some(10), ..new.clone() };
        assert_eq!(target(&[new], &facts((13, 0))), Ok(of_this));
    }
}
