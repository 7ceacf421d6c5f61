//! Texts and cubins of kernels for a GPU: those a program carries, else those made at start.
//!
//! In: the GPU's target and what the program declares. Out: a source of texts for the executor, and a function that makes
//! cubins of them for the driver: ahead of time where the text is the same, else by NVRTC, through the cache.

use super::super::Declared;
use crate::environment::Environment;
use crate::terminal::note;
use kernwright_compile::{Cache, Compiler, Libraries, Source as Compilation, compile_all};
use kernwright_plan::arch::Arch;
use kernwright_plan::chain;
use kernwright_plan::spec::KernelSpec;
use kernwright_runtime::cuda::Source;
use kernwright_runtime::driver::{DriverError, Text};
use kernwright_runtime::gpu::Cubins;
use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, Instant};

/// Compiling for longer is worth a word.
const SILENCE: Duration = Duration::from_secs(1);

/// The text of a kernel. Equal names mean equal text, so it does not matter whose Shape asks.
pub(super) fn source(arch: Arch, declared: Option<Declared>) -> Source {
    let carried: HashMap<&str, &str> = declared
        .iter()
        .flat_map(|declared| declared.sources)
        .filter(|source| source.arch == arch.name)
        .map(|source| (source.kernel, source.text))
        .collect();
    Box::new(move |spec| match carried.get(spec.name().as_str()) {
        Some(text) => Ok((*text).to_owned()),
        None => render(spec, &arch),
    })
}

#[cfg(feature = "render")]
fn render(spec: &KernelSpec, arch: &Arch) -> Result<String, String> {
    kernwright_codegen::render::render(spec, arch).map_err(|error| chain(&error))
}

#[cfg(not(feature = "render"))]
fn render(_: &KernelSpec, arch: &Arch) -> Result<String, String> {
    let arch = &arch.name;
    Err(format!(
        "this program carries no such kernel for `{arch}` and was built without the feature `render`: declare \
         `#[target({arch})]`, or build it with that feature"
    ))
}

/// What makes cubins. NVRTC must be there unless the program carries cubins for this target.
pub(super) fn cubins(
    libraries: &Libraries,
    arch: &Arch,
    declared: Option<Declared>,
    environment: &Environment,
) -> Result<Cubins, Box<dyn Error>> {
    let compiler = Compiler::open(libraries);
    let carries = |cubins: &[crate::model::Cubin]| cubins.iter().any(|cubin| cubin.arch == arch.name);
    if let (Err(error), false) = (&compiler, declared.is_some_and(|declared| carries(declared.cubins))) {
        return Err(error.clone().into());
    }
    let (name, cache) = (arch.name.to_string(), environment.cache.clone());
    Ok(Box::new(move |texts| {
        let ready: Vec<Option<&[u8]>> =
            texts.iter().map(|text| ahead_of_time(text, &name, declared)).collect();
        let missing: Vec<&Text> =
            texts.iter().zip(&ready).filter(|(_, ready)| ready.is_none()).map(|(text, _)| text).collect();
        let mut compiled = match missing.is_empty() {
            true => Vec::new(),
            false => {
                let compiler = compiler.as_ref().map_err(|error| DriverError::Failed(error.to_string()))?;
                compile(compiler, cache.as_deref().map(Cache::open), &missing, &name)?
            }
        }
        .into_iter();
        Ok(ready
            .into_iter()
            .filter_map(|ready| ready.map(<[u8]>::to_vec).or_else(|| compiled.next()))
            .collect())
    }))
}

/// The cubin that the program carries of this very text.
fn ahead_of_time(text: &Text, arch: &str, declared: Option<Declared>) -> Option<&'static [u8]> {
    let (declared, name) = (declared?, text.spec.name());
    let source = declared.sources.iter().find(|source| source.arch == arch && source.kernel == name)?;
    let cubin = declared.cubins.iter().find(|cubin| cubin.arch == arch && cubin.kernel == name)?;
    (source.text == text.text).then_some(cubin.cubin)
}

/// Compiles on all cores what the cache does not hold.
fn compile(
    compiler: &Compiler,
    cache: Option<Cache>,
    texts: &[&Text],
    arch: &str,
) -> Result<Vec<Vec<u8>>, DriverError> {
    let start = Instant::now();
    let names: Vec<String> = texts.iter().map(|text| text.spec.name()).collect();
    let sources: Vec<Compilation<'_>> = names
        .iter()
        .zip(texts)
        .map(|(name, text)| Compilation { name, text: &text.text, arch, options: &[] })
        .collect();
    let reports = compile_all(compiler, cache.as_ref(), &sources, 0, &|_| {});
    let n_compiled = reports.iter().filter(|report| !report.cached).count();
    if n_compiled > 0 && start.elapsed() > SILENCE {
        note(&format!("compiled {n_compiled} kernels in {:.1} s", start.elapsed().as_secs_f64()));
    }
    if let Some(trouble) = cache.and_then(|cache| cache.note()) {
        note(&format!("note: {trouble}"));
    }
    let cubins = reports.into_iter().map(|report| {
        report.result.map_err(|error| DriverError::Compile { kernel: report.name, reason: chain(&error) })
    });
    cubins.collect()
}
