//! The facts for `kernwright doctor`, on a machine with nothing and on one whose libraries are dummies built here.

#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write;
use std::process::Command;

use kernwright_compile::testing::Scratch;
use kernwright_compile::{Gpu, Libraries, Places, Probe, Version, driver_version, probe};

fn places(scratch: &Scratch) -> Places {
    let mine = ("KERNWRIGHT_CUDA_PATH".into(), scratch.path().into());
    let path = std::env::vars_os().filter(|(key, _)| key == "PATH");
    Places { root: scratch.path().join("root"), ..Places::from_variables(path.chain([mine])) }
}

/// Builds a library from C; false, with one line, when there is no C++ compiler.
fn build(scratch: &Scratch, file: &str, text: &str) -> bool {
    let (source, library) = (scratch.path().join("dummy.cpp"), scratch.path().join(file));
    fs::write(&source, format!("extern \"C\" {{\n{text}\n}}\n")).expect("scratch");
    match Command::new("c++").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status() {
        Ok(status) => {
            assert!(status.success(), "{text}");
            true
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr().lock(), "skipped: probing a dummy `{file}`: `c++`: {error}");
            false
        }
    }
}

fn look(scratch: &Scratch) -> Probe {
    let places = places(scratch);
    probe(&Libraries::find(&places), &places)
}

/// A driver of this version whose `cuInit` gives this status and which has two GPUs.
fn driver(version: u32, init: u32) -> String {
    format!(
        r#"
        int cuInit(unsigned) {{ return {init}; }}
        int cuDriverGetVersion(int* version) {{ *version = {version}; return 0; }}
        int cuDeviceGetCount(int* count) {{ *count = 2; return 0; }}
        int cuDeviceGet(int* device, int index) {{ *device = index + 10; return 0; }}
        int cuDeviceGetName(char* name, int length, int device) {{
            const char* text = device == 10 ? "Dummy A" : "Dummy B";
            for (int i = 0; i < 8 && i < length; ++i) name[i] = text[i];
            return 0;
        }}
        int cuDeviceTotalMem_v2(unsigned long* bytes, int) {{ *bytes = 150754820096ul; return 0; }}
        int cuDeviceGetAttribute(int* value, int attribute, int) {{
            switch (attribute) {{
            case 75: *value = 9; return 0;
            case 76: *value = 0; return 0;
            case 16: *value = 132; return 0;
            case 97: *value = 232448; return 0;
            default: return 1;
            }}
        }}"#
    )
}

#[test]
fn a_bare_machine_gets_advice_for_each_missing_thing() {
    let scratch = Scratch::new("probe-bare");
    let nothing: [(&str, &str); 0] = [];
    let places = Places { root: scratch.path().to_path_buf(), ..Places::from_variables(nothing) };
    let libraries = Libraries::find(&places);
    let found = probe(&libraries, &places);
    assert_eq!(driver_version(&libraries), None);
    assert_eq!(found.gpus, []);
    assert!(!found.searched.is_empty());
    for fact in [&found.driver, &found.nvrtc, &found.cublas_lt, &found.nccl, &found.host_compiler] {
        assert!(!fact.present && fact.version.is_none() && fact.path.is_none(), "{fact:?}");
        assert!(fact.problem.is_some() && !fact.advice.is_empty(), "{fact:?}");
    }
    assert!(found.nvrtc.advice.contains("pip install nvidia-cuda-nvrtc==13.0.88"), "{:?}", found.nvrtc);
}

#[test]
fn gpus_are_described() {
    let scratch = Scratch::new("probe-gpus");
    if !build(&scratch, "libcuda.so.1", &driver(13000, 0)) {
        return;
    }
    let found = look(&scratch);
    assert_eq!(found.driver.version.as_deref(), Some("13.0"));
    assert_eq!((found.driver.problem, found.driver.advice.as_str()), (None, ""));
    let expected = |index, name: &str| Gpu {
        index,
        name: name.to_owned(),
        compute_capability: (9, 0),
        memory_bytes: 150_754_820_096,
        n_multiprocessors: 132,
        shared_memory_bytes: 232_448,
    };
    assert_eq!(found.gpus, [expected(0, "Dummy A"), expected(1, "Dummy B")]);
}

#[test]
fn a_driver_without_a_gpu_says_why() {
    for (status, problem, advice) in [
        (100, "shows no GPU", "CUDA_VISIBLE_DEVICES"),
        (802, "not ready", "fabricmanager"),
        (4711, "shows no GPU", "`4711`"),
    ] {
        let scratch = Scratch::new("probe-no-gpu");
        if !build(&scratch, "libcuda.so.1", &driver(12080, status)) {
            return;
        }
        let found = look(&scratch);
        assert!(found.driver.present && found.gpus.is_empty());
        assert_eq!(driver_version(&Libraries::find(&places(&scratch))), Some(Version(vec![12, 8])));
        assert!(
            found.driver.problem.as_ref().is_some_and(|text| text.contains(problem)),
            "{:?}",
            found.driver
        );
        assert!(found.driver.advice.contains(advice), "{:?}", found.driver);
    }
}

#[test]
fn a_library_without_its_functions_is_no_panic() {
    let scratch = Scratch::new("probe-hollow");
    for file in ["libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "libnccl.so.2"] {
        if !build(&scratch, file, "int nothing;") {
            return;
        }
    }
    let found = look(&scratch);
    for fact in [&found.driver, &found.nvrtc, &found.cublas_lt, &found.nccl] {
        assert!(!fact.present, "{fact:?}");
        assert!(fact.problem.as_ref().is_some_and(|text| text.contains("has no function")), "{fact:?}");
    }
}

#[test]
fn versions_of_libraries_are_decoded() {
    let scratch = Scratch::new("probe-versions");
    let built = build(&scratch, "libcublasLt.so.13", "unsigned long cublasLtGetVersion() { return 130002; }")
        && build(
            &scratch,
            "libnccl.so.2",
            "int ncclGetVersion(int* version) { *version = 22803; return 0; }",
        );
    if built {
        let found = look(&scratch);
        assert_eq!(found.cublas_lt.version.as_deref(), Some("13.0.2"));
        assert_eq!(found.nccl.version.as_deref(), Some("2.28.3"));
    }
}

#[test]
fn the_host_compiler_is_the_one_asked_for() {
    let scratch = Scratch::new("probe-cxx");
    let with = |cxx: &str| {
        let places = Places { cxx: Some(cxx.to_owned()), ..places(&scratch) };
        probe(&Libraries::default(), &places).host_compiler
    };
    let found = with("/bin/echo made up");
    assert_eq!(found.version.as_deref(), Some("made up --version"));
    let missing = with("no-such-compiler");
    assert_eq!(missing.problem.as_deref(), Some("`no-such-compiler` is not on `PATH`"));
    assert!(missing.advice.contains("g++"));
}
