//! Cubins that a build script compiled ahead of time: a folder that it fills and that the derive finds.
//!
//! In: kernels, and what a compiler made of them. Out: files in the build script's own folder: `<arch>/<kernel>.cubin`
//! for a program to include, `.json` with what the compiler said, and `.cu`, the very text it was made from: a cubin
//! belongs to a kernel only if that is the same. Must not know how a cubin comes about or what is in one.

use crate::generate::Generated;
use crate::write::write_if_changed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The variable of the compiler's environment that names the folder: a build script sets it, the derive reads it.
pub const VARIABLE: &str = "KERNWRIGHT_CUBINS";

/// The folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubins {
    folder: PathBuf,
}

/// One compiled kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Cubin {
    /// The file.
    pub path: PathBuf,
    /// What the compiler said.
    pub remarks: Remarks,
}

/// What a compiler says of a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remarks {
    /// Its whole log.
    pub log: String,
    /// What the kernel takes (registers, spills), in the words of whoever compiled it.
    pub resources: serde_json::Map<String, serde_json::Value>,
}

impl Cubins {
    /// The cubins in a folder, which need not be there.
    #[must_use]
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Those of the build script of the package that is being compiled, if it made any.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(|folder| Self::new(folder.into()))
    }

    /// Where they are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The cubin that was made from exactly this text.
    #[must_use]
    pub fn find(&self, one: &Generated) -> Option<Cubin> {
        let [text, json, path] = self.paths(one);
        let is_its_text = fs::read(text).is_ok_and(|text| text == one.text.as_bytes());
        if !is_its_text || !path.is_file() {
            return None;
        }
        let remarks = serde_json::from_slice(&fs::read(json).ok()?).ok()?;
        Some(Cubin { path, remarks })
    }

    /// Keeps a cubin. Files that would be the same are not touched, so that cargo sees no change.
    ///
    /// # Errors
    /// The first file that could not be written.
    pub fn store(&self, one: &Generated, cubin: &[u8], remarks: &Remarks) -> io::Result<()> {
        let [text, json, path] = self.paths(one);
        fs::create_dir_all(self.folder.join(&*one.arch.name))?;
        // The text vouches for the others: it goes first and comes last.
        if fs::read(&text).is_ok_and(|old| old != one.text.as_bytes()) {
            fs::remove_file(&text)?;
        }
        write_if_changed(&path, cubin)?;
        write_if_changed(&json, &serde_json::to_vec(remarks).map_err(io::Error::other)?)?;
        write_if_changed(&text, one.text.as_bytes())
    }

    /// Removes what belongs to none of these kernels.
    pub fn retain<'a>(&self, all: impl IntoIterator<Item = &'a Generated>) {
        let kept: BTreeSet<PathBuf> = all.into_iter().flat_map(|one| self.paths(one)).collect();
        let entries =
            |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        for arch in entries(&self.folder) {
            for file in entries(&arch).filter(|file| !kept.contains(file)) {
                let _ = fs::remove_file(file);
            }
            let _ = fs::remove_dir(arch);
        }
    }

    fn paths(&self, one: &Generated) -> [PathBuf; 3] {
        let folder = self.folder.join(&*one.arch.name);
        ["cu", "json", "cubin"].map(|extension| folder.join(format!("{}.{extension}", one.kernel)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::tests::{Folder, generated};
    use kernwright_plan::arch;

    fn remarks(registers: u32) -> Remarks {
        let resources = [("registers".to_owned(), registers.into())].into_iter().collect();
        Remarks { log: "ptxas info".to_owned(), resources }
    }

    #[test]
    fn a_cubin_is_found_by_the_text_it_was_made_from() {
        let folder = Folder::new("cubins");
        let cubins = Cubins::new(folder.0.join("deep/cubins"));
        let one = generated(&arch::ALL[0], 64);
        assert_eq!(cubins.find(&one), None);
        cubins.store(&one, b"first", &remarks(24)).expect("the folder is ours");
        let found = cubins.find(&one).expect("it was stored");
        assert_eq!(found.remarks, remarks(24));
        assert_eq!(fs::read(&found.path).expect("it is a file"), b"first");
        assert_eq!(cubins.find(&generated(&arch::ALL[1], 64)), None);

        let changed = Generated { text: "// another\n".to_owned(), ..one.clone() };
        assert_eq!(cubins.find(&changed), None);
        cubins.store(&changed, b"second", &remarks(32)).expect("the folder is ours");
        assert_eq!(cubins.find(&one), None);
        assert_eq!(fs::read(cubins.find(&changed).expect("it was stored").path).expect("a file"), b"second");
        fs::remove_file(found.path).expect("it is there");
        assert_eq!(cubins.find(&changed), None);
    }

    #[test]
    fn what_is_no_longer_needed_is_removed_and_the_rest_untouched() {
        let folder = Folder::new("cubins-stale");
        let cubins = Cubins::new(folder.0.clone());
        let all = [generated(&arch::ALL[0], 64), generated(&arch::ALL[0], 72), generated(&arch::ALL[1], 64)];
        for one in &all {
            cubins.store(one, b"cubin", &remarks(24)).expect("the folder is ours");
        }
        let kept = cubins.find(&all[1]).expect("it was stored").path;
        let modified = || fs::metadata(&kept).and_then(|data| data.modified()).expect("it exists");
        let before = modified();
        cubins.retain(&all[1..2]);
        cubins.store(&all[1], b"cubin", &remarks(24)).expect("the folder is ours");
        assert_eq!(modified(), before);
        assert_eq!(cubins.find(&all[0]), None);
        assert!(!folder.0.join(&*arch::ALL[1].name).exists());
    }
}
