//! Kernwright's runtime: what runs a plan.
//!
//! In: a plan of `kernwright-plan`. Out: its buffers, computed. [`cpu::Cpu`] is the multi-threaded executor on the
//! host; [`cuda::Cuda`] launches generated kernels through a [`driver::Driver`]: [`gpu::Gpu`] is NVIDIA's, and
//! [`emulator::Emulator`] runs them on the host; [`queue`] runs plans over buffers of the caller's;
//! [`Profile`] says where time goes. Must not know models, data or where files lie.

pub mod cpu;
pub mod cuda;
pub mod driver;
pub mod emulator;
pub mod gpu;
pub mod product;
pub mod profile;
pub mod queue;
mod tensor_map;

pub use cpu::Cpu;
pub use cuda::Cuda;
pub use gpu::Gpu;
pub use profile::Profile;
pub use queue::{DeviceBuffer, Element, Queue};
