//! Kernwright's runtime: what runs a plan.
//!
//! In: a plan of `kernwright-plan`. Out: its buffers, computed. [`cpu::Cpu`] is the multi-threaded executor on the
//! host. Must not know models, data or files.

pub mod cpu;

pub use cpu::Cpu;
