//! The program `kernwright`: the command line over the presets.

use std::process::ExitCode;

fn main() -> ExitCode {
    kernwright::cli::main_of_presets()
}
