//! CUDA text goes in, cubins and their resource reports come out.
//!
//! This crate finds NVIDIA's libraries ([`Places`] -> [`Libraries`]), compiles CUDA C++ with NVRTC
//! ([`Compiler`]), keeps cubins on disk ([`Cache`]), does both for many kernels at once ([`compile_all`]) and
//! collects the facts behind `kernwright doctor` ([`probe`]). It finds the host's C++ compiler too ([`HostCompiler`]).
//! It starts, and says what is missing, on a machine that has none of them. It must not know ops or plans, must not
//! read the environment (the caller hands variables in as data) and must not print.

mod cache;
mod command;
mod error;
mod hash;
mod host;
mod libraries;
mod nvrtc;
mod places;
mod probe;
mod report;
mod resources;
#[doc(hidden)]
pub mod testing;

pub use cache::{Cache, CacheKey};
pub use error::Error;
pub use hash::Hash;
pub use host::HostCompiler;
pub use libraries::{Found, Libraries, Library, Loaded, NEWEST_MAJOR, Version};
pub use nvrtc::{Compiled, Compiler, Source};
pub use places::{Origin, Place, Places};
pub use probe::{Fact, Gpu, Probe, driver_version, gpus, probe, usable_libraries};
pub use report::{Progress, Report, compile_all};
pub use resources::{Resources, notes, resources};
