//! What the sweep and the training run on: the GPU, with kernels for every target whose kernels it runs.

use crate::device::{Device, Options, compiled, picking};
use kernwright_plan::arch::{self, Arch};
use kernwright_runtime::gpu::products::Pick;
use std::collections::HashMap;

/// What is tested, in words.
pub(crate) const NAME: &str = "the GPU";

/// GPUs whose kernels it runs: its own first, and those that ask for nothing it lacks.
pub(crate) fn archs(options: &Options) -> Vec<&'static Arch> {
    let own = options.arch;
    let runs = |arch: &&Arch| {
        let families = arch.families.iter().all(|family| own.families.contains(family));
        *arch != own && families && arch.shared_memory <= own.shared_memory
    };
    std::iter::once(own).chain(arch::ALL.iter().filter(runs)).collect()
}

/// Compiles kernels, by name and text, on all cores.
pub(crate) fn compile(options: &Options, kernels: &[(&str, &str)]) {
    let compiled = compiled(&options.compiler, options.arch, kernels);
    drop(compiled.unwrap_or_else(|error| panic!("{error}")));
}

/// Devices for one work after the other: one for each target, cleared in between. Products of so many shapes are not timed.
pub(crate) struct Devices {
    options: Options,
    all: HashMap<String, Device>,
}

impl Devices {
    pub(crate) fn new(options: &Options) -> Self {
        Self { options: options.clone(), all: HashMap::new() }
    }

    /// One without plans.
    pub(crate) fn fresh(&mut self, arch: &Arch) -> &mut Device {
        let Self { options, all } = self;
        let device = all
            .entry(arch.name.to_string())
            .or_insert_with(|| picking(options, arch, Pick::First, |text| text));
        device.clear().unwrap_or_else(|error| panic!("{error:?}"));
        device
    }
}
