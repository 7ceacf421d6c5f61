//! The emulator: runs generated CUDA text on the CPU, thread by thread, and checks every access to memory.
//!
//! In: the very text that a GPU's compiler gets, and launches of it. Out: what it wrote into the emulated device's memory,
//! or a report of the first fault. The text is compiled by the host's C++ compiler against one header
//! (`device/kernwright_emulator.h`) that gives the device vocabulary its second definition; a library built from `device/`
//! runs grids (`device/model.h` tells how). Must not know plans, ops or what a kernel computes.
//!
//! ```no_run
//! # use kernwright_runtime::emulator::{Emulator, EmulatorError, Options, Word};
//! # fn run(options: Options, text: &str) -> Result<(), EmulatorError> {
//! let mut emulator = Emulator::new(options)?;
//! let x = emulator.allocate("x", 4096)?;
//! emulator.zero(x, 4096)?;
//! let kernel = emulator.load("scale", text)?;
//! emulator.launch(kernel, [8, 1, 1], 128, 0, &[Word::Address(x), Word::F32(2.0)])?;
//! # Ok(())
//! # }
//! ```

mod binding;
mod counters;
mod driver;
mod error;
mod lines;
mod memory;
mod modules;
mod report;

pub use counters::{Counted, Counter};
pub use driver::EmulatorDriver;
pub use error::EmulatorError;
pub use memory::Address;

use crate::tensor_map::TensorNumbers;
use binding::{Device, Ended, Launch, Module, Parameter};
use counters::Counters;
use kernwright_compile::HostCompiler;
use kernwright_plan::tensor_map::TensorLayout;
use lines::Lines;
use memory::Memory;
use modules::{Builder, Built};
use rayon::prelude::*;
use report::Scene;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::OnceLock;

/// How to emulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// What compiles kernels.
    pub compiler: HostCompiler,
    /// A folder in which compiled kernels are kept; made if it is not there.
    pub cache: PathBuf,
    /// Host threads that blocks are spread over.
    pub workers: usize,
    /// Check every access? Several times slower, and the only way to be told of a fault.
    pub checks: bool,
    /// Compile kernels so that a debugger can step through them, and run them on one host thread?
    pub debug: bool,
}

/// One argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Word {
    /// A pointer; [`Address::NULL`] where the kernel gets none.
    Address(Address),
    /// A tensor as the copy unit knows it.
    TensorMap {
        /// Its first element.
        at: Address,
        /// What lies from there on.
        layout: TensorLayout,
    },
    /// A 32-bit whole number.
    I32(i32),
    /// A 64-bit whole number.
    I64(i64),
    /// A single-precision number.
    F32(f32),
}

/// A loaded kernel of one [`Emulator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelId(usize);

/// The most shared memory that a block may have: that of the largest GPU in the table.
pub const MOST_SHARED_MEMORY: u32 = 227 * 1024;

/// The most blocks of a cluster; `MOST_CLUSTER` of device/model.h.
const MOST_CLUSTER: u32 = 8;

struct Kernel {
    name: String,
    text: String,
    built: Built,
    module: Module,
    /// Read when somebody asks.
    lines: OnceLock<Lines>,
}

impl Kernel {
    fn lines(&self) -> &Lines {
        self.lines.get_or_init(|| Lines::open(&self.built.module, &self.built.source, &self.text))
    }
}

/// An emulated device with its memory and its kernels.
pub struct Emulator {
    builder: Builder,
    // Before the library they are linked with.
    kernels: Vec<Kernel>,
    known: HashMap<PathBuf, KernelId>,
    memory: Memory,
    device: Device,
    checks: bool,
    workers: u32,
    counters: Option<Counters>,
}

impl std::fmt::Debug for Emulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Emulator").field("kernels", &self.kernels.len()).finish_non_exhaustive()
    }
}

impl Emulator {
    /// Starts one; the first time in a cache folder its library is compiled, which takes seconds.
    ///
    /// # Errors
    /// When the folder cannot be used or the compiler fails.
    pub fn new(options: Options) -> Result<Emulator, EmulatorError> {
        let Options { compiler, cache, workers, checks, debug } = options;
        let builder = Builder::open(compiler, &cache, checks, debug)?;
        let device = Device::load(&builder.library)?;
        let workers = if debug { 1 } else { u32::try_from(workers.clamp(1, 256)).unwrap_or(1) };
        let (kernels, known, memory) = (Vec::new(), HashMap::new(), Memory::default());
        Ok(Emulator { builder, kernels, known, memory, device, checks, workers, counters: None })
    }

