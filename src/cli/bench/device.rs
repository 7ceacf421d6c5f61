//! What runs a step: the cores of this machine, or the emulator.

use crate::environment::Environment;
use clap::Args;
use kernwright_compile::HostCompiler;
use kernwright_plan::Options;
use kernwright_plan::arch;
use kernwright_plan::executor::Executor;
use kernwright_plan::gpu::Gpu;
use kernwright_plan::shape::Shape;
use kernwright_runtime::driver::Layout;
use kernwright_runtime::emulator::{self, Emulator, EmulatorDriver};
use kernwright_runtime::{Cpu, Cuda};
use std::error::Error;
use std::ffi::OsString;

/// Flags that choose it.
#[derive(Clone, Debug, Args)]
pub(in super::super) struct DeviceArguments {
    /// What runs the step
    #[arg(long, value_name = "DEVICE", value_enum, default_value_t = Choice::Cpu)]
    device: Choice,
    /// Threads of the CPU [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Choice {
    /// The cores of this machine
    Cpu,
    /// The generated kernels on the cores of this machine, thread by thread
    Emulator,
}

impl DeviceArguments {
    pub(super) fn flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = Vec::new();
        if self.device == Choice::Emulator {
            flags.extend(["--device".into(), "emulator".into()]);
        }
        if let Some(threads) = self.threads {
            flags.extend(["--threads".into(), threads.to_string().into()]);
        }
        flags
    }
}

/// An executor, and what is known of what it runs on.
pub(in super::super) struct Device {
    pub(in super::super) executor: Box<dyn Executor>,
    pub(in super::super) options: Options,
    pub(in super::super) name: String,
    /// What its kernels are made for and how fast it is, where it is a GPU that is known.
    pub(in super::super) gpu: Option<Gpu>,
    /// Is it a GPU that others may use as well?
    pub(in super::super) is_shared: bool,
}

pub(super) fn open(
    arguments: &DeviceArguments,
    _shape: &Shape,
    environment: &Environment,
) -> Result<Device, Box<dyn Error>> {
    match arguments.device {
        Choice::Cpu => {
            let executor = Box::new(Cpu::new(arguments.threads.map(usize::from))?);
            let name = "CPU".to_owned();
            Ok(Device { executor, options: Options::host(), name, gpu: None, is_shared: false })
        }
        Choice::Emulator => {
            let compiler = HostCompiler::find(&environment.places)?;
            let cache = environment.cache.clone().unwrap_or_else(std::env::temp_dir).join("emulator");
            let workers = std::thread::available_parallelism().map_or(1, usize::from);
            let options = emulator::Options { compiler, cache, workers, checks: false, debug: false };
            let driver = EmulatorDriver::new(Emulator::new(options)?, Layout::Arena);
            let arch = arch::find("sm_90a").unwrap_or(&arch::ALL[0]).clone();
            let of = arch.clone();
            let source = move |spec: &_| {
                kernwright_codegen::render::render(spec, &of).map_err(|error| kernwright_plan::chain(&error))
            };
            let executor = Box::new(Cuda::new(driver, arch, Box::new(source)));
            let name = "emulator".to_owned();
            Ok(Device { executor, options: Options::default(), name, gpu: None, is_shared: false })
        }
    }
}
