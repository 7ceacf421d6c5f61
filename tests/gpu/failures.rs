//! A kernel that fails spoils the GPU for its whole process, so it does so in one of its own.

use crate::device::{open, options};
use kernwright_plan::spec::KernelSpec;
use kernwright_runtime::driver::{Command, Driver, Text, Value};
use kernwright_runtime::gpu::products::Pick;
use std::process::Command as Process;

const BROKEN: &str =
    "extern \"C\" __global__ void broken_t32(int* to, long long offset) { to[offset + threadIdx.x] = 1; }\n";

fn broken() -> Text {
    Text {
        spec: KernelSpec { template: "broken", block: 32, shared_memory: 0, fields: Vec::new() },
        text: BROKEN.to_owned(),
    }
}

/// What a GPU says of a kernel that writes where nothing is, at the launch and after it.
fn fail(synchronous: bool) {
    let Some(options) = options("a failing kernel") else { return };
    let mut gpu = open(&options, synchronous, Pick::First);
    let kernel = gpu.load(&[broken()]).expect("it compiles")[0];
    let launch = |arguments| Command::Kernel { kernel, grid: [2, 1, 1], arguments };
    let error = gpu.launch(&launch(vec![Value::I32(1)])).expect_err("too few");
    eprintln!("arguments: {error}");
    let launched = gpu.launch(&launch(vec![Value::Address(None), Value::I64(1 << 40)]));
    eprintln!("launch: {}", launched.map_or_else(|error| error.to_string(), |()| "well".to_owned()));
    let waited = gpu.synchronize();
    eprintln!("wait: {}", waited.map_or_else(|error| error.to_string(), |()| "well".to_owned()));
}

#[test]
#[ignore = "spoils the GPU for its process; run by the test below"]
fn a_launch_fails_later() {
    fail(false);
}

#[test]
#[ignore = "spoils the GPU for its process; run by the test below"]
fn a_launch_fails_at_once() {
    fail(true);
}

#[test]
fn a_kernel_that_fails_is_named_where_each_launch_is_waited_for() {
    if options("naming a failing kernel").is_none() {
        return;
    }
    let said = |test: &str| {
        let program = std::env::current_exe().expect("this program has a path");
        let mut process = Process::new(program);
        let output = process.args(["--exact", test, "--ignored", "--nocapture"]).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        text
    };
    let later = said("failures::a_launch_fails_later");
    for wanted in [
        "arguments: it takes arguments of [8, 8] bytes, found [4]",
        "launch: well",
        "`cuStreamSynchronize` failed with `CUDA_ERROR_ILLEGAL_ADDRESS`",
        "`KERNWRIGHT_GPU_SYNCHRONOUS=1`",
    ] {
        assert!(later.contains(wanted), "{wanted}:\n{later}");
    }
    let at_once = said("failures::a_launch_fails_at_once");
    for wanted in ["launch: `cuStreamSynchronize` failed", "`cuda --show broken_t32` prints its source"] {
        assert!(at_once.contains(wanted), "{wanted}:\n{at_once}");
    }
}
