//! The emulator as an executor's device, with the renderer as its source of texts.

use kernwright_codegen::render::render;
use kernwright_compile::testing;
use kernwright_plan::arch::Arch;
use kernwright_plan::spec::KernelSpec;
use kernwright_runtime::Cuda;
use kernwright_runtime::driver::Layout;
use kernwright_runtime::emulator::{Emulator, EmulatorDriver, Options};
use std::path::PathBuf;

/// The executor under test.
pub(crate) type Device = Cuda<EmulatorDriver>;

/// How to emulate; `None`, and a line of what is skipped, where there is no host compiler. Compiled kernels stay where
/// the next run finds them.
pub(crate) fn options(what: &str) -> Option<Options> {
    let compiler = testing::host_compiler_or_skip(std::env::vars_os(), what)?;
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("emulator");
    Some(Options { compiler, cache, workers: 1, checks: true, debug: false })
}

/// A kernel's text for a GPU.
pub(crate) fn text(spec: &KernelSpec, arch: &Arch) -> Result<String, String> {
    render(spec, arch).map_err(|error| format!("{error:?}"))
}

/// An executor whose kernels are the rendered ones, changed by `edit`.
pub(crate) fn edited(
    options: &Options,
    arch: &Arch,
    layout: Layout,
    edit: impl Fn(String) -> String + 'static,
) -> Device {
    let emulator = Emulator::new(options.clone()).unwrap_or_else(|error| panic!("{error}"));
    let of = arch.clone();
    let source = move |spec: &KernelSpec| text(spec, &of).map(&edit);
    Cuda::new(EmulatorDriver::new(emulator, layout), arch.clone(), Box::new(source))
}

/// An executor whose kernels are the rendered ones, and whose buffers are allocations of their own.
pub(crate) fn device(options: &Options, arch: &Arch) -> Device {
    edited(options, arch, Layout::Separate, |text| text)
}
