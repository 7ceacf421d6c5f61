//! The emulator against models in Rust, and on broken kernels.

mod matrices;
mod setup;
mod vocabulary;
