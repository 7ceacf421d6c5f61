//! The house rules that a compiler does not know: which crate may know which, how long a file may be, where `unsafe`
//! may stand. Each rule is a function over files, shown to fail on made-up ones at the bottom. Long because the texts that
//! each rule refuses stand beside it.

use std::fmt::Write as _;
use std::path::Path;

/// A file of the repository, or a made-up one.
struct File {
    /// From the root, with `/`.
    path: String,
    text: String,
}

/// A crate, by its folder, and which of ours it may know.
const CRATES: &[(&str, &str, &[&str])] = &[
    ("codegen/plan/", "kernwright_plan", &[]),
    ("templates/", "kernwright_templates", &[]),
    ("codegen/build/", "kernwright_build", &["kernwright_codegen", "kernwright_compile"]),
    ("codegen/macros/", "kernwright_macros", &["kernwright_codegen", "kernwright_plan"]),
    ("codegen/", "kernwright_codegen", &["kernwright_plan", "kernwright_templates"]),
    ("runtime/compile/", "kernwright_compile", &[]),
    ("runtime/", "kernwright_runtime", &["kernwright_plan", "kernwright_compile"]),
    ("model/", "kernwright_model", &["kernwright_plan"]),
    ("examples/brain/", "brain", &["kernwright"]),
    // The facade: the last, since its folder is the beginning of every other.
    (
        "",
        "kernwright",
        &[
            "kernwright_build",
            "kernwright_codegen",
            "kernwright_compile",
            "kernwright_macros",
            "kernwright_model",
            "kernwright_plan",
            "kernwright_runtime",
        ],
    ),
];

/// Foreign crates that only some of ours may use.
const FOREIGN: &[(&str, &[&str])] = &[
    ("clap", &["kernwright"]),
    ("cudarc", &["kernwright_runtime"]),
    ("indicatif", &["kernwright"]),
    ("libloading", &["kernwright_compile", "kernwright_runtime"]),
    ("proc_macro2", &["kernwright_codegen", "kernwright_macros"]),
    ("quote", &["kernwright_codegen", "kernwright_macros"]),
    ("rayon", &["kernwright_compile", "kernwright_runtime"]),
    ("syn", &["kernwright_codegen", "kernwright_macros"]),
    ("tera", &["kernwright_codegen"]),
    ("toml", &["kernwright", "kernwright_codegen", "kernwright_plan"]),
];

/// The plan is pure: no file, no thread, no environment.
const NOT_IN_PLAN: &[&str] =
    &["std::env", "std::fs", "std::io", "std::net", "std::path", "std::process", "std::thread"];

/// Files that may hold `unsafe`, and for what.
const UNSAFE: &[(&str, &str)] = &[
    ("runtime/compile/src/libraries.rs", "loading NVIDIA's libraries"),
    ("runtime/compile/src/nvrtc.rs", "calls into NVRTC"),
    ("runtime/compile/src/probe.rs", "calls into the driver"),
    ("runtime/src/cpu/matmul.rs", "calls into the matmul library"),
    ("runtime/src/gpu/calls/context.rs", "calls into the driver"),
    ("runtime/src/gpu/calls/graph.rs", "calls into the driver"),
    ("runtime/src/gpu/calls/memory.rs", "calls into the driver, and memory that it gives"),
    ("runtime/src/gpu/calls/mod.rs", "calls into the driver"),
    ("runtime/src/gpu/calls/module.rs", "calls into the driver"),
    ("runtime/src/gpu/calls/stream.rs", "calls into the driver"),
    ("runtime/src/gpu/calls/tensor_map.rs", "calls into the driver"),
    ("runtime/src/gpu/products/descriptors.rs", "calls into cuBLASLt"),
    ("runtime/src/gpu/products/device.rs", "calls into the driver"),
    ("runtime/src/gpu/products/functions.rs", "signatures of cuBLASLt and the driver"),
    ("runtime/src/gpu/activity.rs", "calls into CUPTI"),
    ("runtime/src/emulator/binding.rs", "calls into the emulator's library and its modules"),
];

/// A Rust file is split before this; its tests at the bottom do not count.
const LONG: usize = 400;
/// No reason makes a Rust file longer than this, tests and all.
const TOO_LONG: usize = 600;
/// What the head of a long file says, and then why.
const REASON: &str = "Long because";
const TEMPLATE: usize = 300;
const ATTENTION_TEMPLATE: usize = 500;

