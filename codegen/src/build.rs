//! A one-line build script: `kernwright_codegen::build::run(&["src/main.rs"])`.
//!
//! In: files of the package. Out: the same copies below target/ that the derive writes, and lines that tell cargo to
//! run the script again when one of them is gone. Silent on mistakes in attributes: a build script runs first, and
//! its error, which has no place, would hide the derive's good one.
//!
//! Files are read as text: no `cfg`, no structs that other macros make, none inside function bodies.

use crate::generate::declared;
use crate::target_dir::Whereabouts;
use crate::tokens;
use crate::write::{Owner, write};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};
use syn::{DeriveInput, Item, Meta};

/// Writes the copies of every model declared in `files`, which are relative to the package.
pub fn run(files: &[impl AsRef<Path>]) {
    let overriding = env::var("KERNWRIGHT_TARGETS").ok();
    let mut lines = vec!["cargo::rerun-if-env-changed=KERNWRIGHT_TARGETS".to_owned()];
    let target_dir = Whereabouts::of_this_process().target_dir();
    let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
    for file in files.iter().map(AsRef::as_ref) {
        lines.push(format!("cargo::rerun-if-changed={}", file.display()));
        if let Some(target_dir) = &target_dir {
            let copies = copies_of(file, target_dir, &package, overriding.as_deref());
            lines.extend(copies.iter().map(|copy| format!("cargo::rerun-if-changed={}", copy.display())));
        }
    }
    let _ = writeln!(io::stdout(), "{}", lines.join("\n"));
}

/// Writes the copies of one file, as far as that is possible, and says where they are.
fn copies_of(file: &Path, target_dir: &Path, package: &str, overriding: Option<&str>) -> Vec<PathBuf> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let Ok(syntax) = syn::parse_file(&text) else { return Vec::new() };
    let mut copies = Vec::new();
    let mut names = Vec::new();
    for model in models(syntax.items) {
        let declaration = tokens::read(&model).declaration;
        let nth = names.iter().filter(|name| **name == declaration.name).count();
        names.push(declaration.name.clone());
        let Ok((shape, all)) = declared(&declaration, overriding) else { continue };
        let source = file.to_string_lossy().replace('\\', "/");
        let owner = Owner { package: package.to_owned(), model: declaration.name, source, nth };
        copies.extend(write(target_dir, &owner, &shape, &all).unwrap_or_default());
    }
    // Cargo runs the script again if a file is newer than its last run, and these were just written.
    if let Ok(modified) = fs::metadata(file).and_then(|data| data.modified()) {
        for copy in &copies {
            let _ = fs::File::options().append(true).open(copy).and_then(|copy| copy.set_modified(modified));
        }
    }
    copies
}

/// The structs that derive `Transformer`, modules included.
fn models(items: Vec<Item>) -> Vec<DeriveInput> {
    let mut found = Vec::new();
    for item in items {
        match item {
            Item::Struct(item) => found.push(DeriveInput::from(item)),
            Item::Mod(module) => {
                found.extend(models(module.content.map(|(_, items)| items).unwrap_or_default()));
            }
            _ => {}
        }
    }
    found.retain(derives_transformer);
    found
}

fn derives_transformer(input: &DeriveInput) -> bool {
    input.attrs.iter().any(|attribute| {
        let mut found = false;
        if let (true, Meta::List(_)) = (attribute.path().is_ident("derive"), &attribute.meta) {
            let _ = attribute.parse_nested_meta(|derive| {
                found |= derive.path.segments.last().is_some_and(|last| last.ident == "Transformer");
                Ok(())
            });
        }
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::tests::Folder;
    use kernwright_plan::arch;
    use kernwright_plan::shape::presets;

    /// The first model has the shape of the preset `tiny`.
    const SOURCE: &str = r"
        mod inner {
            #[derive(Clone, kernwright::Transformer)]
            #[model(vocab = 256, context = 256, d_model = 128, layers = 5, tied)]
            #[attention(heads = 4, kv_heads = 2, rope)]
            #[feed_forward(swiglu, d_ff = 352)]
            #[target(sm_86)]
            pub struct Brain;
        }
        #[derive(Clone)]
        struct Other;
        #[derive(Transformer)]
        #[model(vocab = )]
        struct Mistaken;
    ";

    #[test]
    fn the_copies_of_a_file_are_as_old_as_the_file() {
        let folder = Folder::new("build");
        let file = folder.0.join("main.rs");
        fs::write(&file, SOURCE).expect("the folder is ours");
        let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).expect("it exists");
        let copies = copies_of(&file, &folder.0, "brain", None);
        let wanted =
            kernwright_plan::kernels(&presets::find("tiny").expect("a preset").shape(), &arch::ALL[1]);
        assert_eq!(copies.len(), wanted.len());
        assert!(copies.iter().all(|copy| modified(copy) == modified(&file)));
        assert!(copies.iter().all(|copy| copy.to_string_lossy().contains("Brain-")));
        for copy in &copies {
            fs::remove_file(copy).expect("it was written");
        }
        assert_eq!(copies_of(&file, &folder.0, "brain", None), copies);
        assert!(copies.iter().all(|copy| copy.exists()));
    }

    #[test]
    fn models_of_one_name_in_two_modules_keep_their_copies() {
        let folder = Folder::new("build-twins");
        let file = folder.0.join("main.rs");
        let model = SOURCE.split("#[derive(Clone)]").next().unwrap_or_default();
        let other = model.replace("inner", "outer").replace("layers = 5", "layers = 2");
        fs::write(&file, format!("{model}{other}")).expect("the folder is ours");
        let copies = copies_of(&file, &folder.0, "brain", None);
        assert!(copies.iter().all(|copy| copy.exists()));
        assert_eq!(copies_of(&file, &folder.0, "brain", None), copies);
    }

    #[test]
    fn a_file_that_cannot_be_read_gives_nothing() {
        let folder = Folder::new("build-nothing");
        assert_eq!(copies_of(&folder.0.join("none.rs"), &folder.0, "brain", None), [] as [PathBuf; 0]);
        fs::write(folder.0.join("main.rs"), "not rust {").expect("the folder is ours");
        assert_eq!(copies_of(&folder.0.join("main.rs"), &folder.0, "brain", None), [] as [PathBuf; 0]);
    }
}
