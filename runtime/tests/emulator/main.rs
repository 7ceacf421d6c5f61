//! The emulator against models in Rust, and on broken kernels.

mod setup;
mod vocabulary;
