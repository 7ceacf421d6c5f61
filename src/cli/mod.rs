//! The command line: what was typed becomes a command, a command becomes an exit code.
//!
//! One file per command. Exit codes: 0 done, 1 failed (one line on standard error says why and what to do), 2 wrong
//! usage, 130 and 143 stopped by SIGINT and SIGTERM after saving.

mod attention_values;
mod bench;
mod check;
mod cuda;
mod device;
mod doctor;
mod generate;
mod gpu;
mod kernels;
mod libraries;
mod memory;
mod new;
mod obstacle;
mod plan;
mod plan_flags;
mod profile;
mod progress;
mod shape;
mod shell;
mod signals;
mod table;
mod tables;
mod train;
mod tune;
mod units;

use crate::environment::Environment;
use crate::model::{Cubin, Model, Source};
use crate::terminal;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use kernwright_plan::chain;
use std::error::Error;
use std::process::ExitCode;

/// What a command returns: an exit code, or an error whose chain is printed.
type Outcome = Result<ExitCode, Box<dyn Error>>;

/// The model that a program was written for.
#[derive(Clone, Copy, Debug)]
struct Declared {
    name: &'static str,
    shape: &'static str,
    targets: &'static str,
    sources: &'static [Source],
    cubins: &'static [Cubin],
}

#[derive(Debug, Parser)]
#[command(version, about = "Plans, trains and generates the CUDA of transformers of one exact shape")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train on text: your own, or without --data on the built-in one
    Train(Box<train::Arguments>),
    /// Continue a prompt with a trained model
    Generate(generate::Arguments),
    /// Measure training steps and their parts, and compare with an earlier time
    Bench(bench::Arguments),
    /// Show the training step as a table: ops, FLOPs, bytes, roofline time, memory
    Plan(Box<plan::Arguments>),
    /// Show where the time of a training step goes, kernel by kernel
    Profile(Box<profile::Arguments>),
    /// Find the fastest tiles of generated kernels on this GPU, and write the table from which they are generated
    Tune(Box<tune::Arguments>),
    /// Write the CUDA of a model for a GPU, or compile it and report registers and spills
    Cuda(cuda::Arguments),
    /// Run every kernel of a model on the CPU, thread by thread, and hold it to its op's definition
    Check(check::Arguments),
    /// Print a model as attributes, as TOML or as text, or list its parameters
    Shape(shape::show::Arguments),
    /// Create a crate of your own with a model
    New(new::Arguments),
    /// Say what is there (GPU, driver, NVRTC, cuBLASLt, C++ compiler) and what to install
    Doctor(doctor::Arguments),
}

/// The command line of a program that declares one model: `fn main() -> ExitCode { cli::main::<Brain>() }`.
#[must_use]
pub fn main<M: Model>() -> ExitCode {
    run(Some(Declared {
        name: M::NAME,
        shape: M::SHAPE,
        targets: M::TARGETS,
        sources: M::SOURCES,
        cubins: M::CUBINS,
    }))
}

/// The command line of `kernwright` itself, over its presets.
#[must_use]
pub fn main_of_presets() -> ExitCode {
    run(None)
}

/// The program as the user called it.
fn called_as() -> String {
    std::env::args().next().unwrap_or_else(|| "kernwright".to_owned())
}

/// The program as the user called it: what can be pasted back into the terminal.
fn program() -> String {
    shell::word(&called_as())
}

/// The command line; in a user's own program, its model and name stand where ours do.
fn command(declared: Option<Declared>) -> clap::Command {
    let mut command = Cli::command();
    let Some(declared) = declared else { return command };
    let path = std::path::PathBuf::from(called_as());
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("model").to_owned();
    command = called(command, &name);
    let about = format!("Plans, trains and generates the CUDA of `{}`", declared.name);
    command.about(about).bin_name(name)
}

/// The command and those below it, with the program's name in their examples.
fn called(mut command: clap::Command, name: &str) -> clap::Command {
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(text.replace("kernwright ", &format!("{name} ")));
    }
    let below: Vec<String> =
        command.get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect();
    for subcommand in below {
        command = command.mut_subcommand(subcommand, |subcommand| called(subcommand, name));
    }
    command
}

fn run(declared: Option<Declared>) -> ExitCode {
    let environment = Environment::read();
    let mut command = command(declared);
    // The library colours a dumb terminal where CI is set.
    if environment.no_color || environment.dumb_terminal {
        command = command.color(clap::ColorChoice::Never);
    }
    let cli = command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let outcome = match cli.command {
        Command::Train(arguments) => train::run(&arguments, declared, &environment),
        Command::Generate(arguments) => generate::run(&arguments, declared, &environment),
        Command::Bench(arguments) => bench::run(&arguments, declared, &environment),
        Command::Plan(arguments) => plan::run(&arguments, declared, &environment),
        Command::Profile(arguments) => profile::run(&arguments, declared, &environment),
        Command::Tune(arguments) => tune::run(&arguments, declared, &environment),
        Command::Cuda(arguments) => cuda::run(&arguments, declared, &environment),
        Command::Check(arguments) => check::run(&arguments, declared, &environment),
        Command::Shape(arguments) => shape::show::run(&arguments, declared, &environment),
        Command::New(arguments) => new::run(&arguments, declared, &environment),
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
