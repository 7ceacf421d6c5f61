//! The search for libraries, over made-up folder trees.

#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use kernwright_compile::testing::Scratch;
use kernwright_compile::{Compiler, Error, Libraries, Library, Origin, Places};

/// The places of a machine whose root is the scratch folder; `{}` in a value stands for it.
fn places(scratch: &Scratch, variables: &[(&str, &str)]) -> Places {
    let root = scratch.path().display().to_string();
    let variables = variables.iter().map(|(key, value)| (key.to_string(), value.replace("{}", &root)));
    Places { root: scratch.path().to_path_buf(), ..Places::from_variables(variables) }
}

/// The NVRTCs found, best first: path below the root, version, origin.
fn nvrtc(scratch: &Scratch, libraries: &Libraries) -> Vec<(String, String, Origin)> {
    let below = |path: &Path| path.strip_prefix(scratch.path()).unwrap_or(path).display().to_string();
    let all = libraries.candidates(Library::Nvrtc);
    all.map(|found| (below(&found.path), found.version.to_string(), found.origin)).collect()
}

fn check(files: &[&str], variables: &[(&str, &str)], expected: &[(&str, &str, Origin)]) {
    let scratch = Scratch::new("search");
    for file in files {
        scratch.touch(file);
    }
    let libraries = Libraries::find(&places(&scratch, variables));
    let expected: Vec<_> =
        expected.iter().map(|(p, v, origin)| (p.to_string(), v.to_string(), *origin)).collect();
    assert_eq!(nvrtc(&scratch, &libraries), expected);
}

const WHEEL: &str = "venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13";

#[test]
fn a_machine_without_any_is_told_where_it_was_searched() {
    let scratch = Scratch::new("search-none");
    let libraries = Libraries::find(&places(&scratch, &[("LD_LIBRARY_PATH", "{}/a:{}/b")]));
    assert_eq!(libraries.found, []);
    let folders: Vec<_> =
        libraries.searched.iter().map(|place| (place.origin, place.folder.clone())).collect();
    assert!(folders.contains(&(Origin::LoaderPath, scratch.path().join("b"))));
    assert!(folders.contains(&(Origin::System, scratch.path().join("usr/lib64"))));
    let error = Compiler::open(&libraries).expect_err("there is none");
    let text = error.to_string();
    assert!(text.starts_with("`libnvrtc.so` was not found in "), "{text}");
    assert!(
        text.contains("`pip install nvidia-cuda-nvrtc==13.0.88`") && text.contains("KERNWRIGHT_CUDA_PATH")
    );
}

#[test]
fn wheels_of_both_layouts_are_found() {
    check(&[WHEEL], &[("VIRTUAL_ENV", "{}/venv")], &[(WHEEL, "13", Origin::VirtualEnv)]);
    let old = "venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12";
    check(&[old], &[("VIRTUAL_ENV", "{}/venv")], &[(old, "12", Origin::VirtualEnv)]);
}

#[test]
fn the_newest_known_major_wins_then_the_order_of_places() {
    let toolkit = |version: &str| format!("usr/local/cuda-{version}/lib64/libnvrtc.so.{version}.9");
    let (twelve, thirteen, fourteen) = (toolkit("12.8"), toolkit("13.1"), toolkit("14.0"));
    check(
        &[WHEEL, "ld/libnvrtc.so.12", &fourteen, &thirteen, &twelve],
        &[("VIRTUAL_ENV", "{}/venv"), ("LD_LIBRARY_PATH", "{}/ld")],
        &[
            (WHEEL, "13", Origin::VirtualEnv),
            (&thirteen, "13.1.9", Origin::System),
            ("ld/libnvrtc.so.12", "12", Origin::LoaderPath),
            (&twelve, "12.8.9", Origin::System),
            (&fourteen, "14.0.9", Origin::System),
        ],
    );
}

#[test]
fn an_older_driver_prefers_an_older_compiler() {
    let scratch = Scratch::new("search-rank");
    scratch.touch(WHEEL);
    scratch.touch("ld/libnvrtc.so.12");
    let mut libraries =
        Libraries::find(&places(&scratch, &[("VIRTUAL_ENV", "{}/venv"), ("LD_LIBRARY_PATH", "{}/ld")]));
    libraries.rank(12);
    assert_eq!(nvrtc(&scratch, &libraries)[0].1, "12");
    libraries.rank(13);
    assert_eq!(nvrtc(&scratch, &libraries)[0].1, "13");
}

