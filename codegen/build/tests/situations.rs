//! Small crates, really built, in the situations that users' crates are in: with a target folder elsewhere, a build
//! script, a renamed dependency, obstacles. The facade is a stub, so that neither runtime nor program is built; all share
//! one target folder, kept between runs; and every path has a space and letters beyond ASCII in it.

use kernwright_compile::testing;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

const MODEL: &str = "#[derive(kernwright::Transformer)]
#[model(vocab = 256, d_model = 32, layers = 1)]
#[attention(heads = 2)]
#[feed_forward(gelu, d_ff = 64)]
#[target(sm_80)]
pub struct Brain;
";
/// Says how many kernels the program carries, and how many of them compiled.
const MAIN: &str = "fn main() {
    use kernwright::Model;
    println!(\"{} {}\", Brain::SOURCES.len(), Brain::CUBINS.iter().filter(|one| !one.cubin.is_empty()).count());
}
";
const SCRIPT: &str = "fn main() { kernwright::build::run(&[\"src/main.rs\"]); }\n";

/// A package below the workspace, or beside it.
struct Package {
    /// Its folder; the last part is its name.
    folder: &'static str,
    dependency: &'static str,
    main: fn() -> String,
    has_script: bool,
}

const PLAIN: &str = "kernwright = { path = '../../packages/kernwright' }";
const PACKAGES: &[Package] = &[
    Package { folder: "packages/member", dependency: PLAIN, main: plain, has_script: false },
    Package { folder: "packages/obstructed", dependency: PLAIN, main: plain, has_script: true },
    Package { folder: "packages/scripted", dependency: PLAIN, main: twins, has_script: true },
    Package { folder: "packages/compiled", dependency: PLAIN, main: plain, has_script: true },
    Package {
        folder: "packages/renamed",
        dependency: "kw = { path = '../kernwright', package = 'kernwright' }",
        main: renamed,
        has_script: false,
    },
    Package { folder: "alone/elsewhere", dependency: PLAIN, main: plain, has_script: false },
];

fn plain() -> String {
    format!("{MODEL}{MAIN}")
}

fn renamed() -> String {
    plain().replace("kernwright::", "kw::").replace("#[model(", "#[model(crate = kw, ")
}

/// Structs of one name: which of the first two is there, a build script cannot tell.
fn twins() -> String {
    let gated = |condition: &str, module: &str, d_ff: &str| {
        format!(
            "#[cfg({condition})]\n#[allow(dead_code)]\nmod {module} {{\n{}}}\n",
            MODEL.replace("64", d_ff)
        )
    };
    let other = MODEL.replace("pub struct Brain", "#[allow(dead_code)]\nstruct Other");
    [gated("all()", "here", "96"), gated("any()", "gone", "128"), other, plain()].concat()
}

/// The workspace, written once per run.
fn workspace() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("crâtes with späces");
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let manifest =
            "[workspace]\nresolver = '3'\nmembers = ['packages/*']\n[profile.dev]\ndebug = false\n";
        write(&root.join("Cargo.toml"), manifest);
        // The versions that were built already: nothing is downloaded.
        let lock = fs::read_to_string(repository.join("Cargo.lock")).expect("the repository has one");
        write(&root.join("Cargo.lock"), &lock);
        let stub = repository.join("codegen/macros/tests/attribute/support/facade.rs");
        let stub =
            fs::read_to_string(stub).expect("the stub is there") + "pub use kernwright_build as build;\n";
        write(&root.join("packages/kernwright/src/lib.rs"), &stub);
        let crates = ["build", "macros"].map(|name| {
            let path = repository.join("codegen").join(name);
            format!("kernwright-{name} = {{ path = '{}' }}\n", path.display())
        });
        write(&root.join("packages/kernwright/Cargo.toml"), &manifest_of("kernwright", &crates.concat()));
        for package in PACKAGES {
            let folder = root.join(package.folder);
            let name = package.folder.rsplit('/').next().unwrap_or_default();
            let mut manifest = manifest_of(name, package.dependency);
            if package.has_script {
                manifest += &format!("\n[build-dependencies]\n{}\n", package.dependency);
                write(&folder.join("build.rs"), SCRIPT);
            }
            if package.folder.starts_with("alone/") {
                manifest += "\n[workspace]\n[profile.dev]\ndebug = false\n";
                write(&folder.join("Cargo.lock"), &lock);
            }
            write(&folder.join("Cargo.toml"), &manifest);
            write(&folder.join("src/main.rs"), &(package.main)());
        }
        root
    })
}

