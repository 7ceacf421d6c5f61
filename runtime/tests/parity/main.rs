//! The CPU executor against the reference: every op, and whole training steps.
#![allow(clippy::print_stdout)]

mod bits;
mod comparison;
mod errors;
mod ops;
mod setup;
mod training;