const VAGUE: &[&str] = &["common", "helper", "helpers", "misc", "util", "utils"];
const UNFINISHED: &[&str] = &["dbg!", "todo!", "unimplemented!"];

type Rule = fn(&[File]) -> Vec<String>;
const RULES: &[(&str, Rule)] = &[
    ("crates know only what lies before them", arrows),
    ("files are short", lengths),
    ("unsafe code is where the list says", unsafe_places),
    ("files are named by a noun", names),
    ("nothing is left unfinished", unfinished),
    ("kernels contain no assembly", assembly),
];

fn arrows(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files {
        let Some((folder, name, allowed)) = CRATES.iter().find(|(folder, ..)| file.path.starts_with(folder))
        else {
            continue;
        };
        let rest = &file.path[folder.len()..];
        if rest == "Cargo.toml" {
            for dependency in dependencies(&file.text) {
                if let Some(why) = forbidden(&dependency, name, allowed) {
                    faults.push(format!("{}: depends on `{dependency}`: {why}", file.path));
                }
            }
        } else if file.path.ends_with("Cargo.toml") {
            faults.push(format!(
                "{}: a crate that tests/tidy.rs does not know: add a line to CRATES",
                file.path
            ));
        } else if rest.starts_with("src/") && rest.ends_with(".rs") {
            for (number, line) in code(&file.text) {
                for word in words(&line) {
                    let is_ours = CRATES.iter().any(|(_, known, _)| *known == word && word != "kernwright");
                    if let Some(why) = forbidden(word, name, allowed).filter(|_| is_ours) {
                        faults.push(format!("{}:{number}: names `{word}`: {why}", file.path));
                    }
                }
                let impure = NOT_IN_PLAN.iter().find(|path| line.contains(*path));
                if let (Some(path), "kernwright_plan") = (impure, *name) {
                    faults.push(format!(
                        "{}:{number}: uses `{path}`: the plan is pure, so hand it the content as data",
                        file.path
                    ));
                }
            }
        }
    }
    faults
}

/// Why the crate `name` may not know `other`.
fn forbidden(other: &str, name: &str, allowed: &[&str]) -> Option<String> {
    if other == name || allowed.contains(&other) {
        return None;
    }
    if CRATES.iter().any(|(_, known, _)| *known == other) {
        let may = if allowed.is_empty() { "none of ours".to_owned() } else { allowed.join(", ") };
        return Some(format!("`{name}` may know {may}; move what it needs to where both see it"));
    }
    let (_, users) = FOREIGN.iter().find(|(foreign, _)| *foreign == other)?;
    (!users.contains(&name)).then(|| format!("only {} may", users.join(", ")))
}

/// What stands in the `[dependencies]` of a manifest, with `_` for `-`.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
            found.extend(section.strip_prefix("dependencies.").map(str::to_owned));
        } else if section == "dependencies" && !line.starts_with('#') {
            found.extend(line.split(['=', '.']).next().filter(|name| !name.is_empty()).map(str::to_owned));
        }
    }
    found.iter().map(|name| name.trim().replace('-', "_")).collect()
}

fn lengths(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for File { path, text } in files {
        let n_lines = text.lines().count();
        if path.ends_with(".cu.tera") {
            let limit = if path.contains("ops/attention/") { ATTENTION_TEMPLATE } else { TEMPLATE };
            if n_lines > limit {
                faults.push(format!(
                    "{path}: {n_lines} lines, {limit} are allowed: move a part to templates/device"
                ));
            }
        }
        if [".cc", ".h"].iter().any(|ending| path.ends_with(ending)) && n_lines > LONG {
            faults.push(format!("{path}: {n_lines} lines, {LONG} are allowed: split it by concepts"));
        }
        if !path.ends_with(".rs") {
            continue;
        }
        let n_code = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        let mut head = text.lines().take_while(|line| line.starts_with("//!"));
        if n_lines > TOO_LONG {
            faults.push(format!("{path}: {n_lines} lines, {TOO_LONG} are allowed: split it by concepts"));
        } else if n_code > LONG && !head.any(|line| line.contains(REASON)) {
            faults.push(format!(
                "{path}: {n_code} lines before its tests: split it past {LONG}, or write `{REASON} ...` into its head"
            ));
        }
    }
    faults
}

