//! The command line: what was typed becomes a command, a command becomes an exit code.
//!
//! One file per command. Exit codes: 0 done, 1 failed (one line on standard error says why and what to do), 2 wrong
//! usage, 130 and 143 stopped by SIGINT and SIGTERM after saving.

mod cuda;
mod doctor;
mod generate;
mod gpu;
mod libraries;
mod plan;
mod shape;
mod table;
mod train;
mod units;

use crate::environment::Environment;
use crate::model::{Model, Source};
use crate::terminal;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::error::Error;
use std::process::ExitCode;

/// What a command returns: an exit code, or an error whose chain is printed.
type Outcome = Result<ExitCode, Box<dyn Error>>;

/// The model that a program was written for.
#[derive(Clone, Copy, Debug)]
struct Declared {
    name: &'static str,
    shape: &'static str,
    sources: &'static [Source],
}

#[derive(Debug, Parser)]
#[command(version, about = "Plans, trains and generates the CUDA of transformers of one exact shape")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a model on text; without flags, a tiny one on the built-in text, in two minutes
    Train(train::Arguments),
    /// Continue a prompt with a trained model
    Generate(generate::Arguments),
    /// Show the training step as a table: ops, FLOPs, bytes, roofline time, memory
    Plan(plan::Arguments),
    /// Write the CUDA of a model for a GPU, or compile it and report registers and spills
    Cuda(cuda::Arguments),
    /// Say what is there (GPU, driver, NVRTC, cuBLASLt, C++ compiler) and what to install
    Doctor(doctor::Arguments),
}

/// The command line of a program that declares one model: `fn main() -> ExitCode { cli::main::<Brain>() }`.
#[must_use]
pub fn main<M: Model>() -> ExitCode {
    run(Some(Declared { name: M::NAME, shape: M::SHAPE, sources: M::SOURCES }))
}

/// The command line of `kernwright` itself, over its presets.
#[must_use]
pub fn main_of_presets() -> ExitCode {
    run(None)
}

fn run(declared: Option<Declared>) -> ExitCode {
    let mut command = Cli::command();
    if let Some(declared) = declared {
        let about = format!("Plans, trains and generates the CUDA of `{}`", declared.name);
        // The program's own name is its file's.
        let name = std::env::args_os().next().map(std::path::PathBuf::from);
        let name = name.as_deref().and_then(|path| path.file_stem()).and_then(|stem| stem.to_str());
        command = command.about(about).bin_name(name.unwrap_or("model").to_owned());
    }
    let cli = command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let environment = Environment::read();
    let outcome = match cli.command {
        Command::Train(arguments) => train::run(&arguments, declared, &environment),
        Command::Generate(arguments) => generate::run(&arguments, declared, &environment),
        Command::Plan(arguments) => plan::run(&arguments, declared, &environment),
        Command::Cuda(arguments) => cuda::run(&arguments, declared, &environment),
        Command::Doctor(arguments) => doctor::run(&arguments, declared, &environment),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            terminal::note(&format!("error: {}", chain(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