    /// Takes memory, aligned to 256 bytes; nobody wrote it yet. The name is for reports.
    ///
    /// # Errors
    /// When the host has no room.
    pub fn allocate(&mut self, name: &str, bytes: u64) -> Result<Address, EmulatorError> {
        let no_room = EmulatorError::NoRoom { name: name.to_owned(), bytes };
        self.memory.allocate(name, bytes).ok_or(no_room)
    }

    /// Gives an allocation back; the address is that of its first byte.
    ///
    /// # Errors
    /// When there is none.
    pub fn free(&mut self, address: Address) -> Result<(), EmulatorError> {
        self.memory.free(address)
    }

    /// Copies bytes of the host to the device.
    ///
    /// # Errors
    /// When they reach outside of an allocation.
    pub fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<(), EmulatorError> {
        self.memory.upload(to, bytes)
    }

    /// Copies bytes of the device to the host. Those that nobody wrote are all 0xff.
    ///
    /// # Errors
    /// When they reach outside of an allocation.
    pub fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), EmulatorError> {
        self.memory.download(from, bytes)
    }

    /// Sets bytes to zero.
    ///
    /// # Errors
    /// When they reach outside of an allocation.
    pub fn zero(&mut self, at: Address, bytes: u64) -> Result<(), EmulatorError> {
        self.memory.zero(at, bytes)
    }

    /// Copies bytes within the device.
    ///
    /// # Errors
    /// When they reach outside of an allocation.
    pub fn copy(&mut self, to: Address, from: Address, bytes: u64) -> Result<(), EmulatorError> {
        self.memory.copy(to, from, bytes)
    }

    /// Declares that what is there is not wanted any more: reading it is then a fault.
    ///
    /// # Errors
    /// When it reaches outside of an allocation.
    pub fn discard(&mut self, at: Address, bytes: u64) -> Result<(), EmulatorError> {
        self.memory.discard(at, bytes)
    }

    /// Which of these bytes is the first that nobody wrote; without checks nobody knows.
    ///
    /// # Errors
    /// When they reach outside of an allocation.
    pub fn first_unwritten(&self, at: Address, bytes: u64) -> Result<Option<u64>, EmulatorError> {
        let first = self.memory.first_unwritten(at, bytes)?;
        Ok(first.filter(|_| self.checks))
    }

    /// Compiles and loads a kernel: `text` defines `extern "C" __global__ void name(...)`.
    ///
    /// # Errors
    /// When it does not compile.
    pub fn load(&mut self, name: &str, text: &str) -> Result<KernelId, EmulatorError> {
        let built = self.builder.build(name, text)?;
        self.keep(name, text, built)
    }

    /// The same for many, compiled on all cores.
    ///
    /// # Errors
    /// The first that does not compile.
    pub fn load_all(&mut self, kernels: &[(&str, &str)]) -> Result<Vec<KernelId>, EmulatorError> {
        let built: Vec<_> = kernels
            .par_iter()
            .map(|(name, text)| self.builder.build(name, text))
            .collect::<Result<_, _>>()?;
        kernels.iter().zip(built).map(|((name, text), built)| self.keep(name, text, built)).collect()
    }

    /// Begins to count, from nothing, or stops. Plain accesses are seen only with checks.
    pub fn count(&mut self, counting: bool) {
        self.counters = counting.then(Counters::default);
    }

    /// What was counted so far, by kernel and line.
    #[must_use]
    pub fn counters(&self) -> Vec<Counter> {
        self.counters.as_ref().map(Counters::sorted).unwrap_or_default()
    }

    fn keep(&mut self, name: &str, text: &str, built: Built) -> Result<KernelId, EmulatorError> {
        if let Some(&known) = self.known.get(&built.module) {
            return Ok(known);
        }
        let module = self.device.load_module(&built.module)?;
        let id = KernelId(self.kernels.len());
        self.known.insert(built.module.clone(), id);
        let (name, text) = (name.to_owned(), text.to_owned());
        self.kernels.push(Kernel { name, text, built, module, lines: OnceLock::new() });
        Ok(id)
    }

    /// Runs a grid of blocks of `block` threads each, to its end or to the first fault.
    ///
    /// # Errors
    /// When the launch does not fit the kernel, or a check finds a fault; memory then holds what was written until then.
    pub fn launch(
        &mut self,
        kernel: KernelId,
        grid: [u32; 3],
        block: u32,
        shared_memory: u32,
        arguments: &[Word],
    ) -> Result<(), EmulatorError> {
        let kernel = self.kernels.get(kernel.0).ok_or(EmulatorError::NoKernel)?;
        fits(kernel, grid, block, shared_memory)?;
        let arguments = parameters(kernel, arguments)?;
        let ranges = self.memory.ranges();
        let lines = || kernel.lines();
        let same_place =
            |one: u64, other: u64| lines().same(one - kernel.module.base, other - kernel.module.base);
        let mut rows = Vec::new();
        let launch = Launch {
            grid,
            block,
            shared_bytes: u64::from(shared_memory),
            arguments: &arguments,
            ranges,
            checks: self.checks,
            workers: self.workers,
            counters: self.counters.is_some().then_some(&mut rows),
            same_place: &same_place,
        };
        let ended = self.device.launch(&kernel.module, launch)?;
        if let Some(counters) = &mut self.counters {
            counters.add(&kernel.name, &rows, |site| lines().line(&[site - kernel.module.base]));
        }
        match ended {
            Ended::Whole => Ok(()),
            Ended::Fault(report) => {
                let Kernel { name, module, .. } = kernel;
                let scene = Scene {
                    kernel: name,
                    base: module.base,
                    lines: kernel.lines(),
                    memory: &self.memory,
                    block,
                };
                Err(EmulatorError::Fault(scene.text(&report)))
            }
        }
    }
}