fn manifest_of(name: &str, dependencies: &str) -> String {
    format!("[package]\nname = '{name}'\nversion = '0.0.0'\nedition = '2024'\n[dependencies]\n{dependencies}")
}

fn write(path: &Path, text: &str) {
    let folder = path.parent().expect("it is a file in a folder");
    fs::create_dir_all(folder).expect("the folder is ours");
    // An earlier run may have left it read-only.
    set_read_only(folder, false);
    let _ = fs::remove_file(path);
    fs::write(path, text).unwrap_or_else(|error| panic!("`{}`: {error}", path.display()));
}

fn set_read_only(path: &Path, is_read_only: bool) {
    let mut permissions = fs::metadata(path).expect("it is there").permissions();
    permissions.set_readonly(is_read_only);
    fs::set_permissions(path, permissions).expect("it is ours");
}

/// What cargo did.
struct Build {
    /// Targets that were compiled, not taken as they were.
    compiled: Vec<String>,
    executable: PathBuf,
    warnings: String,
}

impl Build {
    /// What the program says: kernels, and how many of them compiled.
    fn output(&self) -> String {
        let output = Command::new(&self.executable).output().expect("it runs");
        String::from_utf8(output.stdout).expect("it writes text").trim().to_owned()
    }
}

type Arguments<'a> = &'a [&'a str];
type Variables<'a> = &'a [(&'a str, &'a str)];

fn cargo(folder: &str, arguments: Arguments<'_>, variables: Variables<'_>) -> Build {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(workspace().join(folder)).args(["build", "--offline", "--message-format=json"]);
    for name in [
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET_DIR",
        "CARGO_BUILD_TARGET",
        "KERNWRIGHT_TARGETS",
        "KERNWRIGHT_CUBINS",
    ] {
        command.env_remove(name);
    }
    let output = command.args(arguments).envs(variables.iter().copied()).output().expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut build = Build { compiled: Vec::new(), executable: PathBuf::new(), warnings: errors.clone() };
    let mut messages = String::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        messages += message["message"]["rendered"].as_str().unwrap_or_default();
        if message["reason"] == "compiler-artifact" {
            if message["fresh"] == false {
                build.compiled.extend(message["target"]["name"].as_str().map(str::to_owned));
            }
            build.executable = message["executable"].as_str().map_or(build.executable, PathBuf::from);
        }
    }
    assert!(output.status.success(), "{folder}: {errors}\n{messages}");
    assert_eq!(messages, "", "{folder} builds without warnings of the compiler");
    build
}

/// Kernels below the target folder's copies of a package, by model's folder and file name.
fn copies(package: &str, extension: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() { walk(&entry.path(), found) } else { found.push(entry.path()) }
        }
    }
    let mut found = Vec::new();
    walk(&workspace().join("target/kernwright").join(package), &mut found);
    found.retain(|path| path.extension().is_some_and(|found| found == extension));
    found.sort();
    found
}

#[test]
fn a_workspace_member_is_built_once_and_its_copies_lie_in_the_workspaces_target() {
    let folder = "packages/member";
    let first = cargo(folder, &[], &[]);
    assert!(first.output().ends_with(" 0"), "{}", first.output());
    assert_eq!(copies("member", "cu").len().to_string() + " 0", first.output());
    assert!(!workspace().join(folder).join("target").exists());
    assert_eq!(cargo(folder, &[], &[]).compiled, [] as [&str; 0]);

    let overridden = [("KERNWRIGHT_TARGETS", "sm_86 sm_90a")];
    assert_eq!(cargo(folder, &[], &overridden).compiled, ["member"]);
    let lies_in = |arch: &str| {
        copies("member", "cu").iter().any(|path| path.parent().is_some_and(|at| at.ends_with(arch)))
    };
    assert_eq!(["sm_80", "sm_86", "sm_90a"].map(lies_in), [false, true, true]);
    assert_eq!(cargo(folder, &[], &overridden).compiled, [] as [&str; 0]);
}

