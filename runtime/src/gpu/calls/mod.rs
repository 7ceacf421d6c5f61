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
use kernwright_compile::Loaded;
use std::ffi::{CStr, c_char, c_void};
use std::fmt;

/// Every function that is called here: cudarc panics where one is missing.
const FUNCTIONS: &[&str] = &[
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime_v2",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuEventSynchronize",
    "cuFuncGetParamInfo",
    "cuFuncLoad",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD32Async",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuTensorMapEncodeTiled",
];

/// Whether the driver can be called: it has every function, and is found by its name, which is all that cudarc knows of it.
#[allow(unsafe_code)]
pub(super) fn check(driver: &Loaded) -> Result<(), String> {
    for name in FUNCTIONS {
        // SAFETY: the address of a function is copied, and never called.
        unsafe { driver.symbol::<*const c_void>(name) }.map_err(|error| error.to_string())?;
    }
    // SAFETY: opens a library that is open already, or NVIDIA's driver.
    match unsafe { sys::is_culib_present() } {
        true => Ok(()),
        false => Err(format!(
            "`{}` is loaded, but not found by the name `libcuda.so`: it must be NVIDIA's own driver",
            driver.path.display()
        )),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_function_that_is_called_is_looked_for_first() {
        let sources = [
            include_str!("context.rs"),
            include_str!("graph.rs"),
            include_str!("memory.rs"),
            include_str!("mod.rs"),
            include_str!("module.rs"),
            include_str!("stream.rs"),
            include_str!("tensor_map.rs"),
        ];
        let is_function = |name: &&str| {
            name.starts_with("cu") && name.chars().nth(2).is_some_and(|third| third.is_ascii_uppercase())
        };
        let names = sources.iter().flat_map(|source| source.split("sys::").skip(1)).map(|rest| {
            rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
        });
        let called: BTreeSet<&str> = names.filter(is_function).collect();
        assert_eq!(called, FUNCTIONS.iter().copied().collect());
        let modules = include_str!("mod.rs").lines().filter(|line| line.starts_with("mod "));
        assert_eq!(modules.count(), sources.len(), "each module and this one, whose own is `tests`");
    }
}
