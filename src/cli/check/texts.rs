//! The text of every kernel that may be checked: the model's own, or an edited copy of it.
//!
//! In: the kernels of a model, and a folder of edited ones. Out: a text by GPU and name, each different text with a number.

use super::super::kernels::{Kernel, unknown};
use kernwright_plan::arch::Arch;
use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A kernel's text for one GPU.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) text: Arc<str>,
    /// Texts that are equal have the same number.
    pub(super) number: usize,
    /// The edited copy that it was read from.
    pub(super) file: Option<PathBuf>,
}

/// All of them.
#[derive(Clone, Debug)]
pub(super) struct Texts {
    /// The GPUs, in order.
    pub(super) targets: Vec<Arch>,
    texts: HashMap<(String, String), Text>,
}

impl Texts {
    /// Those of the model.
    pub(super) fn new(kernels: Vec<Kernel>) -> Self {
        let mut numbers: HashMap<Arc<str>, usize> = HashMap::new();
        let (mut targets, mut texts) = (Vec::new(), HashMap::new());
        for Kernel { arch, name, text, .. } in kernels {
            let text: Arc<str> = text.into();
            let next = numbers.len();
            let number = *numbers.entry(Arc::clone(&text)).or_insert(next);
            texts.insert((arch.name.to_string(), name), Text { text, number, file: None });
            if !targets.contains(&arch) {
                targets.push(arch);
            }
        }
        Self { targets, texts }
    }

    /// The text of a kernel for a GPU.
    pub(super) fn get(&self, arch: &Arch, name: &str) -> Option<&Text> {
        self.texts.get(&(arch.name.to_string(), name.to_owned()))
    }

    /// Takes in the files of a folder: `<kernel>.cu` for every GPU, `<arch>/<kernel>.cu` for one, as `cuda --out` writes
    /// them. Gives the names of the kernels that are not as they were, sorted.
    pub(super) fn edit(
        &mut self,
        folder: &Path,
        kernels: &[Kernel],
        model: &str,
    ) -> Result<Vec<String>, Box<dyn Error>> {
        let mut edited = Vec::new();
        let mut n_files = 0;
        for path in files(folder)? {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let parent = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
            let is_below = path.parent() != Some(folder);
            let of_one = is_below || self.targets.iter().any(|arch| arch.name == *parent);
            if !kernels.iter().any(|kernel| kernel.name == name) {
                return Err(format!("`{}`: {}", path.display(), unknown(model, &name, kernels)).into());
            }
            let text = read(&path)?;
            n_files += 1;
            let number = self.texts.values().map(|one| one.number + 1).max().unwrap_or(0);
            let number = self.texts.values().find(|one| *one.text == *text).map_or(number, |one| one.number);
            let text: Arc<str> = text.into();
            for ((arch, kernel), old) in &mut self.texts {
                let is_meant = *kernel == name && (!of_one || *arch == parent);
                if is_meant && old.text != text {
                    *old = Text { text: Arc::clone(&text), number, file: Some(path.clone()) };
                    edited.push(name.clone());
                }
            }
        }
        if n_files == 0 {
            return Err(
                format!("`{}` holds no `.cu` file; `cuda --out` writes them", folder.display()).into()
            );
        }
        edited.sort();
        edited.dedup();
        Ok(edited)
    }
}

fn read(path: &Path) -> Result<String, Box<dyn Error>> {
    fs::read_to_string(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()).into())
}

/// The `.cu` files right in a folder and one level below, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let list = |folder: &Path| -> Result<Vec<PathBuf>, Box<dyn Error>> {
        let unreadable = |error| format!("cannot read `{}`: {error}", folder.display());
        let entries = fs::read_dir(folder).map_err(unreadable)?;
        entries.map(|entry| Ok(entry.map_err(unreadable)?.path())).collect()
    };
    let mut all = list(folder)?;
    for inner in all.clone().iter().filter(|path| path.is_dir()) {
        all.extend(list(inner)?);
    }
    all.retain(|path| path.extension().is_some_and(|ending| ending == "cu") && path.is_file());
    all.sort();
    Ok(all)
}