#[test]
fn copies_lie_in_the_target_folder_however_it_is_named() {
    let target = workspace().join("target");
    let target = target.to_str().expect("it is UTF-8");
    let rustc = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let version = String::from_utf8(rustc.stdout).expect("it writes text");
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("it says so");
    let config = format!("build.target-dir='{target}'");
    let ways: &[(Arguments, Variables)] = &[
        (&[], &[("CARGO_TARGET_DIR", target)]),
        (&[], &[("CARGO_TARGET_DIR", "../../target")]),
        (&["--target-dir", target], &[]),
        (&["--config", &config], &[]),
        (&["--target-dir", target, "--target", host], &[]),
    ];
    for (nth, (arguments, variables)) in ways.iter().enumerate() {
        let folder = "alone/elsewhere";
        for copy in copies("elsewhere", "cu") {
            fs::remove_file(copy).expect("it was there");
        }
        write(&workspace().join(folder).join("src/main.rs"), &format!("{}// {nth}\n", plain()));
        assert_eq!(
            cargo(folder, arguments, variables).compiled.last().map(String::as_str),
            Some("elsewhere")
        );
        assert!(!copies("elsewhere", "cu").is_empty(), "{arguments:?} {variables:?}");
        assert!(!workspace().join(folder).join("target").exists(), "{arguments:?} {variables:?}");
        assert_eq!(
            cargo(folder, arguments, variables).compiled,
            [] as [&str; 0],
            "{arguments:?} {variables:?}"
        );
    }
}

#[test]
fn a_renamed_dependency_is_named_in_the_attribute() {
    let output = cargo("packages/renamed", &[], &[]).output();
    assert!(output.ends_with(" 0") && output != "0 0", "{output}");
}

/// Permissions do not stop an administrator, as whom tests may run; a file in the way stops everyone.
#[test]
fn copies_that_cannot_be_written_fail_no_build() {
    let folder = "packages/obstructed";
    let source = workspace().join(folder);
    for path in [source.join("src/main.rs"), source.join("build.rs"), source.join("src"), source.clone()] {
        set_read_only(&path, true);
    }
    let obstacle = workspace().join("target/kernwright/obstructed");
    let _ = fs::remove_dir_all(&obstacle);
    write(&obstacle, "a file in the way");
    cargo(folder, &[], &[]);
    assert!(obstacle.is_file());
    assert_eq!(cargo(folder, &[], &[]).compiled, [] as [&str; 0]);
    set_read_only(&source, false);
}

#[test]
fn a_build_script_brings_deleted_copies_back_and_is_then_at_rest() {
    let folder = "packages/scripted";
    cargo(folder, &[], &[]);
    let all = copies("scripted", "cu");
    let of =
        |model: &str| all.iter().filter(|path| path.to_string_lossy().contains(model)).collect::<Vec<_>>();
    assert!(of("Brain-").len() > of("Other-").len(), "{all:?}");
    assert_eq!(cargo(folder, &[], &[]).compiled, [] as [&str; 0]);
    fs::remove_file(of("Other-")[0]).expect("it was written");
    cargo(folder, &[], &[]);
    assert_eq!(copies("scripted", "cu"), all);
    assert_eq!(cargo(folder, &[], &[]).compiled, [] as [&str; 0]);
}

#[test]
fn kernels_compiled_by_the_build_script_are_in_the_program() {
    let Some(_) = testing::compiler_or_skip(env::vars_os(), "compiling kernels in a build script") else {
        return;
    };
    let folder = "packages/compiled";
    let first = cargo(folder, &[], &[]);
    assert!(!first.warnings.contains("warning"), "{}", first.warnings);
    let counts = |build: &Build| {
        let output = build.output();
        let counts: Vec<usize> = output.split(' ').map(|count| count.parse().expect("a number")).collect();
        (counts[0], counts[1])
    };
    let (n_kernels, n_cubins) = counts(&first);
    assert!(n_kernels > 0);
    assert_eq!(n_cubins, n_kernels);
    assert_eq!((copies("compiled", "cu").len(), copies("compiled", "cubin").len()), (n_kernels, n_kernels));
    let manifest = fs::read_to_string(&copies("compiled", "json")[0]).expect("it was written");
    let manifest: Value = serde_json::from_str(&manifest).expect("it is JSON");
    let kernels = manifest["kernels"].as_array().expect("there are some");
    assert!(kernels.iter().all(|kernel| kernel["registers"].as_u64().is_some_and(|n| n > 0)), "{manifest:#}");
    assert_eq!(cargo(folder, &[], &[]).compiled, [] as [&str; 0]);

    let main = workspace().join(folder).join("src/main.rs");
    write(&main, &plain().replace("d_ff = 64", "d_ff = 96"));
    let changed = cargo(folder, &[], &[]);
    assert_eq!(counts(&changed), (n_kernels, n_kernels));
    assert_eq!(copies("compiled", "cubin").len(), n_kernels);
    assert_eq!(cargo(folder, &[], &[]).compiled, [] as [&str; 0]);
}
