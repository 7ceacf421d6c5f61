//! What the sweep and the training run on: emulators. A program for another device has a module of this name for it.

use crate::device::{Device, device};
use kernwright_plan::arch::{self, Arch};
use kernwright_runtime::emulator::{Emulator, Options};

/// What is tested, in words.
pub(crate) const NAME: &str = "the emulator";

/// GPUs whose kernels it runs: all.
pub(crate) fn archs(_: &Options) -> Vec<&'static Arch> {
    arch::ALL.iter().collect()
}

/// Compiles kernels, by name and text, before several devices want the same one.
pub(crate) fn compile(options: &Options, kernels: &[(&str, &str)]) {
    let compiled = Emulator::new(options.clone()).and_then(|mut emulator| emulator.load_all(kernels));
    compiled.unwrap_or_else(|error| panic!("{error}"));
}

/// Devices for one work after the other: an emulator of its own for each.
pub(crate) struct Devices {
    options: Options,
    last: Option<Device>,
}

impl Devices {
    pub(crate) fn new(options: &Options) -> Self {
        Self { options: options.clone(), last: None }
    }

    /// One without plans.
    pub(crate) fn fresh(&mut self, arch: &Arch) -> &mut Device {
        self.last.insert(device(&self.options, arch))
    }
}
