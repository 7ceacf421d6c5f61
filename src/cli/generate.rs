//! `generate`.

use super::{Declared, Outcome};
use crate::environment::Environment;
use clap::Args;

/// Flags of `generate`.
#[derive(Clone, Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    shape: super::shape::ShapeArguments,
}

/// Runs it.
pub(super) fn run(
    _arguments: &Arguments,
    _declared: Option<Declared>,
    _environment: &Environment,
) -> Outcome {
    Err("not there yet".into())
}
