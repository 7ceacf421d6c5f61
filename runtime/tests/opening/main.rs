//! What is said of a GPU that cannot be used, by drivers that can do little.

use kernwright_compile::testing::{Scratch, host_compiler_or_skip};
use kernwright_compile::{HostCompiler, Libraries, Places};
use kernwright_runtime::Gpu;
use kernwright_runtime::gpu::{self, Settings};

/// A driver that initialises with this status, is of this version and shows so many GPUs.
fn driver(compiler: &HostCompiler, folder: &Scratch, init: i32, version: i32, count: i32) -> Libraries {
    let (source, library) =
        (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/opening/driver.c"), folder.path().join("libcuda.so.1"));
    let mut command = compiler.command();
    command.args(["-x", "c", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
    for (name, value) in [("INIT", init), ("VERSION", version), ("COUNT", count)] {
        command.arg(format!("-D{name}={value}"));
    }
    let done = command.arg("-o").arg(&library).arg(source).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    find(folder)
}

/// What lies in a folder, and nothing of this machine.
fn find(folder: &Scratch) -> Libraries {
    let variables = [("KERNWRIGHT_CUDA_PATH", folder.path().display().to_string())];
    let places = Places { root: folder.path().to_path_buf(), ..Places::from_variables(variables) };
    Libraries::find_driver(&places)
}

/// One test, since a process has one driver: the first whose functions are called.
#[test]
fn each_reason_why_a_gpu_cannot_be_used_is_told() {
    let Some(compiler) = host_compiler_or_skip(std::env::vars_os(), "drivers that can do little") else {
        return;
    };
    let folders = [0; 6].map(|_| Scratch::new("driver"));
    let [whole, none, empty, hidden, old, bare] = &folders;

    // It shows two GPUs and lacks every function that uses one: no panic of what calls it gets through.
    let libraries = driver(&compiler, whole, 0, 13_000, 2);
    let found = gpu::gpus(&libraries).unwrap();
    let facts: Vec<_> = found.iter().map(|gpu| (gpu.index, gpu.name.as_str(), gpu.memory >> 30)).collect();
    assert_eq!(facts, [(0, "A", 8), (1, "B", 9)]);
    assert_eq!(found[1].arch.map(|arch| &*arch.name), Some("sm_86"));
    assert_eq!(found[1].driver.to_string(), "13.0");
    let cubins = Box::new(|_: &[_]| Ok(Vec::new()));
    let error = Gpu::open(&libraries, found[1].clone(), Settings::default(), cubins).unwrap_err();
    let path = whole.path().join("libcuda.so.1");
    assert_eq!(
        error.to_string(),
        format!(
            "the GPU cannot be used: `{}` has no function `cuCtxSetCurrent`: it is too old or not the library its name says",
            path.display()
        )
    );
    assert_eq!(
        gpu::find(&libraries, 2).unwrap_err().to_string(),
        "there is no GPU `2`: allowed is a number below 2; `CUDA_VISIBLE_DEVICES` hides GPUs"
    );

    let told = |libraries: &Libraries| gpu::gpus(libraries).unwrap_err().to_string();
    // It says so when it begins, or shows a list of none.
    for (folder, init) in [(none, 100), (empty, 0)] {
        assert_eq!(
            told(&driver(&compiler, folder, init, 13_000, 0)),
            "the driver shows no GPU; check `CUDA_VISIBLE_DEVICES` and, in a container, `--gpus all`"
        );
    }
    let error = told(&driver(&compiler, hidden, 999, 13_000, 1));
    assert!(error.starts_with("the driver failed without a reason"), "{error}");
    let error = told(&driver(&compiler, old, 0, 12_040, 1));
    assert_eq!(error, "the driver offers CUDA 12.4, needed is 12.8 or later: update it to 580 or later");
    let error = told(&find(bare));
    assert!(error.starts_with("`libcuda.so` was not found in"), "{error}");
}
