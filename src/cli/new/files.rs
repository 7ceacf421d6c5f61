//! The files of a new crate, as text.

use super::super::shape::Named;
use super::super::shape::show::{attributes, struct_name};
use super::super::units;

/// How the new crate depends on this one.
pub(super) enum Dependency {
    /// On a source folder.
    Path(String),
    /// On a published version.
    Version(&'static str),
}

impl Dependency {
    fn toml(&self) -> String {
        match self {
            Self::Path(path) => format!("{} = {{ path = {} }}", env!("CARGO_PKG_NAME"), quoted(path)),
            Self::Version(version) => format!("{} = \"{version}\"", env!("CARGO_PKG_NAME")),
        }
    }
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    // What TOML and JSON escape alike.
    serde_json::Value::from(text).to_string()
}

/// What the files are about.
pub(super) struct Project<'a> {
    pub(super) name: &'a str,
    /// The Shape, under the crate's name.
    pub(super) model: &'a Named,
    pub(super) dependency: &'a Dependency,
    /// Does it lie in a folder of another package? Then it says that it is no part of it.
    pub(super) is_below_another: bool,
    pub(super) build_script: bool,
}

impl Project<'_> {
    /// Name and text of each.
    pub(super) fn files(&self) -> Result<Vec<(&'static str, String)>, String> {
        let mut files = vec![
            ("Cargo.toml", self.manifest()),
            ("src/main.rs", self.main()?),
            ("README.md", self.readme()),
            (".gitignore", "/target/\n/runs/\n".to_owned()),
        ];
        if self.build_script {
            files.push(("build.rs", BUILD_SCRIPT.to_owned()));
        }
        Ok(files)
    }

    fn manifest(&self) -> String {
        let Self { name, .. } = self;
        let dependency = self.dependency.toml();
        let mut text = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n\
             [dependencies]\n{dependency}\n"
        );
        if self.build_script {
            text.push_str(&format!("\n[build-dependencies]\n{dependency}\n"));
        }
        text.push_str(PROFILES);
        if self.is_below_another {
            text.push_str("\n# No part of the package in a folder above.\n[workspace]\n");
        }
        text
    }

    fn main(&self) -> Result<String, String> {
        let model = struct_name(&self.model.name);
        let attributes = attributes(self.model)?;
        let parameters = units::grouped(self.model.shape.n_parameters());
        Ok(format!(
            "//! `{model}`, and a command line that plans, trains and runs exactly it: `cargo run -- --help`.\n\n\
             /// {parameters} parameters.\n{attributes}\n\
             fn main() -> std::process::ExitCode {{\n    kernwright::cli::main::<{model}>()\n}}\n"
        ))
    }

    fn readme(&self) -> String {
        let Self { name, .. } = self;
        let model = struct_name(&self.model.name);
        let vocab = self.model.shape.vocab;
        format!(
            "# {name}\n\n\
             A transformer, `{model}`, declared in the attributes of a struct in `src/main.rs`. Building the crate \
             generates CUDA for\nexactly that shape; the program plans, trains and runs it.\n\n{}\n\
             Your own text is trained on with `train --data FILE` or a folder of text files; tokens of your own \
             tokenizer, below\n{vocab}, come in `.bin` shards of 16-bit numbers. A run writes its losses, a plot of \
             them and its checkpoints below `runs/`;\n`train --resume runs/{model}` continues it.\n\n\
             The generated kernels lie in `target/kernwright/{name}/`, to be read. Change a number in `src/main.rs` and \
             they are generated\nanew; batch size and sequence length are chosen when the program runs.\n",
            self.commands("    ")
        )
    }

    /// What to do with it.
    pub(super) fn commands(&self, indent: &str) -> String {
        let model = struct_name(&self.model.name);
        let generate = format!("generate --checkpoint runs/{model} --prompt \"The \"");
        let commands = [
            ("plan", "the training step as a table"),
            ("train", "on the built-in text"),
            (&*generate, "continue a prompt"),
            ("cuda --list", "the generated kernels; `cuda --show NAME` prints one"),
            ("doctor", "what this machine has and lacks"),
        ];
        let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
        let line =
            |(command, about): &(&str, &str)| format!("{indent}cargo run -- {command:width$}   # {about}\n");
        commands.iter().map(line).collect()
    }
}

const PROFILES: &str = "
# So that a plain `cargo run` trains at full speed.
[profile.dev]
opt-level = 3
debug = \"line-tables-only\"

[profile.dev.package.\"*\"]
opt-level = 3
debug = false
";

const BUILD_SCRIPT: &str = "\
//! Compiles the kernels of the models in `src/main.rs` ahead of time, where NVRTC is found.

fn main() {
    kernwright::build::run(&[\"src/main.rs\"]);
}
";
