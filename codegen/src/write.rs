//! Copies of what was generated, to be read: a folder per Shape and GPU below target/, with a manifest.
//!
//! In: generated kernels and whose they are. Out: files, touched only where their text changed, and nothing left of an
//! earlier Shape of the same struct. Nobody builds from them, so a caller ignores an error: the text that counts is
//! in the program.

use crate::cubins::{Cubin, Cubins};
use crate::generate::Generated;
use kernwright_plan::shape::hash;
use kernwright_plan::spec::{KernelSpec, SpecValue};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Whose copies they are. What bears the same owner and is not written again is stale, and removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The package.
    pub package: String,
    /// The struct.
    pub model: String,
    /// The file that declares it, relative to its package: two files may have a struct of one name.
    pub source: String,
    /// Which of the structs of that name in that file, from 0: two modules may each have one.
    #[serde(default)]
    pub nth: usize,
}

impl Owner {
    /// Is `other` an earlier struct of the same name in the same file?
    fn follows(&self, other: &Self) -> bool {
        other.nth < self.nth && *self == Self { nth: self.nth, ..other.clone() }
    }
}

/// What lies in the manifest of a folder.
#[derive(Serialize)]
struct Manifest<'a> {
    generator: &'static str,
    owner: &'a Owner,
    arch: &'a str,
    shape: Vec<&'a str>,
    kernels: Vec<Kernel<'a>>,
}

#[derive(Serialize)]
struct Kernel<'a> {
    name: &'a str,
    template: &'static str,
    block: u32,
    shared_memory: u32,
    fields: serde_json::Map<String, serde_json::Value>,
    /// Present once compiled.
    #[serde(flatten)]
    resources: serde_json::Map<String, serde_json::Value>,
}

/// The part of a manifest that says whose it is.
#[derive(Deserialize)]
struct Owned {
    owner: Owner,
}

const MANIFEST: &str = "manifest.json";

/// Writes the kernels of what a canonical text declares to `target/kernwright/<package>/<Model>-<hash>/<arch>/<kernel>.cu` and a manifest per GPU, and removes what
/// they replace. Cubins, where there are any, are copied beside the text. Gives the path of every kernel's text.
///
/// # Errors
/// The first file that could not be written or removed.
pub fn write(
    target_dir: &Path,
    owner: &Owner,
    text: &str,
    all: &[Generated],
    cubins: Option<&Cubins>,
) -> io::Result<Vec<PathBuf>> {
    let package = target_dir.join("kernwright").join(&owner.package);
    let model = package.join(format!("{}-{}", owner.model, hash(text)));
    let arches: BTreeSet<&str> = all.iter().map(|one| &*one.arch.name).collect();
    let mut paths = Vec::new();
    fs::create_dir_all(&package)?;
    for arch in &arches {
        let folder = model.join(arch);
        fs::create_dir_all(&folder)?;
        let kernels: Vec<&Generated> = all.iter().filter(|one| one.arch.name == *arch).collect();
        let found: Vec<Option<Cubin>> =
            kernels.iter().map(|one| cubins.and_then(|cubins| cubins.find(one))).collect();
        let mut written = BTreeSet::new();
        for (one, cubin) in kernels.iter().zip(&found) {
            let path = folder.join(format!("{}.cu", one.kernel));
            write_if_changed(&path, one.text.as_bytes())?;
            written.insert(path.clone());
            if let Some(cubin) = cubin {
                let path = path.with_extension("cubin");
                write_if_changed(&path, &fs::read(&cubin.path)?)?;
                written.insert(path);
            }
            paths.push(path);
        }
        for path in kernels_in(&folder)?.into_iter().filter(|path| !written.contains(path)) {
            fs::remove_file(path)?;
        }
        if let Some(first) = kernels.first() {
            // Two of one Shape share a folder. It stays the first one's, or each build would write both names.
            let first_owner = owner_of(&folder).filter(|other| owner.follows(other));
            let manifest = Manifest {
                generator: concat!("kernwright ", env!("CARGO_PKG_VERSION")),
                owner: first_owner.as_ref().unwrap_or(owner),
                arch: &first.arch.name,
                shape: text.lines().collect(),
                kernels: kernels.iter().zip(&found).map(|(one, cubin)| kernel(one, cubin.as_ref())).collect(),
            };
            let json = serde_json::to_string_pretty(&manifest).map_err(io::Error::other)?;
            write_if_changed(&folder.join(MANIFEST), (json + "\n").as_bytes())?;
        }
    }
    remove_stale(&package, owner, |folder| {
        folder.parent() == Some(&model) && arches.iter().any(|arch| folder.ends_with(arch))
    })?;
    Ok(paths)
}

fn kernel<'a>(one: &'a Generated, cubin: Option<&Cubin>) -> Kernel<'a> {
    let Generated { kernel: name, spec, .. } = one;
    let fields = spec.fields.iter().filter_map(|field| {
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
    let fields = fields.collect();
    let resources = cubin.map(|cubin| cubin.remarks.resources.clone()).unwrap_or_default();
    let KernelSpec { template, block, shared_memory, .. } = *spec;
    Kernel { name, template, block, shared_memory, fields, resources }
}

/// Removes the copies in every folder of this owner that `is_current` does not keep: another Shape, another GPU.
fn remove_stale(package: &Path, owner: &Owner, is_current: impl Fn(&Path) -> bool) -> io::Result<()> {
    let prefix = format!("{}-", owner.model);
    for model in folders_in(package)? {
        let name = model.file_name().map(|name| name.to_string_lossy().into_owned());
        if !name.is_some_and(|name| name.starts_with(&prefix)) {
            continue;
        }
        for folder in folders_in(&model)?.into_iter().filter(|folder| !is_current(folder)) {
            if owner_of(&folder).as_ref() != Some(owner) {
                continue;
            }
            for path in kernels_in(&folder)? {
                fs::remove_file(path)?;
            }
            fs::remove_file(folder.join(MANIFEST))?;
            // What somebody else put there stays, and so does its folder.
            let _ = fs::remove_dir(&folder);
        }
        let _ = fs::remove_dir(&model);
    }
    Ok(())
}

/// Whose folder it is, if its manifest can be read.
fn owner_of(folder: &Path) -> Option<Owner> {
    let text = fs::read_to_string(folder.join(MANIFEST)).ok()?;
    serde_json::from_str::<Owned>(&text).ok().map(|owned| owned.owner)
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<_> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.sort();
    Ok(paths)
}

fn folders_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(entries(folder)?.into_iter().filter(|path| path.is_dir()).collect())
}

/// Texts and cubins.
fn kernels_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_ours =
        |path: &PathBuf| path.extension().is_some_and(|extension| extension == "cu" || extension == "cubin");
    Ok(entries(folder)?.into_iter().filter(is_ours).collect())
}

/// By rename, so that a reader and another compiler at work see the old text or the new one.
pub(crate) fn write_if_changed(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let temporary = path.with_extension(format!("{}.tmp", std::process::id()));
    let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
pub(crate) mod tests;
