//! Compiling ahead of time: kernels become cubins in the build script's folder.
//!
//! In: kernels, and where NVIDIA's libraries may be. Out: [`Ahead`]; what cannot be had is a warning. Compiles on every
//! core, and through a cache that all profiles of a target folder share, so that only what changed takes time.

use kernwright_codegen::cubins::{Cubins, Remarks};
use kernwright_codegen::generate::Generated;
use kernwright_compile::{Cache, Compiler, Error, Places, Report, Source, compile_all, usable_libraries};
use std::path::{Path, PathBuf};

/// What came of it.
#[derive(Debug)]
pub(crate) struct Ahead {
    /// Where the cubins are; some or all may be missing.
    pub(crate) cubins: Cubins,
    /// The compiler's file, if it is known: another means other cubins.
    pub(crate) compiler: Option<PathBuf>,
    /// The variables that decide which compiler there is.
    pub(crate) variables: &'static [&'static str],
    /// What the user is told.
    pub(crate) warnings: Vec<String>,
}

/// With a compiler at hand, whoever activates another environment does not want everything built again.
const EXPLICIT: &[&str] = &["KERNWRIGHT_CUDA_PATH"];
const EVERY: &[&str] =
    &["KERNWRIGHT_CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"];

/// Fills `folder` with a cubin of each kernel.
pub(crate) fn compile(kernels: &[&Generated], folder: PathBuf, cache: &Path, places: &Places) -> Ahead {
    let cubins = Cubins::new(folder);
    cubins.retain(kernels.iter().copied());
    let compiler = match Compiler::open(&usable_libraries(places)) {
        Ok(compiler) => compiler,
        Err(error) => {
            let warning = format!("kernels are compiled when the program first uses them, not now: {error}");
            return Ahead { cubins, compiler: None, variables: EVERY, warnings: vec![warning] };
        }
    };
    let sources: Vec<Source<'_>> = kernels
        .iter()
        .map(|one| Source { name: &one.kernel, text: &one.text, arch: &one.arch.name, options: &[] })
        .collect();
    let cache = Cache::open(cache);
    let reports = compile_all(&compiler, Some(&cache), &sources, 0, &|_| {});
    let mut warnings: Vec<String> = Vec::new();
    for (one, report) in kernels.iter().zip(&reports) {
        let Err(why) = store(&cubins, one, report) else { continue };
        // A GPU that this NVRTC does not know is one complaint, not one of each kernel.
        let warning = match &report.result {
            Err(Error::Arch { version, allowed, .. }) => {
                format!("no cubins for `{}`: NVRTC {version} compiles for {allowed}", one.arch.name)
            }
            _ => format!("no cubin of `{}` for `{}`: {why}", one.kernel, one.arch.name),
        };
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    // The loader may know it by a name alone, which is no file to watch.
    let compiler = Some(compiler.path().to_owned()).filter(|path| path.is_absolute());
    Ahead { cubins, compiler, variables: EXPLICIT, warnings }
}

fn store(cubins: &Cubins, one: &Generated, report: &Report) -> Result<(), String> {
    let cubin = report.result.as_ref().map_err(ToString::to_string)?;
    let resources = report.resources.first().map(serde_json::to_value);
    let resources = match resources {
        Some(Ok(serde_json::Value::Object(resources))) => resources,
        _ => serde_json::Map::new(),
    };
    let remarks = Remarks { log: report.log.clone(), resources };
    cubins.store(one, cubin, &remarks).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_compile::testing::Scratch;

    #[test]
    fn without_a_compiler_there_is_one_warning_and_no_cubin() {
        let scratch = Scratch::new("ahead");
        let mut places = Places::from_variables([] as [(&str, &str); 0]);
        // No library of this machine is found below another root.
        places.root = scratch.path().join("nothing");
        let folder = scratch.path().join("cubins");
        let ahead = compile(&[], folder.clone(), &scratch.path().join("cache"), &places);
        assert_eq!(ahead.warnings.len(), 1);
        assert!(
            ahead.warnings[0].starts_with("kernels are compiled when the program first uses them, not now: ")
        );
        assert_eq!((ahead.compiler, ahead.cubins.folder()), (None, &*folder));
        assert!(ahead.variables.contains(&"VIRTUAL_ENV"));
        assert!(!folder.exists());
    }
}
