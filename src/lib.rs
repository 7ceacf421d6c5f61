//! Kernwright: declare a transformer's shape in attributes on a struct, get the training step for exactly that shape.
//!
//! In: a struct with `#[derive(Transformer)]`. Out: the CUDA its shape needs, below target/kernwright, and a program
//! that plans, trains and generates ([`cli::main`]). With `#[derive(Attention)]`, attention alone: calls for a program with a
//! training loop of its own ([`attention`]). This crate is a facade: it knows terminals, exit codes and the
//! environment, and leaves the rest to the crates behind it.
//!
//! ```
//! use kernwright::Transformer;
//!
//! #[derive(Transformer)]
//! #[model(vocab = 256, context = 128, d_model = 64, layers = 2, tied, norm = rms(eps = 1e-5), precision = bf16)]
//! #[attention(heads = 4, kv_heads = 2, head_dim = 16, rope(theta = 10_000.0), causal)]
//! #[feed_forward(swiglu, d_ff = 176)]
//! #[target(sm_86, sm_90a)]
//! pub struct Brain;
//!
//! use kernwright::Model;
//! assert!(Brain::SHAPE.contains("attention.kv_heads = 2"));
//! ```

pub mod attention;
pub mod cli;
mod device;
mod environment;
mod error;
mod model;
mod terminal;

pub use attention::Attention;
pub use device::{Device, DeviceKind};
pub use error::Error;
pub use half::{bf16, f16};
pub use kernwright_macros::{Attention, Transformer};
pub use kernwright_runtime::queue::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Element};
pub use model::{Cubin, Model, Source};

/// The optional build script: `kernwright::build::run(&["src/main.rs"])`.
#[cfg(feature = "render")]
pub use kernwright_build as build;
