//! Texts and cubins of kernels for a GPU: those a program carries, else those made at start.
//!
//! In: the GPU's target and what the program carries. Out: a source of texts for the executor, and a function that makes
//! cubins of them for the driver: ahead of time where the text is the same, else by NVRTC, through the cache.

use crate::environment::Environment;
use crate::model::{Cubin, Source as CarriedText};
use kernwright_compile::{Cache, Compiler, Libraries, Source as Compilation, compile_all};
use kernwright_plan::arch::Arch;
use kernwright_plan::chain;
use kernwright_plan::spec::KernelSpec;
use kernwright_runtime::cuda::Source;
use kernwright_runtime::driver::{DriverError, Text};
use kernwright_runtime::gpu::Cubins;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Compiling for longer is worth a word.
const SILENCE: Duration = Duration::from_secs(1);

/// What a program carries of kernels; more may come while it is shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried(Rc<RefCell<Vec<Declaration>>>);

/// What one derive gave.
type Declaration = (&'static [CarriedText], &'static [Cubin]);

impl Carried {
    /// Adds what one derive gave, unless it is there.
    pub(crate) fn add(&self, sources: &'static [CarriedText], cubins: &'static [Cubin]) {
        let mut all = self.0.borrow_mut();
        if !all.iter().any(|(known, _)| std::ptr::eq(*known, sources)) {
            all.push((sources, cubins));
        }
    }

    fn text(&self, arch: &str, kernel: &str) -> Option<&'static str> {
        let all = self.0.borrow();
        let mut sources = all.iter().flat_map(|(sources, _)| *sources);
        Some(sources.find(|source| source.kernel == kernel && source.arch == arch)?.text)
    }

    /// The cubin that the program carries of this very text.
    fn cubin(&self, text: &Text, arch: &str) -> Option<&'static [u8]> {
        let name = text.spec.name();
        let all = self.0.borrow();
        all.iter().find_map(|(sources, cubins)| {
            let source = sources.iter().find(|source| source.arch == arch && source.kernel == name)?;
            let cubin = cubins.iter().find(|cubin| cubin.arch == arch && cubin.kernel == name)?;
            (source.text == text.text).then_some(cubin.cubin)
        })
    }

    /// Is there a cubin for this target?
    pub(crate) fn has_cubins(&self, arch: &str) -> bool {
        self.0.borrow().iter().any(|(_, cubins)| cubins.iter().any(|cubin| cubin.arch == arch))
    }
}

/// The text of a kernel. Equal names mean equal text, so it does not matter whose declaration asks.
pub(crate) fn source(arch: Arch, carried: Carried) -> Source {
    Box::new(move |spec| match carried.text(&arch.name, &spec.name()) {
        Some(text) => Ok(text.to_owned()),
        None => render(spec, &arch),
    })
}

/// The text of a kernel that the program does not carry.
#[cfg(feature = "render")]
pub(crate) fn render(spec: &KernelSpec, arch: &Arch) -> Result<String, String> {
    kernwright_codegen::render::render(spec, arch).map_err(|error| chain(&error))
}

#[cfg(not(feature = "render"))]
pub(crate) fn render(_: &KernelSpec, arch: &Arch) -> Result<String, String> {
    let arch = &arch.name;
    Err(format!(
        "this program carries no such kernel for `{arch}` and was built without the feature `render`: declare \
         `#[target({arch})]`, or build it with that feature"
    ))
}

/// What makes cubins, and tells of what takes long. NVRTC need not be there for those that the program carries.
pub(crate) fn cubins(
    libraries: &Libraries,
    arch: &Arch,
    carried: Carried,
    environment: &Environment,
    tell: fn(&str),
) -> Cubins {
    let compiler = Compiler::open(libraries);
    let (name, cache) = (arch.name.to_string(), environment.cache.clone());
    Box::new(move |texts| {
        let ready: Vec<Option<&[u8]>> = texts.iter().map(|text| carried.cubin(text, &name)).collect();
        let missing: Vec<&Text> =
            texts.iter().zip(&ready).filter(|(_, ready)| ready.is_none()).map(|(text, _)| text).collect();
        let mut compiled = match missing.is_empty() {
            true => Vec::new(),
            false => {
                let compiler = compiler.as_ref().map_err(|error| DriverError::Failed(error.to_string()))?;
                compile(compiler, cache.as_deref().map(Cache::open), &missing, &name, tell)?
            }
        }
        .into_iter();
        Ok(ready
            .into_iter()
            .filter_map(|ready| ready.map(<[u8]>::to_vec).or_else(|| compiled.next()))
            .collect())
    })
}

/// Compiles on all cores what the cache does not hold.
fn compile(
    compiler: &Compiler,
    cache: Option<Cache>,
    texts: &[&Text],
    arch: &str,
    tell: fn(&str),
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
        tell(&format!("compiled {n_compiled} kernels in {:.1} s", start.elapsed().as_secs_f64()));
    }
    if let Some(trouble) = cache.and_then(|cache| cache.note()) {
        tell(&format!("note: {trouble}"));
    }
    let cubins = reports.into_iter().map(|report| {
        report.result.map_err(|error| DriverError::Compile { kernel: report.name, reason: chain(&error) })
    });
    cubins.collect()
}
