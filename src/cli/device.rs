//! `--device`: what runs a model, chosen and opened in this one place.
//!
//! In: what was asked for, a Shape, the environment. Out: an executor, the options of plans for it, and what to call it.
//! A GPU is taken where there is one that can run the model, else the CPU; one line on standard error says which, and why.

mod host_memory;
mod products;

use super::{Declared, libraries};
use crate::device::kernels::{self, Carried};
use crate::device::target;
use crate::environment::Environment;
use crate::terminal;
use clap::Args;
use kernwright_compile::{Compiler, Libraries, Library};
use kernwright_plan::Options as PlanOptions;
use kernwright_plan::arch::Arch;
use kernwright_plan::card::Card;
use kernwright_plan::executor::Executor;
use kernwright_plan::shape::Shape;
use kernwright_plan::tile::attention_backward_hopper::takes_turns;
use kernwright_runtime::driver::DriverError;
use kernwright_runtime::gpu::products::{Order, Settings};
use kernwright_runtime::gpu::{self, GpuFacts, StandIn};
use kernwright_runtime::{Cpu, Cuda, Gpu};
use std::error::Error;

/// Flags that choose a device.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct DeviceArguments {
    /// What runs it: auto (a GPU where there is one), cpu, cuda, or cuda:N for the GPU of that number
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = parse)]
    pub(super) device: Asked,
    /// Threads of the CPU; the result is the same for any number [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(super) threads: Option<u16>,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Asked {
    /// A GPU where there is one that can run the model.
    #[default]
    Auto,
    /// The host's cores.
    Cpu,
    /// The GPU of that number.
    Cuda(u32),
}

/// What runs a model.
pub(super) struct Device {
    pub(super) executor: Box<dyn Executor>,
    /// For plans that it is to run.
    pub(super) options: PlanOptions,
    /// In a few words: `CPU`, or the GPU's number, name and target.
    pub(super) description: String,
    /// Bytes that are free there for plans and for what is beside them, where that is known.
    pub(super) free: Option<u64>,
    /// What it takes of them whatever the plan.
    pub(super) beside: Beside,
    /// What is known of it, where it is a GPU.
    pub(super) gpu: Option<OfGpu>,
}

/// What is known of a GPU that runs a model.
#[derive(Clone, Debug)]
pub(super) struct OfGpu {
    /// What its kernels are made for.
    pub(super) arch: Arch,
    /// Its speeds, where it is in the table.
    pub(super) card: Option<&'static Card>,
    /// What tells it from others of its kind.
    pub(super) uuid: Option<String>,
}

