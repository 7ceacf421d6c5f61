//! `bench`: what a training step and its parts take on this machine.
//!
//! One file per subcommand; `setting` holds the flags that decide what a step is, `training` runs it, `figures` are what
//! comes out.

mod ablation;
mod attention;
mod baseline;
mod case;
mod figures;
mod gemm;
mod loaded;
mod neighbours;
mod peers;
mod record;
mod setting;
mod step;
mod sweep;
mod training;

pub(super) use case::Case;
pub(super) use figures::Spread;
pub(super) use setting::{Prepared, Setting};
pub(super) use training::{Data, LEARNING_RATE, Training};

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
    /// Whole training steps: tokens/s, share of the peak, memory
    Step(Box<step::Arguments>),
    /// The same over several shapes and batches, one process each
    Sweep(Box<sweep::Arguments>),
    /// The kernels of attention alone, over a table of shapes or one of your own
    Attention(Box<attention::Arguments>),
    /// Each shape of matrix product: the library's first algorithm and the fastest, share of the peak
    Gemm(gemm::Arguments),
}

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, environment: &Environment) -> Outcome {
    match &arguments.command {
        Command::Step(arguments) => step::run(arguments, declared, environment),
        Command::Sweep(arguments) => sweep::run(arguments, declared, environment),
        Command::Attention(arguments) => attention::run(arguments, declared, environment),
        Command::Gemm(arguments) => gemm::run(arguments, declared, environment),
    }
}