#[test]
fn the_explicit_folder_wins_over_everything() {
    for below in ["", "lib/", "lib64/"] {
        let explicit = format!("mine/{below}libnvrtc.so.11.2");
        check(
            &[WHEEL, &explicit],
            &[("VIRTUAL_ENV", "{}/venv"), ("KERNWRIGHT_CUDA_PATH", "{}/mine")],
            &[(&explicit, "11.2", Origin::Explicit), (WHEEL, "13", Origin::VirtualEnv)],
        );
    }
}

#[test]
fn other_variables_and_system_folders_are_searched() {
    let cases = [
        ("CUDA_HOME", "{}/home", "home/lib64/libnvrtc.so.13", Origin::CudaHome),
        ("CUDA_PATH", "{}/path", "path/lib/libnvrtc.so.13", Origin::CudaHome),
        ("CONDA_PREFIX", "{}/conda", "conda/lib/libnvrtc.so.13", Origin::Conda),
        ("NOTHING", "", "usr/lib64/libnvrtc.so.13", Origin::System),
    ];
    for (key, value, file, origin) in cases {
        check(&[file], &[(key, value)], &[(file, "13", origin)]);
    }
}

#[test]
fn neighbours_and_stubs_are_left_alone() {
    let files = [
        "ld/libnvrtc.alt.so.13",
        "ld/libnvrtc-builtins.so.13.0",
        "ld/libnvrtc_static.a",
        "ld/stubs/libnvrtc.so",
    ];
    check(&files, &[("LD_LIBRARY_PATH", "{}/ld:{}/ld/stubs::relative")], &[]);
}

#[test]
fn links_to_one_file_count_once_with_its_full_version() {
    let scratch = Scratch::new("search-links");
    scratch.touch("usr/local/cuda-13.0/lib64/libnvrtc.so.13.0.88");
    let lib = scratch.path().join("usr/local/cuda-13.0/lib64");
    symlink("libnvrtc.so.13.0.88", lib.join("libnvrtc.so.13")).expect("scratch");
    symlink("libnvrtc.so.13", lib.join("libnvrtc.so")).expect("scratch");
    symlink("cuda-13.0", scratch.path().join("usr/local/cuda")).expect("scratch");
    let libraries = Libraries::find(&places(&scratch, &[]));
    let path = "usr/local/cuda/lib64/libnvrtc.so.13.0.88".to_owned();
    assert_eq!(nvrtc(&scratch, &libraries), [(path, "13.0.88".to_owned(), Origin::System)]);
}

#[test]
fn python_on_the_path_is_asked_for_its_wheels() {
    let wheel = "site/nvidia/cu13/lib/libnvrtc.so.13";
    let user = "home/.local/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12";
    for (script, expected) in [("echo; echo ROOT/site", (wheel, "13")), ("exit 1", (user, "12"))] {
        let scratch = Scratch::new("search-python");
        scratch.touch(wheel);
        scratch.touch(user);
        let python = scratch.touch("bin/python3");
        let script = script.replace("ROOT", &scratch.path().display().to_string());
        fs::write(&python, format!("#!/bin/sh\n{script}\n")).expect("scratch");
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("scratch");
        let libraries =
            Libraries::find(&places(&scratch, &[("PATH", "{}/none:{}/bin"), ("HOME", "{}/home")]));
        let expected = (expected.0.to_owned(), expected.1.to_owned(), Origin::Python);
        assert_eq!(nvrtc(&scratch, &libraries), [expected]);
    }
}

#[test]
fn a_file_that_is_no_library_is_an_error_with_its_reason() {
    let scratch = Scratch::new("search-broken");
    let file = scratch.touch("mine/libnvrtc.so.13");
    let libraries = Libraries::find(&places(&scratch, &[("KERNWRIGHT_CUDA_PATH", "{}/mine")]));
    let error = Compiler::open(&libraries).expect_err("an empty file");
    assert!(matches!(error, Error::Unusable { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("`{}`: ", file.display())), "{error}");
    assert!(error.to_string().contains("file too short"), "{error}");
}
