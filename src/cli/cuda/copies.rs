//! Kernels become files: `<folder>/<arch>/<kernel>.cu`, and `manifest.json` beside them.
//!
//! In: kernels, and what the compiler said of them if it was asked. Out: files, touched only where their text changed.
//! A source that an earlier manifest lists and that is no longer generated is removed; nothing else is.

use super::super::kernels::Kernel;
use super::super::shape::Named;
use kernwright_compile::{Report, Resources};
use kernwright_plan::spec::SpecValue;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::{fs, io};

const MANIFEST: &str = "manifest.json";

#[derive(Serialize)]
struct Manifest<'a> {
    generator: &'static str,
    model: &'a str,
    shape: Vec<&'a str>,
    arch: &'a str,
    kernels: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u32>,
    shared_memory: u32,
    fields: serde_json::Map<String, serde_json::Value>,
    /// Present once compiled.
    #[serde(flatten)]
    compiled: Option<&'a Resources>,
}

/// The part of an older manifest that says which files are ours.
#[derive(Deserialize)]
struct Listed {
    kernels: Vec<Name>,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

/// Writes them; gives the path of each, in order. `reports` are in the order of the kernels, or empty.
///
/// # Errors
/// The first file that could not be written or removed, by its path.
pub(super) fn write(
    folder: &Path,
    named: &Named,
    kernels: &[Kernel],
    reports: &[Report],
) -> Result<Vec<PathBuf>, String> {
    let at = |path: &Path, error: &io::Error| format!("cannot write `{}`: {error}", path.display());
    let mut paths = Vec::new();
    let mut rest = kernels;
    let text = named.shape.text();
    while let Some(first) = rest.first() {
        let (of_arch, others) = rest.split_at(rest.iter().take_while(|one| one.arch == first.arch).count());
        let done = kernels.len() - rest.len();
        rest = others;
        let folder = folder.join(&*first.arch.name);
        fs::create_dir_all(&folder).map_err(|error| at(&folder, &error))?;
        for kernel in of_arch {
            let path = folder.join(format!("{}.cu", kernel.name));
            write_if_changed(&path, &kernel.text).map_err(|error| at(&path, &error))?;
            paths.push(path);
        }
        let manifest = folder.join(MANIFEST);
        remove_stale(&folder, &manifest, of_arch).map_err(|error| at(&folder, &error))?;
        let resources = |index: usize| reports.get(done + index).and_then(|report| report.resources.first());
        let entries = of_arch.iter().enumerate().map(|(index, kernel)| entry(kernel, resources(index)));
        let content = Manifest {
            generator: concat!("kernwright ", env!("CARGO_PKG_VERSION")),
            model: &named.name,
            shape: text.lines().collect(),
            arch: &first.arch.name,
            kernels: entries.collect(),
        };
        let content = serde_json::to_string_pretty(&content).map_err(|error| error.to_string())?;
        write_if_changed(&manifest, &(content + "\n")).map_err(|error| at(&manifest, &error))?;
    }
    Ok(paths)
}

fn entry<'a>(kernel: &'a Kernel, compiled: Option<&'a Resources>) -> Entry<'a> {
    let fields = kernel.spec.iter().flat_map(|spec| &spec.fields).filter_map(|field| {
        let value = match &field.value {
            SpecValue::Type(dtype) | SpecValue::UnusedType(dtype) => dtype.name().into(),
            SpecValue::Int(value) => (*value).into(),
            SpecValue::Float(value) => (*value).into(),
            SpecValue::Bool(value) => (*value).into(),
            SpecValue::Word(value) => (*value).into(),
            SpecValue::Text(value) => value.as_str().into(),
            // Other fields decide them.
            SpecValue::Table(_) | SpecValue::List(_) => return None,
        };
        Some((field.name.to_owned(), value))
    });
    Entry {
        name: &kernel.name,
        template: kernel.spec.as_ref().map(|spec| spec.template),
        block: kernel.spec.as_ref().map(|spec| spec.block),
        shared_memory: kernel.shared_memory(),
        fields: fields.collect(),
        compiled,
    }
}

fn remove_stale(folder: &Path, manifest: &Path, current: &[Kernel]) -> io::Result<()> {
    let text = fs::read_to_string(manifest).unwrap_or_default();
    let Ok(listed) = serde_json::from_str::<Listed>(&text) else { return Ok(()) };
    for Name { name } in listed.kernels {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_plain || current.iter().any(|kernel| kernel.name == name) {
            continue;
        }
        match fs::remove_file(folder.join(format!("{name}.cu"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// By rename, so that a reader sees the old text or the new one.
fn write_if_changed(path: &Path, text: &str) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::arch::{self, Arch};
    use kernwright_plan::shape::presets;

    #[test]
    fn what_is_no_longer_generated_goes_and_what_is_not_ours_stays() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let named = Named { name: "tiny".into(), shape: presets::ALL[0].shape() };
        let kernel = |arch: &Arch, name: &str| Kernel {
            arch: arch.clone(),
            name: name.into(),
            spec: None,
            text: format!("// {name}\n"),
            cubin: None,
        };
        let (a, b) = (&arch::ALL[0], &arch::ALL[1]);
        let first = [kernel(a, "norm"), kernel(a, "rope"), kernel(b, "norm")];
        let paths = write(folder.path(), &named, &first, &[]).expect("it can be written");
        assert_eq!(paths.len(), 3);
        let mine = folder.path().join(&*a.name).join("mine.cu");
        fs::write(&mine, "").expect("it can be written");
        let again = write(folder.path(), &named, &first[..1], &[]).expect("it can be written");
        assert_eq!(again, paths[..1]);
        assert!(mine.exists() && paths[0].exists() && !paths[1].exists());
        assert!(paths[2].exists(), "another GPU's folder is left alone");
    }
}
