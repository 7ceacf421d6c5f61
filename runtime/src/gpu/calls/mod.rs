//! The calls into NVIDIA's driver that a [`Gpu`](super::Gpu) makes, each behind a function that returns a `Result`.
//!
//! In: numbers and bytes. Out: handles that give back what they hold when dropped. cudarc panics where a library or a
//! symbol is missing, so nothing here may be called before `opening` found both; it goes through `cudarc`'s `sys` layer
//! alone, whose other layers allocate events of their own. Must not know commands, plans or texts.

mod context;
mod graph;
mod memory;
mod module;
mod stream;
mod tensor_map;

pub(super) use context::Context;
pub(super) use graph::{Graph, between_captures};
pub(super) use memory::{DeviceMemory, Pinned};
pub(super) use module::Function;
pub(super) use stream::{Event, Stream, Timing};
pub(super) use tensor_map::tensor_map;

use crate::driver::DriverError;
use cudarc::driver::sys;
use std::ffi::{CStr, c_char};
use std::fmt;

/// A call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The function's name as NVIDIA's documents have it.
    pub(super) call: &'static str,
    pub(super) status: sys::CUresult,
}

impl Fault {
    /// The device has no room.
    pub(super) fn is_out_of_memory(self) -> bool {
        self.status == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY
    }

    /// Something that ran has failed, and no call succeeds from then on.
    pub(super) fn is_of_a_launch(self) -> bool {
        (700..800).contains(&(self.status as u32))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, meaning) = words(self.status);
        write!(f, "`{}` failed with `{name}`: {meaning}", self.call)
    }
}

impl From<Fault> for DriverError {
    fn from(fault: Fault) -> Self {
        DriverError::Failed(fault.to_string())
    }
}

fn checked(call: &'static str, status: sys::CUresult) -> Result<(), Fault> {
    if status == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(Fault { call, status }) }
}

/// The driver's name for a status, and what it says of it.
#[allow(unsafe_code)]
fn words(status: sys::CUresult) -> (String, String) {
    let text = |find: unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult| {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: `find` is one of the two functions below, which write one pointer, to a static text or null.
        let found = unsafe { find(status, &mut text) };
        if found != sys::CUresult::CUDA_SUCCESS || text.is_null() {
            return None;
        }
        // SAFETY: not null, static and terminated.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let name = text(sys::cuGetErrorName).unwrap_or_else(|| format!("CUresult {}", status as u32));
    (name, text(sys::cuGetErrorString).unwrap_or_else(|| "the driver says no more".to_owned()))
}
