//! The emulator against models in Rust, and on broken kernels.

mod matrices;
mod planted;
mod setup;
mod vocabulary;
