//! `--device`: which one is taken, and what is said where a GPU cannot be used.

mod program;

use kernwright_compile::testing;
use program::Program;
use std::path::Path;
use std::process::Command;

/// A driver that shows no GPU, in a folder of its own; none, with a line that says so, where there is no C++ compiler.
fn driver_without_gpus(program: &Program) -> Option<String> {
    let compiler = testing::host_compiler_or_skip(std::env::vars_os(), "a driver that shows no GPU")?;
    let folder = program.path("driver");
    std::fs::create_dir_all(&folder).expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("runtime/tests/opening/driver.c");
    let mut command = compiler.command();
    command.args(["-x", "c", "-shared", "-fPIC", "-DINIT=100", "-DVERSION=13000", "-DCOUNT=0", "-o"]);
    let done = command.arg(folder.join("libcuda.so.1")).arg(source).output().expect("it starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(folder.display().to_string())
}

fn run(mut command: Command, cuda: &str) -> (Option<i32>, String) {
    let output = command.env("KERNWRIGHT_CUDA_PATH", cuda).output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_gpu_that_is_not_there_is_missed_where_it_was_asked_for_and_else_does_without() {
    const REASON: &str =
        "the driver shows no GPU; check `CUDA_VISIBLE_DEVICES` and, in a container, `--gpus all`";
    let program = Program::new();
    let Some(cuda) = driver_without_gpus(&program) else { return };
    program.ok("train --steps 1 --batch 1 --length 8 --eval-batches 1 --out run");
    let generate = "generate --checkpoint run --prompt a --tokens 1";
    let asked = |device: &str| run(program.command(&format!("{generate}{device}")), &cuda);
    assert_eq!(asked(" --device cuda"), (Some(1), format!("error: {REASON}\n")));
    assert_eq!(asked(" --device cuda:1"), (Some(1), format!("error: {REASON}\n")));
    assert_eq!(asked(""), (Some(0), format!("device: CPU: {REASON}\n")));
    assert_eq!(asked(" --device cpu --threads 1"), (Some(0), "device: CPU\n".to_owned()));
    let (code, error) = asked(" --device gpu");
    assert!(code == Some(2) && error.contains("allowed are `auto`, `cpu`, `cuda`, and `cuda:N`"), "{error}");
}
