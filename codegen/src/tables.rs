//! A package's own tables of tiles: the files of its folder `tuning`.
//!
//! In: the package's folder. Out: tables, for the targets that a declaration names. What a table says, `kernwright_plan` knows.

use kernwright_plan::arch::Arch;
use kernwright_plan::tuning::{self, Table};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where they lie in a package.
pub const FOLDER: &str = "tuning";

/// Tables, each with its file, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    /// What was read.
    pub all: Vec<(PathBuf, Arc<Table>)>,
    /// What could not be, a line each.
    pub problems: Vec<String>,
}

impl Tables {
    /// Those of a package; none where it has no such folder.
    #[must_use]
    pub fn of_package(package: &Path) -> Self {
        let mut tables = Self::default();
        let files = fs::read_dir(package.join(FOLDER)).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
        files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
        files.sort();
        for path in files {
            let shown = path.strip_prefix(package).unwrap_or(&path).display().to_string();
            match fs::read_to_string(&path) {
                Err(error) => tables.problems.push(format!("cannot read `{shown}`: {error}")),
                Ok(text) => match tuning::read(&shown, &text) {
                    Ok(table) => tables.all.push((path, Arc::new(table))),
                    Err(problems) => tables.problems.extend(problems),
                },
            }
        }
        tables
    }

    /// Gives each target the first table that is of it.
    pub fn give(&self, targets: &mut [Arch]) {
        for arch in targets {
            let own = self.all.iter().find(|(_, table)| table.arch == arch.name);
            arch.tuned = own.map(|(_, table)| Arc::clone(table));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::declared;
    use crate::write::tests::Folder;
    use kernwright_plan::shape::parse_text;

    const TABLE: &str = "arch = \"sm_80\"\ncard = \"A100 SXM 80GB\"\n[[attention_forward]]\nhead_dim = [8, 256]\n\
        queries = 64\nkeys = 16\nring = 4\nheld = false\nwarps = 4\nblocks = 1\n";

    #[test]
    fn a_target_that_is_declared_gets_its_table_when_built_and_when_run() {
        let folder = Folder::new("tables");
        fs::create_dir(folder.0.join(FOLDER)).expect("there is room");
        fs::write(folder.0.join("tuning/a.toml"), TABLE).expect("there is room");
        fs::write(folder.0.join("tuning/a.jsonl"), "{}").expect("there is room");
        let tables = Tables::of_package(&folder.0);
        assert_eq!((tables.all.len(), &tables.problems), (1, &Vec::new()));
        let source = "#[model(vocab = 257, d_model = 24, layers = 1)] #[attention(heads = 3, head_dim = 8, causal)]\
            #[feed_forward(swiglu, d_ff = 32)] #[target(sm_80, sm_86)] struct Brain;";
        let declaration = crate::tokens::read(&syn::parse_str(source).expect("it is Rust")).declaration;
        let names = |tables: &Tables| -> Vec<(String, String)> {
            let (declared, all) = declared(&declaration, None, tables).expect("it is sound");
            // What a program reads of itself when it starts.
            let again = parse_text(&(declared.text() + &declared.targets_text())).expect("it is sound");
            assert_eq!(again.targets, declared.targets());
            let forward = all.into_iter().filter(|one| one.spec.template == "attention/forward");
            forward.map(|one| (one.arch.name.to_string(), one.kernel)).collect()
        };
        let (plain, tuned) = (names(&Tables::default()), names(&tables));
        let of = |all: &[(String, String)], arch: &str| {
            all.iter().filter(|(name, kernel)| name == arch && kernel.contains("_q64_k16_r4")).count()
        };
        assert_eq!((of(&plain, "sm_80"), of(&plain, "sm_86"), of(&tuned, "sm_86")), (0, 0, 0));
        assert_eq!(of(&tuned, "sm_80"), tuned.iter().filter(|(arch, _)| arch == "sm_80").count());
    }

    #[test]
    fn a_table_with_a_mistake_is_named_with_its_line() {
        let folder = Folder::new("faulty-tables");
        assert_eq!(Tables::of_package(&folder.0), Tables::default());
        fs::create_dir(folder.0.join(FOLDER)).expect("there is room");
        fs::write(folder.0.join("tuning/b.toml"), TABLE.replace("ring", "rings")).expect("room");
        let problems = Tables::of_package(&folder.0).problems;
        assert!(problems[0].starts_with("tuning/b.toml:7:1: `rings` is not a field"), "{problems:?}");
    }
}