/// Bytes that a device takes beside plans, by what for.
pub(super) type Beside = Vec<(&'static str, u64)>;

/// What a GPU takes beside plans.
pub(super) fn beside(capability: (u32, u32)) -> Beside {
    gpu::beside(capability).into_iter().map(|(what, bytes)| (what, bytes as u64)).collect()
}

/// Bytes of a GPU that nobody can foretell: kernels, graphs, what the driver keeps.
const RESERVE: u64 = 256 << 20;

/// What `--device` was given.
pub(super) fn parse(text: &str) -> Result<Asked, String> {
    match text {
        "auto" => Ok(Asked::Auto),
        "cpu" => Ok(Asked::Cpu),
        "cuda" => Ok(Asked::Cuda(0)),
        _ => text.strip_prefix("cuda:").and_then(|number| number.parse().ok()).map(Asked::Cuda).ok_or_else(
            || "allowed are `auto`, `cpu`, `cuda`, and `cuda:N` with the number of a GPU".to_owned(),
        ),
    }
}

/// Opens what was asked for, to run plans of a Shape; products may add in this order.
pub(super) fn executor(
    asked: &DeviceArguments,
    shape: &Shape,
    declared: Option<Declared>,
    environment: &Environment,
    order: Order,
) -> Result<Device, Box<dyn Error>> {
    let (device, why) = choose(asked, shape, declared, environment, order)?;
    let why = why.map_or(String::new(), |why| format!(": {why}"));
    terminal::note(&format!("device: {}{why}", device.description));
    Ok(device)
}

/// The same, silently, in the order that sums of products may have; and why it is not a GPU, where one was hoped for.
pub(super) fn choose(
    asked: &DeviceArguments,
    shape: &Shape,
    declared: Option<Declared>,
    environment: &Environment,
    order: Order,
) -> Result<(Device, Option<String>), Box<dyn Error>> {
    match asked.device {
        Asked::Cpu => Ok((cpu(asked)?, None)),
        Asked::Cuda(index) => Ok((of_gpu(gpu(index, shape, declared, environment, order)?), None)),
        Asked::Auto => {
            // Looking for the driver alone costs next to nothing where there is none.
            let driver = Libraries::find_driver(&environment.places);
            if driver.best(Library::Driver).is_none() {
                return Ok((cpu(asked)?, Some("no NVIDIA driver was found".to_owned())));
            }
            match gpu(0, shape, declared, environment, order) {
                Ok(executor) => Ok((of_gpu(executor), None)),
                Err(error) => Ok((cpu(asked)?, Some(kernwright_plan::chain(error.as_ref())))),
            }
        }
    }
}

fn cpu(asked: &DeviceArguments) -> Result<Device, Box<dyn Error>> {
    let executor = Box::new(Cpu::new(asked.threads.map(usize::from))?);
    let (description, free) = ("CPU".to_owned(), host_memory::available());
    Ok(Device { executor, options: PlanOptions::host(), description, free, beside: Vec::new(), gpu: None })
}

/// A GPU as what runs a model.
pub(super) fn of_gpu(executor: Cuda<Gpu>) -> Device {
    let facts = executor.driver().facts();
    let (description, options) = (description(&executor), options(&executor));
    let (arch, uuid) = (executor.arch().clone(), executor.driver().uuid().ok());
    // Code of kernels and graphs comes on top of what plans say.
    let free = executor.driver().free_at_first().map(|free| free.saturating_sub(RESERVE));
    let beside = beside(facts.capability);
    let gpu = Some(OfGpu { card: Card::of(&facts.name, facts.memory), arch, uuid });
    Device { executor: Box::new(executor), options, description, free, beside, gpu }
}

/// What to call a GPU: its number, name and target, or whose kernels it runs.
pub(super) fn description(executor: &Cuda<Gpu>) -> String {
    let GpuFacts { index, name, driver, arch, .. } = executor.driver().facts();
    let of = executor.arch();
    let made_for = if arch.is_none_or(|own| own.number() == of.number()) { "" } else { "kernels of " };
    format!("GPU {index}, {name} ({made_for}{}, CUDA {driver} driver)", of.name)
}

/// Of plans for a GPU.
pub(super) fn options(executor: &Cuda<Gpu>) -> PlanOptions {
    PlanOptions {
        multiprocessors: Some(executor.driver().facts().multiprocessors as usize),
        in_turns: takes_turns(executor.arch()),
        ..PlanOptions::default()
    }
}

/// The executor over a GPU of its own, for who must know that it is one.
pub(super) fn gpu(
    index: u32,
    shape: &Shape,
    declared: Option<Declared>,
    environment: &Environment,
    order: Order,
) -> Result<Cuda<Gpu>, Box<dyn Error>> {
    let libraries = libraries::find(&environment.places);
    let facts = gpu::find(&libraries, index)?;
    let arch = target(&shape.targets, &facts)?;
    open((libraries, facts), [&arch, &arch], declared, environment, (order, None))
}

/// The same, with the kernels that another target gets: with its tiles, compiled for this GPU.
pub(super) fn gpu_like(
    index: u32,
    like: &Arch,
    shape: &Shape,
    environment: &Environment,
    order: Order,
) -> Result<Cuda<Gpu>, Box<dyn Error>> {
    let libraries = libraries::find(&environment.places);
    let facts = gpu::find(&libraries, index)?;
    let arch = target(&shape.targets, &facts)?;
    runs_kernels_of(&arch, like)?;
    open((libraries, facts), [&arch, like], None, environment, (order, None))
}

/// The same, and no more blocks run at a time than there, for who measures in the other GPU's place.
pub(super) fn gpu_in_place_of(
    index: u32,
    other: &Arch,
    shape: &Shape,
    environment: &Environment,
) -> Result<Cuda<Gpu>, Box<dyn Error>> {
    let libraries = libraries::find(&environment.places);
    let facts = gpu::find(&libraries, index)?;
    let arch = target(&shape.targets, &facts)?;
    runs_kernels_of(&arch, other)?;
    let stands_in = StandIn { gpu: arch.clone(), other: other.clone() };
    open((libraries, facts), [&arch, other], None, environment, (Order::Fixed, Some(stands_in)))
}

/// Do kernels made for `other` run on `arch`, once they are compiled for it?
fn runs_kernels_of(arch: &Arch, other: &Arch) -> Result<(), String> {
    let missing = other.families.iter().find(|family| !arch.families.contains(family));
    let (name, of) = (&arch.name, &other.name);
    match missing {
        Some(family) => {
            Err(format!("kernels of `{of}` need the instructions of `{family}`, which `{name}` lacks"))
        }
        None if other.shared_memory > arch.shared_memory => Err(format!(
            "kernels of `{of}` may take {} bytes of shared memory, and a block has {} on `{name}`",
            other.shared_memory, arch.shared_memory
        )),
        None => Ok(()),
    }
}

/// Opens a GPU whose kernels are compiled for the first target and made for the second.
fn open(
    (libraries, facts): (Libraries, GpuFacts),
    [arch, like]: [&Arch; 2],
    declared: Option<Declared>,
    environment: &Environment,
    (order, stands_in): (Order, Option<StandIn>),
) -> Result<Cuda<Gpu>, Box<dyn Error>> {
    let carried = Carried::default();
    if let Some(declared) = declared {
        carried.add(declared.sources, declared.cubins);
    }
    if let (Err(error), false) = (Compiler::open(&libraries), carried.has_cubins(&arch.name)) {
        return Err(error.into());
    }
    let settings = gpu::Settings {
        synchronous: environment.gpu_synchronous,
        products: products::settings(order, environment),
        stands_in,
    };
    let cubins = kernels::cubins(&libraries, arch, carried.clone(), environment, terminal::note);
    let mut gpu = Gpu::open(&libraries, facts, settings, cubins)?;
    gpu.products_mut().tell(products::tell(environment));
    Ok(Cuda::new(gpu, like.clone(), kernels::source(like.clone(), carried)))
}

/// A GPU for products alone, with the target that plans are lowered for; it compiles no kernels.
pub(super) fn bare(
    index: u32,
    shape: &Shape,
    products: Settings,
    environment: &Environment,
) -> Result<(Gpu, Arch), Box<dyn Error>> {
    let libraries = libraries::find(&environment.places);
    let facts = gpu::find(&libraries, index)?;
    let arch = target(&shape.targets, &facts)?;
    let settings =
        gpu::Settings { synchronous: environment.gpu_synchronous, products, ..gpu::Settings::default() };
    let none = |_: &[_]| Err(DriverError::Failed("only products are computed here".to_owned()));
    let mut gpu = Gpu::open(&libraries, facts, settings, Box::new(none))?;
    gpu.products_mut().tell(products::tell(environment));
    Ok((gpu, arch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::arch;

    #[test]
    fn a_device_is_asked_for_by_name_and_number() {
        assert_eq!(parse("auto"), Ok(Asked::Auto));
        assert_eq!(parse("cpu"), Ok(Asked::Cpu));
        assert_eq!(parse("cuda"), Ok(Asked::Cuda(0)));
        assert_eq!(parse("cuda:3"), Ok(Asked::Cuda(3)));
        for wrong in ["gpu", "cuda:", "cuda:-1", "cuda:x", "cuda3", ""] {
            assert!(parse(wrong).is_err_and(|error| error.contains("`cuda:N`")), "{wrong}");
        }
    }

    #[test]
    fn a_gpu_runs_the_kernels_of_targets_that_ask_for_no_more() {
        let of = |name: &str| arch::find(name).expect("it is a row");
        let hopper = of("sm_90a");
        for other in ["sm_80", "sm_86", "sm_120a", "sm_90a"] {
            assert_eq!(runs_kernels_of(hopper, of(other)), Ok(()), "{other}");
        }
        let error = |name, other| runs_kernels_of(of(name), of(other)).expect_err(other);
        assert_eq!(
            error("sm_80", "sm_90a"),
            "kernels of `sm_90a` need the instructions of `hopper`, which `sm_80` lacks"
        );
        assert_eq!(
            error("sm_86", "sm_80"),
            "kernels of `sm_80` may take 166912 bytes of shared memory, and a block has 101376 on `sm_86`"
        );
    }
}