fn unsafe_places(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let is_allowed = UNSAFE.iter().any(|(path, _)| *path == file.path);
        let found = code(&file.text).into_iter().find(|(_, line)| words(line).any(|word| word == "unsafe"));
        match (found, is_allowed) {
            (Some((number, _)), false) => faults.push(format!(
                "{}:{number}: holds `unsafe`: do without, or have it reviewed and listed in UNSAFE of tests/tidy.rs",
                file.path
            )),
            (None, true) => {
                faults.push(format!("{}: holds no `unsafe`: take it off UNSAFE of tests/tidy.rs", file.path));
            }
            _ => {}
        }
    }
    for (path, what) in UNSAFE.iter().filter(|(path, _)| !files.iter().any(|file| file.path == *path)) {
        faults.push(format!("{path}: is gone ({what}): take it off UNSAFE of tests/tidy.rs"));
    }
    faults
}

fn names(files: &[File]) -> Vec<String> {
    let vague = |file: &&File| {
        file.path.split('/').any(|part| VAGUE.contains(&part.split('.').next().unwrap_or(part)))
    };
    let fault = |file: &File| format!("{}: says nothing: name it by the one concept it holds", file.path);
    files.iter().filter(vague).map(fault).collect()
}

fn unfinished(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        for (number, line) in code(&file.text) {
            for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
                faults.push(format!("{}:{number}: `{word}`: finish it, or return an error", file.path));
            }
        }
    }
    faults
}

fn assembly(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with("templates/ops/")) {
        for (number, line) in code(&file.text) {
            if words(&line).any(|word| matches!(word, "asm" | "__asm__" | "__asm")) {
                faults.push(format!(
                    "{}:{number}: `asm`: give it a plain name in templates/device, and the emulator its second one",
                    file.path
                ));
            }
        }
    }
    faults
}

/// The lines of a text with their numbers, without comments and without what stands in quotes.
fn code(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut in_comment = false;
    for (index, line) in text.lines().enumerate() {
        let mut code = String::new();
        let mut in_quotes = false;
        let mut rest = line;
        while let Some(sign) = rest.chars().next() {
            if in_comment {
                in_comment = !rest.starts_with("*/");
                rest = &rest[if in_comment { sign.len_utf8() } else { 2 }..];
                continue;
            }
            if in_quotes {
                in_quotes = sign != '"';
                let skipped = if sign == '\\' {
                    rest.chars().take(2).map(char::len_utf8).sum()
                } else {
                    sign.len_utf8()
                };
                rest = &rest[skipped..];
                continue;
            }
            if rest.starts_with("//") {
                break;
            }
            in_comment = rest.starts_with("/*");
            // The one sign in quotes of its own that would open a text.
            let skipped = if rest.starts_with("'\"'") { 3 } else { sign.len_utf8() };
            in_quotes = sign == '"';
            if !in_quotes && !in_comment {
                code.push_str(&rest[..skipped]);
            }
            rest = &rest[skipped..];
        }
        lines.push((index + 1, code));
    }
    lines
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|sign: char| !sign.is_alphanumeric() && sign != '_').filter(|word| !word.is_empty())
}

/// Every text file of ours below a folder.
fn walk(root: &Path, folder: &Path, files: &mut Vec<File>) {
    let entries = folder.read_dir().unwrap_or_else(|error| panic!("`{}`: {error}", folder.display()));
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            let is_built = path.join("CACHEDIR.TAG").exists() || ["target", "runs"].contains(&name.as_str());
            if !name.starts_with('.') && !is_built {
                walk(root, &path, files);
            }
            continue;
        }
        let is_ours =
            [".rs", ".toml", ".tera", ".cuh", ".cc", ".h", ".py"].iter().any(|ending| name.ends_with(ending));
        if let (true, Ok(text)) = (is_ours, std::fs::read_to_string(&path)) {
            let path = path.strip_prefix(root).unwrap_or(&path);
            files.push(File { path: path.to_string_lossy().replace('\\', "/"), text });
        }
    }
}

