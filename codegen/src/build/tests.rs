//! Which models a build script sees, and what becomes of their copies.

use super::*;
use crate::write::tests::Folder;
use kernwright_plan::arch;
use kernwright_plan::shape::presets;

/// Reads a file and writes the copies of its models.
fn copies_of(file: &Path, target_dir: &Path) -> Vec<PathBuf> {
    let models = models(file, "brain", None, &Tables::default());
    models.iter().flat_map(|model| copy(file, model, target_dir, None)).collect()
}

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
    let copies = copies_of(&file, &folder.0);
    let wanted = kernwright_plan::kernels(&presets::find("tiny").expect("a preset").shape(), &arch::ALL[1]);
    assert_eq!(copies.len(), wanted.len());
    assert!(copies.iter().all(|copy| modified(copy) == modified(&file)));
    assert!(copies.iter().all(|copy| copy.to_string_lossy().contains("Brain-")));
    for copy in &copies {
        fs::remove_file(copy).expect("it was written");
    }
    assert_eq!(copies_of(&file, &folder.0), copies);
    assert!(copies.iter().all(|copy| copy.exists()));
}

#[test]
fn models_of_one_name_in_two_modules_keep_their_copies() {
    let folder = Folder::new("build-twins");
    let file = folder.0.join("main.rs");
    let model = SOURCE.split("#[derive(Clone)]").next().unwrap_or_default();
    let other = model.replace("inner", "outer").replace("layers = 5", "layers = 2");
    fs::write(&file, format!("{model}{other}")).expect("the folder is ours");
    let copies = copies_of(&file, &folder.0);
    assert!(copies.iter().all(|copy| copy.exists()));
    assert_eq!(copies_of(&file, &folder.0), copies);
}

#[test]
fn a_file_that_cannot_be_read_gives_nothing() {
    let folder = Folder::new("build-nothing");
    assert_eq!(copies_of(&folder.0.join("none.rs"), &folder.0), [] as [PathBuf; 0]);
    fs::write(folder.0.join("main.rs"), "not rust {").expect("the folder is ours");
    assert_eq!(copies_of(&folder.0.join("main.rs"), &folder.0), [] as [PathBuf; 0]);
}

#[test]
fn a_name_whose_structs_cannot_be_counted_is_left_to_the_derive() {
    let folder = Folder::new("build-uncertain");
    let file = folder.0.join("main.rs");
    let model = SOURCE.split("#[derive(Clone)]").next().unwrap_or_default();
    let names = |more: &str| {
        fs::write(&file, format!("{model}{more}")).expect("the folder is ours");
        let models = models(&file, "brain", None, &Tables::default());
        models.into_iter().map(|model| model.owner.model).collect::<Vec<_>>()
    };
    for more in [
        "fn main() { println!(\"{}\", inner::Brain::NAME); }",
        "#[cfg(test)] mod tests { struct Other; use super::inner::Brain; }",
        "macro_rules! declare { ($name:ident) => { struct $name; } } declare!(Other);",
    ] {
        assert_eq!(names(more), ["Brain"], "{more}");
    }
    for more in [
        "fn main() { struct Brain; }",
        "#[cfg(test)] mod tests { struct Brain; }",
        "#[cfg_attr(test, derive(Transformer))] struct Brain;",
        "macro_rules! declare { ($name:ident) => { struct $name; } } mod other { declare!(Brain); }",
        "macro_rules! declare { () => { struct Brain; } }",
        "#![cfg(test)]",
    ] {
        // An inner attribute comes first in a file.
        let (before, after) = if more.starts_with("#!") { (more, "") } else { ("", more) };
        fs::write(&file, format!("{before}{model}{after}")).expect("the folder is ours");
        assert!(models(&file, "brain", None, &Tables::default()).is_empty(), "{more}");
    }
}
