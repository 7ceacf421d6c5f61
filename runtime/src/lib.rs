//! Kernwright's runtime: what runs a plan.
//!
//! In: a plan of `kernwright-plan`. Out: its buffers, computed. [`cpu::Cpu`] is the multi-threaded executor on the
//! host; [`Profile`] says where its time goes. Must not know models, data or files.

pub mod cpu;
pub mod profile;

pub use cpu::Cpu;
pub use profile::Profile;
