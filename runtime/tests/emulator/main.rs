//! The emulator against models in Rust, and on broken kernels.

mod cache;
mod clusters;
mod counters;
mod launches;
mod matrices;
mod mbarriers;
mod planted;
mod setup;
mod tensor_maps;
mod vocabulary;
mod warpgroups;
