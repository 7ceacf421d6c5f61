//! A one-line build script: `kernwright_build::run(&["src/main.rs"])`.
//!
//! In: files of the package. Out: the same copies below target/ that the derive writes; where NVRTC is found, a cubin of
//! each kernel, which the derive puts into the program; and lines that tell cargo when to run the script again. It never
//! fails a build: mistakes in attributes are the derive's to report, and a kernel without a cubin is compiled when the
//! program first uses it.

mod ahead;

use kernwright_codegen::build::{copy, models};
use kernwright_codegen::cubins::VARIABLE;
use kernwright_codegen::tables::{FOLDER, Tables};
use kernwright_codegen::target_dir::Whereabouts;
use kernwright_compile::Places;
use std::env;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Does all of it for every model declared in `files`, which are relative to the package.
pub fn run(files: &[impl AsRef<Path>]) {
    let overriding = env::var("KERNWRIGHT_TARGETS").ok();
    let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
    let target_dir = Whereabouts::of_this_process().target_dir();
    let folder = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let tables = Tables::of_package(&folder);
    let mut lines = vec!["cargo::rerun-if-env-changed=KERNWRIGHT_TARGETS".to_owned()];
    if folder.join(FOLDER).exists() {
        lines.extend(rerun_if_changed(Path::new(FOLDER)));
    }
    let mut all = Vec::new();
    for file in files.iter().map(AsRef::as_ref) {
        lines.extend(rerun_if_changed(file));
        let models = models(file, &package, overriding.as_deref(), &tables);
        all.extend(models.into_iter().map(|model| (file, model)));
    }

    let mut kernels: Vec<_> = all.iter().flat_map(|(_, model)| &model.kernels).collect();
    kernels.sort_by_key(|one| (&one.arch.name, &one.kernel));
    kernels.dedup_by_key(|one| (&one.arch.name, &one.kernel));
    let mut cubins = None;
    if let (Some(out), false) = (env::var_os("OUT_DIR").map(PathBuf::from), kernels.is_empty()) {
        let cache = target_dir.as_ref().unwrap_or(&out).join("kernwright/.cubins");
        let places = Places::from_variables(env::vars_os());
        let ahead = ahead::compile(&kernels, out.join("kernwright-cubins"), &cache, &places);
        lines.extend(ahead.variables.iter().map(|name| format!("cargo::rerun-if-env-changed={name}")));
        lines.extend(ahead.compiler.as_deref().and_then(rerun_if_changed));
        lines.extend(ahead.warnings.iter().map(|warning| format!("cargo::warning={}", in_one_line(warning))));
        if let Some(folder) = line_of(ahead.cubins.folder()) {
            lines.push(format!("cargo::rustc-env={VARIABLE}={folder}"));
            cubins = Some(ahead.cubins);
        }
    }

    if let Some(target_dir) = &target_dir {
        for (file, model) in &all {
            let copies = copy(file, model, target_dir, cubins.as_ref());
            lines.extend(copies.iter().filter_map(|copy| rerun_if_changed(copy)));
        }
    }
    let _ = writeln!(io::stdout(), "{}", lines.join("\n"));
}

fn rerun_if_changed(path: &Path) -> Option<String> {
    line_of(path).map(|path| format!("cargo::rerun-if-changed={path}"))
}

/// A path, if cargo can be told of it: in what is read line by line, as UTF-8.
fn line_of(path: &Path) -> Option<&str> {
    path.to_str().filter(|path| !path.contains(['\n', '\r']))
}

fn in_one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
