//! `check`: kernels of a model on the emulator, whole and spoilt.

#![cfg(feature = "render")]

mod program;

use kernwright_compile::testing;
use program::Program;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder to run in, unless there is no C++ compiler. Compiled kernels stay where the next run finds them.
fn program(what: &str) -> Option<Program> {
    testing::host_compiler_or_skip(std::env::vars_os(), what).map(|_| Program::new())
}

fn command(program: &Program, arguments: &str) -> Command {
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("check");
    let mut command = program.command(arguments);
    command.env("KERNWRIGHT_CACHE", cache);
    command
}

/// Runs it; what it printed to standard output and to standard error, if it ended with this code.
fn both(program: &Program, arguments: &str, code: i32) -> [String; 2] {
    let Output { status, stdout, stderr } = command(program, arguments).output().expect("the program starts");
    let [text, error] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert_eq!(status.code(), Some(code), "`{arguments}`:\n{text}\n{error}");
    assert!(!error.contains("panicked"), "`{arguments}`: {error}");
    [text, error]
}

/// The same, in one text.
fn run(program: &Program, arguments: &str, code: i32) -> String {
    both(program, arguments, code).concat()
}

/// What it printed as JSON.
fn document(program: &Program, arguments: &str, code: i32) -> Value {
    let [text, _] = both(program, arguments, code);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("`{arguments}`: {error}:\n{text}"))
}

/// Writes the kernels of the tiny model for one GPU, and spoils those whose name begins so, behind the vocabulary; gives
/// the name of one.
fn spoil(program: &Program, begins: &str, edit: impl Fn(&str) -> String) -> String {
    run(program, "cuda --gpu sm_90a --out mine", 0);
    let mut spoilt = Vec::new();
    // Forms that are only measured against are no part of a check.
    let is_run = |name: &&String| name.starts_with(begins) && !name.contains("_copy_");
    for name in program.names("mine/sm_90a").iter().filter(is_run) {
        let path = program.path(&format!("mine/sm_90a/{name}"));
        let text = fs::read_to_string(&path).expect("a kernel");
        let (vocabulary, kernel) = text.split_at(text.rfind("// --- ops/").expect("the kernel's own part"));
        let edited = edit(kernel);
        assert_ne!(edited, kernel, "{name} has nothing to spoil");
        fs::write(&path, format!("{vocabulary}{edited}")).expect("a file");
        spoilt.push(name.trim_end_matches(".cu").to_owned());
    }
    spoilt.pop().unwrap_or_else(|| panic!("no kernel begins with `{begins}`"))
}

#[test]
fn a_changed_shape_is_what_is_checked() {
    let Some(program) = program("checking a changed shape") else { return };
    let flags = "--set model.d_model=96 --gpu sm_90a --op norm --json";
    let found = document(&program, &format!("check {flags}"), 0);
    assert_eq!(found["model"], "tiny with model.d_model=96");
    assert_eq!(found["ops"][0]["verdict"], "pass", "{found}");
    let shape = found["shape"].as_array().expect("lines");
    assert!(shape.iter().any(|line| line == "model.d_model = 96"), "{found}");
    let error = run(&program, "check --set model.d_modle=96", 1);
    assert!(error.contains("--set: ") && error.contains("did you mean `d_model`?"), "{error}");
}

