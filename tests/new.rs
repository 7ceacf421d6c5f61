//! `new`: what it creates builds and trains, and what it must not touch stays.

#![cfg(feature = "render")]

mod program;

use program::Program;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs cargo in a folder with the packages and the results of this workspace.
fn cargo(folder: &Path, arguments: &[&str]) -> String {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in the target folder");
    let mut command = Command::new(env!("CARGO"));
    command
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target)
        .args(arguments)
        .args(["--offline", "--quiet"]);
    if cfg!(debug_assertions) {
        // As the dependencies were compiled for this test.
        for setting in ["opt-level=0", "debug=2", "package.\"*\".opt-level=0", "package.\"*\".debug=2"] {
            command.args(["--config", &format!("profile.dev.{setting}")]);
        }
    } else {
        command.arg("--release");
    }
    let output = command.output().expect("cargo starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The program that cargo built there.
fn built(name: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in the target folder");
    target.join(if cfg!(debug_assertions) { "debug" } else { "release" }).join(name)
}

#[test]
fn a_new_crate_builds_plans_and_trains() {
    let program = Program::new();
    let shape = program.ok("shape --preset tiny --toml");
    let shape = shape.replace("layers = 5", "layers = 1").replace("128", "32").replace("352", "64");
    program.file("small.toml", shape.replace("context = 256", "context = 32").as_bytes());
    let said = program.ok("new fresh-model --shape small.toml --gpu rtx-3060 --build-script --path a/b");
    assert!(said.contains("`FreshModel`") && said.contains("cd a/b") && said.contains("cargo run -- train"));
    assert_eq!(program.names("a/b"), [".gitignore", "Cargo.toml", "README.md", "build.rs", "src"]);
    let main = String::from_utf8(program.bytes("a/b/src/main.rs")).expect("it is text");
    assert!(main.contains("#[target(sm_86)]\npub struct FreshModel;\n"), "{main}");

    let folder = program.path("a/b");
    fs::copy(Path::new(ROOT).join("Cargo.lock"), folder.join("Cargo.lock")).expect("a lock file");
    cargo(&folder, &["build"]);
    let run = |arguments: &str| {
        let mut command = Command::new(built("fresh-model"));
        let output = command.current_dir(&folder).args(arguments.split_whitespace()).output();
        let output = output.expect("it starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(run("plan").contains("on sm_86 (RTX 3060)"), "it is the declared target");
    assert_eq!(run("shape --text"), program.ok("shape --shape small.toml --text") + "target.sm_86 = true\n");
    assert!(!run("cuda --list").is_empty());
    run("train --steps 2 --batch 1 --length 8 --warmup 1 --eval-batches 1");
    assert!(folder.join("runs/FreshModel/step-000002").is_dir());
    assert!(run("generate --checkpoint runs/FreshModel --prompt A --tokens 2").starts_with('A'));
}

#[test]
fn its_manifest_is_valid_wherever_it_lies() {
    let program = Program::new();
    program.file("Cargo.toml", b"[workspace]\nmembers = []\n");
    program.file("mine.toml", program.ok("shape --preset gpt2-124m --toml").as_bytes());
    let mut command = program.command("new inside --shape mine.toml --path");
    assert!(command.arg("with a space \u{e4}").output().expect("it starts").status.success());
    let folder = program.path("with a space \u{e4}");
    fs::copy(Path::new(ROOT).join("Cargo.lock"), folder.join("Cargo.lock")).expect("a lock file");
    let metadata = cargo_metadata(&folder);
    let package = &metadata["packages"].as_array().expect("packages")[0];
    assert_eq!((&package["name"], &package["publish"]), (&"inside".into(), &serde_json::json!([])));
    let root = fs::canonicalize(ROOT).expect("it exists");
    assert_eq!(package["dependencies"][0]["path"].as_str(), root.to_str(), "a path into this checkout");
    let text = fs::read_to_string(folder.join("src/main.rs")).expect("it was written");
    assert!(text.contains("norm = layer") && text.contains("pub struct Inside;"), "{text}");
    assert!(text.contains("124,439,808 parameters"), "{text}");
}

fn cargo_metadata(folder: &Path) -> serde_json::Value {
    let mut command = Command::new(env!("CARGO"));
    let output = command
        .current_dir(folder)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

#[test]
fn what_is_there_is_never_overwritten() {
    let program = Program::new();
    program.file("mine/notes.txt", b"keep");
    let error = program.fails("new mine", 1);
    assert!(error.contains("`mine` is not empty: name another folder with `--path`"), "{error}");
    assert_eq!(program.names("mine"), ["notes.txt"]);
    program.file("file", b"");
    assert!(program.fails("new file", 1).contains("cannot create `file`"));
    fs::create_dir(program.path("empty")).expect("a folder");
    program.ok("new empty");
    assert!(program.names("empty").contains(&"Cargo.toml".to_owned()));
    assert!(program.fails("new empty", 1).contains("is not empty"));
}

#[test]
fn bad_names_are_refused_before_anything_is_written() {
    let program = Program::new();
    for (name, wanted) in [
        ("fn", "word of Rust"),
        ("gr\u{f6}\u{df}e", "found `\u{f6}`"),
        ("std", "word of Rust"),
        ("7b", "found `7` first"),
    ] {
        let error = program.fails(&format!("new {name}"), 2);
        assert!(error.contains(wanted), "{error}");
    }
    assert!(program.names("").is_empty());
}
