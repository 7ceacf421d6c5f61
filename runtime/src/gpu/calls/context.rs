//! A device and its context.
// Calls into the driver.
#![allow(unsafe_code)]

use super::{Fault, checked};
use cudarc::driver::sys;
use std::ffi::c_int;

/// The primary context of a device, which the libraries that run beside us share.
#[derive(Debug)]
pub(in crate::gpu) struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
}

impl Context {
    /// Makes or joins it, and binds it to this thread.
    pub(in crate::gpu) fn open(index: u32) -> Result<Self, Fault> {
        let index = c_int::try_from(index).unwrap_or(c_int::MAX);
        let (mut device, mut context) = (0, std::ptr::null_mut());
        // SAFETY: the flags must be 0; the pointers outlive the calls.
        unsafe {
            checked("cuInit", sys::cuInit(0))?;
            checked("cuDeviceGet", sys::cuDeviceGet(&mut device, index))?;
            checked("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
        }
        let context = Self { device, context };
        context.bind()?;
        Ok(context)
    }

    /// Makes it the one that calls of this thread go to. Cheap where it is already.
    pub(in crate::gpu) fn bind(&self) -> Result<(), Fault> {
        // SAFETY: the context is held.
        checked("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context) })
    }

    /// Bytes that are free, and all there are.
    pub(in crate::gpu) fn memory(&self) -> Result<(u64, u64), Fault> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers outlive the call.
        checked("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok((free as u64, total as u64))
    }

    /// What tells this very device from others of its kind, in the form that NVIDIA's tools print.
    pub(in crate::gpu) fn uuid(&self) -> Result<String, Fault> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the pointer outlives the call.
        checked("cuDeviceGetUuid", unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, self.device) })?;
        let mut text = "GPU".to_owned();
        for (index, byte) in uuid.bytes.iter().enumerate() {
            let dash = if [0, 4, 6, 8, 10].contains(&index) { "-" } else { "" };
            text.push_str(&format!("{dash}{:02x}", *byte as u8));
        }
        Ok(text)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once. What the driver says of it changes nothing.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}
