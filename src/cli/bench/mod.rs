//! `bench`: what a training step and its parts take on this machine.
//!
//! One file per subcommand.

mod gemm;

use super::{Declared, Outcome};
use crate::environment::Environment;
use clap::{Args, Subcommand};

/// Flags of `bench`.
#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Each shape of matrix product: the library's first algorithm and the fastest, share of the peak
    Gemm(gemm::Arguments),
}

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, environment: &Environment) -> Outcome {
    match &arguments.command {
        Command::Gemm(arguments) => gemm::run(arguments, declared, environment),
    }
}
