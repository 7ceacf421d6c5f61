//! Memory of the device, and pages of the host that it copies from and to by itself.
// Calls into the driver, and host memory that it gives.
#![allow(unsafe_code)]

use super::{Fault, Stream, checked};
use cudarc::driver::sys;
use std::ffi::c_void;
use std::ptr::NonNull;

/// An allocation on the device. Plain and not managed: its place never changes.
#[derive(Debug)]
pub(in crate::gpu) struct DeviceMemory {
    address: u64,
    bytes: usize,
}

impl DeviceMemory {
    /// Takes so many bytes, at least one. They are aligned to 256 bytes, as every allocation of CUDA is.
    pub(in crate::gpu) fn take(bytes: usize) -> Result<Self, Fault> {
        let mut address = 0;
        // SAFETY: the pointer outlives the call.
        checked("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&mut address, bytes.max(1)) })?;
        Ok(Self { address, bytes })
    }

    pub(in crate::gpu) fn address(&self) -> u64 {
        self.address
    }

    pub(in crate::gpu) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: it was allocated once. The driver waits for what uses it; what it says changes nothing.
        let _ = unsafe { sys::cuMemFree_v2(self.address) };
    }
}

/// Host memory that does not move, so that copies run while the host goes on.
#[derive(Debug)]
pub(in crate::gpu) struct Pinned {
    start: NonNull<u8>,
    bytes: usize,
}

impl Pinned {
    pub(in crate::gpu) fn take(bytes: usize) -> Result<Self, Fault> {
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: the pointer outlives the call; no flags: the host reads what comes back.
        let status = unsafe { sys::cuMemHostAlloc(&mut start, bytes, 0) };
        checked("cuMemHostAlloc", status)?;
        let fault = Fault { call: "cuMemHostAlloc", status: sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY };
        let start = NonNull::new(start.cast::<u8>()).ok_or(fault)?;
        // SAFETY: the driver has just given so many bytes, which nobody else knows of.
        unsafe { start.as_ptr().write_bytes(0, bytes) };
        Ok(Self { start, bytes })
    }

    /// Puts bytes of the host there.
    ///
    /// # Panics
    /// When they reach past the end.
    pub(in crate::gpu) fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: within the allocation, as was just checked; a copy by the device reads other bytes, or these after.
        unsafe { self.start.as_ptr().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies bytes from there.
    ///
    /// # Panics
    /// When they reach past the end.
    pub(in crate::gpu) fn get(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        // SAFETY: within the allocation, as was just checked.
        unsafe { self.start.as_ptr().add(offset).copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Asks for a copy of bytes from here to the device. They must stay as they are until `stream` has passed it.
    ///
    /// # Panics
    /// When they reach past the end.
    pub(in crate::gpu) fn upload(
        &self,
        offset: usize,
        bytes: usize,
        to: u64,
        stream: &Stream,
    ) -> Result<(), Fault> {
        self.check(offset, bytes);
        // SAFETY: the source is within the allocation, which outlives the copy: a `Gpu` waits for its device before it
        // drops anything.
        checked("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(to, self.start.as_ptr().add(offset).cast(), bytes, stream.raw())
        })
    }

    /// Asks for a copy of bytes of the device to here. They are there once `stream` has passed it.
    ///
    /// # Panics
    /// When they reach past the end.
    pub(in crate::gpu) fn download(
        &self,
        offset: usize,
        bytes: usize,
        from: u64,
        stream: &Stream,
    ) -> Result<(), Fault> {
        self.check(offset, bytes);
        // SAFETY: as for `upload`; nobody holds a reference to these bytes.
        checked("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(self.start.as_ptr().add(offset).cast(), from, bytes, stream.raw())
        })
    }

    fn check(&self, offset: usize, bytes: usize) {
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(fits, "{bytes} bytes from {offset} on of {} pinned ones", self.bytes);
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: it was allocated once. What the driver says of it changes nothing.
        let _ = unsafe { sys::cuMemFreeHost(self.start.as_ptr().cast()) };
    }
}
