//! The emulator against models in Rust, and on broken kernels.

mod counters;
mod matrices;
mod planted;
mod setup;
mod vocabulary;
