//! A GPU as an executor's device, with the renderer as its source of texts and NVRTC behind it.
//!
//! Runs from any folder, on a machine without cargo: libraries are found as the program finds them, and cubins are kept
//! below the system's folder for temporary files.

use kernwright_codegen::render::render;
use kernwright_compile::{Cache, Compiler, Libraries, Places, Source, compile_all, usable_libraries};
use kernwright_plan::arch::Arch;
use kernwright_plan::spec::KernelSpec;
use kernwright_runtime::driver::{DriverError, Layout, Text};
use kernwright_runtime::gpu::products::{self, Pick};
use kernwright_runtime::gpu::{self, Cubins, GpuFacts, Settings};
use kernwright_runtime::{Cuda, Gpu};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The executor under test.
pub(crate) type Device = Cuda<Gpu>;

/// What opening a GPU takes.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) libraries: Libraries,
    pub(crate) facts: GpuFacts,
    /// What cubins are for.
    pub(crate) arch: &'static Arch,
    pub(crate) compiler: Compiler,
}

fn find() -> Result<Options, String> {
    let libraries = usable_libraries(&Places::from_variables(std::env::vars_os()));
    let facts = gpu::find(&libraries, 0).map_err(|error| error.to_string())?;
    let arch = facts.arch.ok_or_else(|| format!("`{}` has no target", facts.name))?;
    let compiler = Compiler::open(&libraries).map_err(|error| error.to_string())?;
    Ok(Options { libraries, facts, arch, compiler })
}

/// The GPU of this machine; `None`, and a line of what is skipped, where there is none.
pub(crate) fn options(what: &str) -> Option<Options> {
    static FOUND: OnceLock<Result<Options, String>> = OnceLock::new();
    match FOUND.get_or_init(find) {
        Ok(options) => Some(options.clone()),
        Err(why) => {
            let required = std::env::var_os("REQUIRE_GPU").is_some_and(|value| value == "1");
            assert!(!required, "REQUIRE_GPU=1, but {why}");
            // Written past the test harness, which would swallow what a passing test prints.
            let _ = writeln!(std::io::stderr().lock(), "skipped: {what}: {why}");
            None
        }
    }
}

/// A kernel's text for a GPU.
pub(crate) fn text(spec: &KernelSpec, arch: &Arch) -> Result<String, String> {
    render(spec, arch).map_err(|error| format!("{error:?}"))
}

fn kept(folder: &str) -> PathBuf {
    std::env::temp_dir().join("kernwright-gpu-tests").join(folder)
}

/// Cubins for this GPU, whatever the tiles of the text were chosen for.
fn cubins(options: &Options) -> Cubins {
    let (compiler, arch) = (options.compiler.clone(), options.arch);
    Box::new(move |texts: &[Text]| {
        let names: Vec<String> = texts.iter().map(|text| text.spec.name()).collect();
        let kernels: Vec<(&str, &str)> =
            names.iter().zip(texts).map(|(name, text)| (name.as_str(), text.text.as_str())).collect();
        compiled(&compiler, arch, &kernels)
    })
}

pub(crate) fn compiled(
    compiler: &Compiler,
    arch: &Arch,
    kernels: &[(&str, &str)],
) -> Result<Vec<Vec<u8>>, DriverError> {
    let sources: Vec<Source<'_>> =
        kernels.iter().map(|(name, text)| Source { name, text, arch: &arch.name, options: &[] }).collect();
    let reports = compile_all(compiler, Some(&Cache::open(kept("cubins"))), &sources, 0, &|_| {});
    let cubins = reports.into_iter().map(|report| {
        let rejected = |error: kernwright_compile::Error| DriverError::Compile {
            kernel: report.name,
            reason: error.to_string(),
        };
        report.result.map_err(rejected)
    });
    cubins.collect()
}

/// The GPU itself.
pub(crate) fn open(options: &Options, synchronous: bool, pick: Pick) -> Gpu {
    let products = products::Settings { folder: Some(kept("products")), pick, ..Default::default() };
    let settings = Settings { synchronous, products, ..Settings::default() };
    let opened = Gpu::open(&options.libraries, options.facts.clone(), settings, cubins(options));
    opened.unwrap_or_else(|error| panic!("{error}"))
}

/// An executor whose kernels are the rendered ones, changed by `edit`. A GPU has one layout.
pub(crate) fn edited(
    options: &Options,
    arch: &Arch,
    _: Layout,
    edit: impl Fn(String) -> String + 'static,
) -> Device {
    picking(options, arch, Pick::Fastest, edit)
}

pub(crate) fn picking(
    options: &Options,
    arch: &Arch,
    pick: Pick,
    edit: impl Fn(String) -> String + 'static,
) -> Device {
    let of = arch.clone();
    let source = move |spec: &KernelSpec| text(spec, &of).map(&edit);
    Cuda::new(open(options, false, pick), arch.clone(), Box::new(source))
}

/// An executor whose kernels are the rendered ones.
pub(crate) fn device(options: &Options, arch: &Arch) -> Device {
    edited(options, arch, Layout::Arena, |text| text)
}
