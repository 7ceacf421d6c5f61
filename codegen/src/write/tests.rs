//! What the copies below target/ look like, and when they change.

use super::*;
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::shape::{Shape, presets};
use kernwright_plan::spec::field;
use std::time::{Duration, SystemTime};

/// A folder of a test, removed when it ends.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kernwright-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary folder can be written");
        Self(path)
    }

    /// Every file below, relative, sorted.
    fn files(&self) -> Vec<String> {
        fn walk(folder: &Path, root: &Path, found: &mut Vec<String>) {
            for path in entries(folder).expect("the folder is ours") {
                if path.is_dir() {
                    walk(&path, root, found);
                } else {
                    found.push(path.strip_prefix(root).expect("it lies below").display().to_string());
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.0, &self.0, &mut found);
        found
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn owner(source: &str) -> Owner {
    Owner { package: "brain".into(), model: "Brain".into(), source: source.into(), nth: 0 }
}

fn shape(layers: usize) -> Shape {
    Shape { layers, ..presets::find("tiny").expect("tiny is a preset").shape() }
}

pub(crate) fn generated(arch: &Arch, columns: i64) -> Generated {
    let fields = vec![
        field("x_type", "", SpecValue::Type(Dtype::Bf16)),
        field("columns", "d", SpecValue::Int(columns)),
        field("epsilon", "eps", SpecValue::Float(0.5)),
        field("wide", "wide", SpecValue::Bool(true)),
        field("kind", "", SpecValue::Word("rms")),
    ];
    let spec = KernelSpec { template: "norm/forward", block: 128, shared_memory: 512, fields };
    Generated { arch: arch.clone(), kernel: spec.name(), text: format!("// {columns}\n"), spec }
}

fn folder_of(shape: &Shape, arch: &str) -> String {
    format!("kernwright/brain/Brain-{}/{arch}", shape.hash())
}

#[test]
fn kernels_and_a_manifest_lie_in_a_folder_per_gpu() {
    let folder = Folder::new("layout");
    let all = [generated(&arch::ALL[0], 64), generated(&arch::ALL[1], 64)];
    let paths =
        write(&folder.0, &owner("src/main.rs"), &shape(2).text(), &all, None).expect("it can be written");
    let kernel = &all[0].kernel;
    let expected: Vec<_> = ["sm_80", "sm_86"]
        .into_iter()
        .map(|arch| folder_of(&shape(2), arch))
        .flat_map(|at| [format!("{at}/manifest.json"), format!("{at}/{kernel}.cu")])
        .collect();
    assert_eq!(folder.files(), expected);
    assert_eq!(paths, [folder.0.join(&expected[1]), folder.0.join(&expected[3])]);
    let manifest = fs::read_to_string(folder.0.join(&expected[0])).expect("it was written");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("it is JSON");
    assert_eq!(manifest["arch"], "sm_80");
    assert_eq!(manifest["owner"]["model"], "Brain");
    assert_eq!(manifest["shape"][3], "model.layers = 2");
    let entry = &manifest["kernels"][0];
    assert_eq!((&entry["name"], &entry["block"]), (&kernel.as_str().into(), &128.into()));
    assert_eq!((&entry["template"], &entry["shared_memory"]), (&"norm/forward".into(), &512.into()));
    let fields = serde_json::json!(
        {"x_type": "bf16", "columns": 64, "epsilon": 0.5, "wide": true, "kind": "rms"}
    );
    assert_eq!(entry["fields"], fields);
}

#[test]
fn a_file_is_touched_only_when_its_text_changed() {
    let folder = Folder::new("untouched");
    let mut all = [generated(&arch::ALL[0], 64), generated(&arch::ALL[0], 128)];
    let paths =
        write(&folder.0, &owner("src/main.rs"), &shape(2).text(), &all, None).expect("it can be written");
    let long_ago = SystemTime::now() - Duration::from_secs(3600);
    let files = folder.files();
    for file in &files {
        let file = fs::File::options().append(true).open(folder.0.join(file)).expect("it was written");
        file.set_modified(long_ago).expect("times can be set");
    }
    all[1].text.push_str("// changed\n");
    write(&folder.0, &owner("src/main.rs"), &shape(2).text(), &all, None).expect("it can be written");
    assert_eq!(folder.files(), files, "no temporary file is left");
    for file in &files {
        let path = folder.0.join(file);
        let modified = fs::metadata(&path).and_then(|data| data.modified()).expect("it was written");
        assert_eq!(modified != long_ago, path == paths[1], "{file}");
    }
}

#[test]
fn what_is_no_longer_generated_is_removed() {
    let folder = Folder::new("stale");
    let (sm_80, sm_86) = (&arch::ALL[0], &arch::ALL[1]);
    let mine = owner("src/main.rs");
    let other = owner("src/other.rs");
    let write = |owner: &Owner, layers, all: &[Generated]| {
        write(&folder.0, owner, &shape(layers).text(), all, None).expect("it can be written");
    };
    write(&other, 9, &[generated(sm_80, 64)]);
    let others = folder.files();
    write(&mine, 2, &[generated(sm_80, 64), generated(sm_80, 128), generated(sm_86, 64)]);
    // A kernel and a GPU less.
    write(&mine, 2, &[generated(sm_80, 64)]);
    let names = |layers| {
        let at = folder_of(&shape(layers), "sm_80");
        [format!("{at}/manifest.json"), format!("{at}/{}.cu", generated(sm_80, 64).kernel)]
    };
    let with_others = |names: &[String]| {
        let mut all = [others.as_slice(), names].concat();
        all.sort();
        all
    };
    assert_eq!(folder.files(), with_others(&names(2)));
    // Another Shape; somebody's notes in the old folder stay.
    let notes = format!("{}/notes.txt", folder_of(&shape(2), "sm_80"));
    fs::write(folder.0.join(&notes), "").expect("the folder is ours");
    write(&mine, 3, &[generated(sm_80, 64)]);
    assert_eq!(folder.files(), with_others(&[names(3).as_slice(), &[notes]].concat()));
    assert!(!folder.0.join(folder_of(&shape(2), "sm_86")).exists());
}

/// Files with their times.
fn times(folder: &Folder) -> Vec<(String, SystemTime)> {
    let time = |file: &String| fs::metadata(folder.0.join(file)).and_then(|data| data.modified());
    folder.files().into_iter().map(|file| (file.clone(), time(&file).expect("it was written"))).collect()
}

#[test]
fn structs_of_one_name_in_one_file_leave_each_other_alone() {
    for (name, layers) in [("two-shapes", 3), ("one-shape", 2)] {
        let folder = Folder::new(name);
        let first = owner("src/main.rs");
        let second = Owner { nth: 1, ..first.clone() };
        let build = |layers| {
            for (owner, layers) in [(&first, 2), (&second, layers)] {
                let all = [generated(&arch::ALL[0], 64)];
                write(&folder.0, owner, &shape(layers).text(), &all, None).expect("it can be written");
            }
        };
        build(layers);
        let before = times(&folder);
        std::thread::sleep(Duration::from_millis(20));
        build(layers);
        assert_eq!(times(&folder), before, "{name}: an unchanged build touches nothing");
        // The second changes: what it had goes, what the first has stays.
        build(5);
        let files = folder.files();
        let lie = |layers| files.iter().any(|file| file.starts_with(&folder_of(&shape(layers), "sm_80")));
        assert_eq!((lie(2), lie(3), lie(5)), (true, false, true), "{name}: {files:?}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_and_no_panic() {
    let folder = Folder::new("blocked");
    fs::write(folder.0.join("kernwright"), "a file in the way").expect("the folder is ours");
    let result =
        write(&folder.0, &owner("src/main.rs"), &shape(2).text(), &[generated(&arch::ALL[0], 64)], None);
    assert!(result.is_err());
    assert_eq!(folder.files(), ["kernwright"]);
}

#[test]
fn a_cubin_lies_beside_its_text_and_goes_with_it() {
    let (folder, made) = (Folder::new("with-cubins"), Folder::new("made-cubins"));
    let cubins = Cubins::new(made.0.clone());
    let all = [generated(&arch::ALL[0], 64), generated(&arch::ALL[0], 72)];
    let resources = [("registers".to_owned(), 24.into())].into_iter().collect();
    let remarks = crate::cubins::Remarks { log: String::new(), resources };
    for one in &all[..1] {
        cubins.store(one, b"cubin", &remarks).expect("the folder is ours");
    }
    let written = |cubins| {
        write(&folder.0, &owner("src/main.rs"), &shape(2).text(), &all, cubins).expect("it can be written");
        let manifest = folder.0.join(folder_of(&shape(2), "sm_80")).join(MANIFEST);
        let manifest = fs::read(manifest).expect("it was written");
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("it is JSON");
        let registers = |nth: usize| manifest["kernels"][nth]["registers"].as_u64();
        let n_cubins = folder.files().iter().filter(|file| file.ends_with(".cubin")).count();
        (registers(0), registers(1), n_cubins)
    };
    assert_eq!(written(Some(&cubins)), (Some(24), None, 1));
    assert_eq!(written(None), (None, None, 0));
}
