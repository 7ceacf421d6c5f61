//! The emulator against models in Rust, and on broken kernels.

mod cache;
mod counters;
mod launches;
mod matrices;
mod planted;
mod setup;
mod vocabulary;
