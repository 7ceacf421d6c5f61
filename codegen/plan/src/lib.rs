//! Kernwright's plan: what a transformer's training step consists of, as data.
//!
//! In: fields of a declaration. Out: a [`shape::Shape`], a [`plan::Plan`] of ops over buffers, and for each op the
//! kernel it needs ([`spec::KernelSpec`]) and how to launch it. Pure functions: this crate knows no files, no
//! template engine, no macro, no GPU library and no threads.

pub mod arch;
pub mod attention_step;
pub mod buffer;
pub mod card;
#[cfg(feature = "reference")]
pub mod case;
mod chain;
pub mod cost;
pub mod dtype;
pub mod excerpt;
pub mod executor;
pub mod field;
pub mod float;
pub mod gpu;
pub mod kernels;
pub mod launch;
#[cfg(feature = "reference")]
pub mod lockstep;
pub mod measure;
pub mod nearest;
pub mod occupancy;
pub mod ops;
pub mod options;
pub mod passes;
pub mod plan;
#[cfg(feature = "reference")]
pub mod reference;
pub mod shape;
pub mod spec;
pub mod tape;
pub mod tensor_map;
pub mod tile;
pub mod tuning;

pub use attention_step::attention_step;
pub use chain::chain;
pub use kernels::kernels;
pub use options::Options;
pub use passes::{forward_step, train_step};