fn fits(kernel: &Kernel, grid: [u32; 3], block: u32, shared_memory: u32) -> Result<(), EmulatorError> {
    // CUDA's own limits.
    let limits = [
        ("the grid's x", grid[0], 1, i32::MAX as u32),
        ("the grid's y", grid[1], 1, 65_535),
        ("the grid's z", grid[2], 1, 65_535),
        ("a block's threads", block, 1, 1024),
        ("a block's shared memory", shared_memory, 0, MOST_SHARED_MEMORY),
    ];
    let cluster = kernel.module.cluster;
    if cluster > 1 {
        let limit = |what, allowed: String, found| {
            Err(EmulatorError::Limit { kernel: kernel.name.clone(), what, allowed, found: u64::from(found) })
        };
        if cluster > MOST_CLUSTER || cluster * block > 1024 || !block.is_multiple_of(128) {
            let allowed = format!("whole warpgroups, {MOST_CLUSTER} blocks and 1024 threads at most");
            return limit("the threads of a cluster", allowed, cluster.saturating_mul(block));
        }
        if !grid[0].is_multiple_of(cluster) {
            return limit("the grid's x", format!("a multiple of its clusters' {cluster} blocks"), grid[0]);
        }
    }
    for (what, found, least, most) in limits {
        if found < least || found > most {
            let (kernel, allowed) = (kernel.name.clone(), format!("{least} to {most}"));
            return Err(EmulatorError::Limit { kernel, what, allowed, found: u64::from(found) });
        }
    }
    Ok(())
}

/// Each argument, if they are of the kinds that the kernel takes.
fn parameters(kernel: &Kernel, arguments: &[Word]) -> Result<Vec<Parameter>, EmulatorError> {
    let found: String = arguments
        .iter()
        .map(|word| match word {
            Word::Address(_) => 'p',
            Word::TensorMap { .. } => 't',
            Word::I32(_) => 'i',
            Word::I64(_) => 'l',
            Word::F32(_) => 'f',
        })
        .collect();
    if found != kernel.module.kinds {
        let (expected, found) = (kinds(&kernel.module.kinds), kinds(&found));
        return Err(EmulatorError::Arguments { kernel: kernel.name.clone(), expected, found });
    }
    let bits = |word: &Word| {
        Ok(match *word {
            Word::Address(Address(address)) => Parameter::word(address),
            Word::TensorMap { at, layout } => match TensorNumbers::new(at.0, &layout) {
                Ok(numbers) => Parameter(numbers.model()),
                Err(reason) => return Err(EmulatorError::TensorMap { kernel: kernel.name.clone(), reason }),
            },
            Word::I32(number) => Parameter::word(u64::from(number.cast_unsigned())),
            Word::I64(number) => Parameter::word(number.cast_unsigned()),
            Word::F32(number) => Parameter::word(u64::from(number.to_bits())),
        })
    };
    arguments.iter().map(bits).collect()
}

fn kinds(letters: &str) -> String {
    let name = |letter: char| match letter {
        'p' => "pointer",
        't' => "TensorMap",
        'i' => "i32",
        'l' => "i64",
        'f' => "float",
        _ => "unknown",
    };
    letters.chars().map(name).collect::<Vec<_>>().join(", ")
}