#[test]
fn the_repository_keeps_the_house_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    walk(root, root, &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    for (folder, name, _) in CRATES {
        assert!(files.iter().any(|file| file.path == format!("{folder}Cargo.toml")), "`{name}` is gone");
    }
    let mut report = String::new();
    for (rule, check) in RULES {
        for fault in check(&files) {
            let _ = writeln!(report, "{rule}: {fault}");
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

/// Each rule with a text it must refuse, and what it says of it; and one it must let pass.
#[test]
fn each_rule_can_fail() {
    let long = "fn f() {}\n".repeat(401);
    let tested = format!("{}#[cfg(test)]\n{}", "fn f() {}\n".repeat(399), "fn g() {}\n".repeat(100));
    let reasoned = format!("//! A table.\n//! Long because it is one.\n{long}");
    let too_long = format!("//! Long because.\n{}", "fn f() {}\n".repeat(600));
    let template = "// line\n".repeat(301);
    let cases: &[(Rule, &str, &str, Option<&str>)] = &[
        (
            arrows,
            "model/Cargo.toml",
            "[dependencies]\nkernwright-runtime.workspace = true",
            Some("kernwright_runtime"),
        ),
        (
            arrows,
            "model/Cargo.toml",
            "[dependencies.kernwright-runtime]\npath = \"..\"",
            Some("kernwright_runtime"),
        ),
        (arrows, "model/Cargo.toml", "[dev-dependencies]\nkernwright-runtime = \"1\"", None),
        (arrows, "codegen/plan/Cargo.toml", "[dependencies]\nrayon = \"1\"", Some("rayon")),
        (arrows, "runtime/Cargo.toml", "[dependencies]\nrayon = \"1\"\nkernwright-plan = \"1\"", None),
        (arrows, "runtime/new/Cargo.toml", "", Some("CRATES")),
        (arrows, "codegen/src/a.rs", "use kernwright_model::Corpus;", Some("kernwright_model")),
        (arrows, "codegen/src/a.rs", "use kernwright_plan::Shape; // not kernwright_model", None),
        (arrows, "codegen/plan/src/a.rs", "fn f() { std::fs::read(x); }", Some("std::fs")),
        (
            arrows,
            "runtime/compile/src/a.rs",
            "use std::fs; let p = kernwright_plan::x;",
            Some("kernwright_plan"),
        ),
        (lengths, "model/src/a.rs", &long, Some("401 lines")),
        (lengths, "model/src/a.rs", &tested, None),
        (lengths, "model/src/a.rs", &reasoned, None),
        (lengths, "model/src/a.rs", &too_long, Some("601 lines")),
        (lengths, "runtime/src/emulator/device/a.cc", &long, Some("401 lines")),
        (lengths, "templates/ops/norm/forward.cu.tera", &template, Some("301 lines")),
        (lengths, "templates/ops/attention/forward.cu.tera", &template, None),
        (unsafe_places, "model/src/a.rs", "\n    unsafe { f() }", Some("a.rs:2:")),
        (
            unsafe_places,
            "model/src/a.rs",
            "#![allow(unsafe_code)] // unsafe\n/* unsafe\n*/ f(\"unsafe\")",
            None,
        ),
        (unsafe_places, "runtime/src/cpu/matmul.rs", "fn f() {}", Some("take it off")),
        (names, "model/src/utils.rs", "", Some("utils.rs")),
        (names, "tests/common/mod.rs", "", Some("common")),
        (names, "templates/device/misc.cuh", "", Some("misc")),
        (names, "model/src/commonplace.rs", "", None),
        (unfinished, "src/a.rs", "fn f() { todo!() }", Some("`todo!`")),
        (unfinished, "src/a.rs", "fn f() {\n    dbg!(x);\n}", Some("a.rs:2:")),
        (unfinished, "src/a.rs", "let c = ['\"', 'x']; // todo!\nlet text = \"dbg!\\\" todo!\";", None),
        (assembly, "templates/ops/norm/forward.cu.tera", "    asm volatile(\"bar;\");", Some("`asm`")),
        (assembly, "templates/ops/norm/forward.cu.tera", "// no asm here: plasma", None),
        (assembly, "templates/device/types.cuh", "asm(\"\");", None),
    ];
    for (rule, path, text, wanted) in cases {
        let files = [File { path: (*path).to_owned(), text: (*text).to_owned() }];
        let faults: Vec<String> =
            rule(&files).into_iter().filter(|fault| !fault.contains("is gone")).collect();
        match wanted {
            Some(wanted) => {
                assert!(
                    faults.len() == 1 && faults[0].contains(wanted),
                    "{path}: `{wanted}` is not in {faults:?}"
                );
                assert!(faults[0].starts_with(path), "{faults:?}");
            }
            None => assert!(faults.is_empty(), "{path}: {faults:?}"),
        }
    }
    assert_eq!(unsafe_places(&[]).len(), UNSAFE.len(), "a file that is gone is told");
}