#[test]
fn the_tiny_model_passes_and_the_table_says_what_the_document_does() {
    let Some(program) = program("checking the tiny model") else { return };
    let document = document(&program, "check --json", 0);
    let table = run(&program, "check", 0);
    let list = |key: &str| document[key].as_array().expect("a list").clone();
    for row in list("ops") {
        let (op, kernels, launches) =
            (row["op"].as_str().expect("a name"), &row["n_kernels"], &row["n_launches"]);
        let line = table.lines().find(|line| line.split_whitespace().next() == Some(op));
        let line = line.unwrap_or_else(|| panic!("`{op}` is not in\n{table}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let counts = [kernels, launches].map(ToString::to_string);
        assert!(words.windows(2).any(|pair| pair == counts), "{counts:?}: {line}");
        assert!(row["share"].as_f64().is_none_or(|share| share <= 1.0), "{line}");
        assert_eq!(line.ends_with("pass"), row["verdict"] == "pass", "{line}");
    }
    let passed: Vec<Value> = list("ops").into_iter().filter(|row| row["verdict"] == "pass").collect();
    for op in
        ["embedding_backward", "norm", "linear", "rope", "activation_backward", "head_loss", "head", "adamw"]
    {
        assert!(passed.iter().any(|row| row["op"] == op), "`{op}` did not pass:\n{table}");
    }
    let kernels = list("kernels");
    assert_eq!(document["n_kernels"], kernels.len());
    let counts = format!("{} kernels, {} launches, all within", kernels.len(), document["n_launches"]);
    assert!(table.contains(&counts), "{counts}:\n{table}");
    // Most texts are the same for every GPU.
    let of_all =
        kernels.iter().filter(|kernel| kernel["gpus"].as_array().map(Vec::len) == Some(list("gpus").len()));
    assert!(of_all.count() > 10, "{kernels:?}");
}

#[test]
fn a_wrong_constant_fails_with_op_kernel_index_and_values() {
    let Some(program) = program("checking a kernel with a wrong constant") else { return };
    let edit = |text: &str| text.replace("float EPSILON = ", "float EPSILON = 0.25f + ");
    let kernel = spoil(&program, "norm_forward_rms_bf16_fp32_", edit);
    let text = run(&program, "check --gpu sm_90a --kernels mine --op norm --precision bf16", 1);
    for wanted in ["FAIL", "error: `norm`: `", " at index ", " must be ", ", found ", " is allowed"] {
        assert!(text.contains(wanted), "{wanted}:\n{text}");
    }
    assert!(text.contains(&format!("kernel `{kernel}` for sm_90a")), "{kernel}:\n{text}");
    let document = document(&program, "check --gpu sm_90a --kernels mine --op norm --json", 1);
    let fault = &document["faults"][0];
    assert_eq!(
        (&document["passed"], &fault["op"], &fault["kernels"][0]),
        (&false.into(), &"norm".into(), &kernel.clone().into())
    );
    assert!(fault["place"]["expected"].is_f64() && document["edited"][0] == *kernel, "{document}");
    // What does not launch it is not spoilt.
    run(&program, "check --gpu sm_90a --op adamw", 0);
}

#[test]
fn a_missing_barrier_fails_with_the_report_and_its_lines() {
    let Some(program) = program("checking a kernel with a missing barrier") else { return };
    let kernel = spoil(&program, "embedding_backward", |text| text.replacen("    barrier();", "    ;", 1));
    let text = run(&program, "check --gpu sm_90a --kernels mine/sm_90a --op embedding_backward", 1);
    assert!(text.contains("error: `embedding_backward`: thread ("), "{text}");
    assert!(text.contains(&format!("kernel `{kernel}` on ")), "{text}");
    assert!(text.contains("with no barrier between") || text.contains("where nobody has written"), "{text}");
    assert!(text.contains(&format!("in `mine/sm_90a/{kernel}.cu`")) && text.contains(" | "), "{text}");
}

#[test]
fn without_a_compiler_it_says_what_it_looked_for_and_what_to_install() {
    let program = Program::new();
    let output = command(&program, "check").env("CXX", "/nonexistent").output().expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("`/nonexistent`") && error.contains("apt-get install g++"), "{error}");
}

#[test]
fn a_length_that_is_asked_for_is_the_length_that_runs() {
    let Some(program) = program("counting requests of two lengths") else { return };
    let requests = |length: u32| {
        let flags = format!("check --gpu sm_80 --op rope --counters --length {length}");
        let text = run(&program, &flags, 0);
        let row = text.lines().find_map(|line| line.trim().strip_prefix("global memory")).map(str::to_owned);
        row.and_then(|row| row.split_whitespace().next().and_then(|n| n.parse::<u32>().ok()))
    };
    assert_eq!((requests(100), requests(256)), (Some(300), Some(768)));
}

#[test]
fn what_is_unknown_is_told_with_what_is_near() {
    let Some(program) = program("asking `check` for what there is not") else { return };
    let error = run(&program, "check --op nrom", 2);
    assert!(error.contains("norm"), "{error}");
    let error = run(&program, "check --op positions", 1);
    assert!(error.contains("no step of `tiny` is of op `positions`"), "{error}");
    let error = run(&program, "check --length 5000", 1);
    assert!(error.contains("`--length` must be at most 256"), "{error}");
    let error = run(&program, "check --debug adamw_step", 1);
    assert!(error.contains("`tiny` has no kernel `adamw_step` for these GPUs: "), "{error}");

    fs::create_dir(program.path("mine")).expect("a folder");
    let error = run(&program, "check --kernels mine", 1);
    assert!(error.contains("`mine` holds no `.cu` file"), "{error}");
    let name =
        run(&program, "cuda --list", 0).lines().find(|name| name.starts_with("adamw")).map(str::to_owned);
    let name = name.expect("an AdamW kernel");
    program.file(&format!("mine/{name}x.cu"), b"");
    let error = run(&program, "check --kernels mine", 1);
    assert!(error.contains(&format!("did you mean `{name}`?")), "{error}");
    let error = run(&program, "check --kernels nothing", 1);
    assert!(error.contains("cannot read `nothing`"), "{error}");
}

#[test]
fn an_edited_kernel_that_is_not_run_does_not_pass_silently() {
    let Some(program) = program("checking another op than the edited one") else { return };
    spoil(&program, "adamw_step_bf16_gfp32", |text| format!("{text}\n// edited\n"));
    let error = run(&program, "check --gpu sm_90a --kernels mine --op norm", 1);
    assert!(error.contains("is not as it was, but this check does not run it"), "{error}");
    let text = run(&program, "check --gpu sm_90a --kernels mine --op adamw", 0);
    assert!(text.contains("all within the tolerance"), "{text}");
}

#[test]
fn a_kernel_is_compiled_for_a_debugger_and_the_command_printed() {
    let Some(program) = program("compiling a kernel for a debugger") else { return };
    let names = run(&program, "cuda --list", 0);
    let kernel = names.lines().find(|name| name.starts_with("gradient_norm_root")).expect("a kernel");
    let text = run(&program, &format!("check --gpu sm_90a --debug {kernel}"), 0);
    let wanted = format!("gdb -q -ex 'set breakpoint pending on' -ex 'break {kernel}' -ex run --args ");
    assert!(!text.contains("head_loss"), "only what launches it is run:\n{text}");
    assert!(text.contains(&wanted) && text.contains("all within the tolerance"), "{text}");
}
