//! Memory, copies and times on the GPU, as far as choosing an algorithm needs them.
//!
//! In: sizes, bytes, a stream. Out: addresses, bytes, seconds. The context of the GPU must be current on the thread.
// Calls into the driver.
#![allow(unsafe_code)]

use super::functions::{Driver, Status};
use crate::driver::DriverError;
use cudarc::driver::sys::{CUDA_MEMCPY2D, CUevent, CUmemorytype, CUstream};
use std::ffi::CStr;
use std::rc::Rc;

/// The GPU of the current context.
#[derive(Clone, Debug)]
pub(super) struct Device {
    functions: Rc<Driver>,
}

/// Memory of the GPU, given back when dropped.
#[derive(Debug)]
pub(super) struct Block {
    device: Device,
    /// Address of its first byte, a multiple of 256.
    pub(super) at: u64,
    /// How many.
    pub(super) bytes: usize,
}

/// Rows of bytes on the GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteRows {
    pub(super) at: u64,
    /// From one row to the next.
    pub(super) pitch: usize,
    /// Bytes of a row that count.
    pub(super) width: usize,
    pub(super) n_rows: usize,
}

impl Device {
    pub(super) fn new(functions: Driver) -> Self {
        Self { functions: Rc::new(functions) }
    }

    fn check(&self, what: &str, status: Status) -> Result<(), DriverError> {
        if status == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: the pointer is written; a text lives as long as the library.
        let known = unsafe { (self.functions.status_text)(status, &raw mut text) } == 0 && !text.is_null();
        // SAFETY: a text of the library, which ends in a NUL.
        let words = known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
        let words = words.unwrap_or_else(|| "an unknown failure".to_owned());
        Err(DriverError::Failed(format!("the GPU failed to {what}: {words} (status {status})")))
    }

    /// Takes memory.
    pub(super) fn allocate(&self, name: &str, bytes: usize) -> Result<Block, DriverError> {
        let mut at = 0;
        // SAFETY: the pointer is written.
        let status = unsafe { (self.functions.allocate)(&raw mut at, bytes.max(1)) };
        match status {
            0 => Ok(Block { device: self.clone(), at, bytes }),
            // CUDA_ERROR_OUT_OF_MEMORY.
            2 => Err(DriverError::Memory { name: name.to_owned(), bytes }),
            _ => Err(self.check("allocate", status).err().unwrap_or(DriverError::Failed(name.to_owned()))),
        }
    }

    /// Sets bytes.
    pub(super) fn fill(&self, at: u64, byte: u8, bytes: usize, stream: CUstream) -> Result<(), DriverError> {
        // SAFETY: takes an address of the GPU, which the GPU itself checks.
        self.check("set memory", unsafe { (self.functions.fill)(at, byte, bytes, stream) })
    }

    /// Copies bytes of the GPU to bytes of the GPU that do not overlap them.
    pub(super) fn copy(&self, to: u64, from: u64, bytes: usize, stream: CUstream) -> Result<(), DriverError> {
        // SAFETY: takes addresses of the GPU, which the GPU itself checks.
        self.check("copy", unsafe { (self.functions.copy)(to, from, bytes, stream) })
    }

    /// Writes `pattern` again and again into `bytes` bytes.
    pub(super) fn repeat(
        &self,
        at: u64,
        pattern: &[u8],
        bytes: usize,
        stream: CUstream,
    ) -> Result<(), DriverError> {
        let mut done = pattern.len().min(bytes);
        // SAFETY: `done` bytes of the host are read; pageable memory is read before the call returns.
        let status = unsafe { (self.functions.upload)(at, pattern.as_ptr().cast(), done, stream) };
        self.check("upload", status)?;
        while done > 0 && done < bytes {
            let next = done.min(bytes - done);
            self.copy(at + done as u64, at, next, stream)?;
            done += next;
        }
        Ok(())
    }

    /// Rows on the host, without gaps, once all that was asked for before is done.
    pub(super) fn download(&self, rows: ByteRows, stream: CUstream) -> Result<Vec<u8>, DriverError> {
        let mut bytes = vec![0_u8; rows.width * rows.n_rows];
        let copy = CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: rows.at,
            srcArray: std::ptr::null_mut(),
            srcPitch: rows.pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: bytes.as_mut_ptr().cast(),
            dstDevice: 0,
            dstArray: std::ptr::null_mut(),
            dstPitch: rows.width,
            WidthInBytes: rows.width,
            Height: rows.n_rows,
        };
        // SAFETY: the destination has room for every row, and lives until the stream is waited for.
        let status = unsafe { (self.functions.copy_rows)(&raw const copy, stream) };
        self.check("download", status)?;
        self.wait(stream)?;
        Ok(bytes)
    }

    /// Waits until all that was asked of a stream is done.
    pub(super) fn wait(&self, stream: CUstream) -> Result<(), DriverError> {
        // SAFETY: the caller's stream.
        self.check("finish", unsafe { (self.functions.wait)(stream) })
    }

    /// Seconds that what `ask` asks of the stream takes.
    pub(super) fn seconds(
        &self,
        stream: CUstream,
        ask: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<f64, DriverError> {
        let (from, to) = (self.event()?, self.event()?);
        self.record(&from, stream)?;
        ask()?;
        self.record(&to, stream)?;
        self.wait(stream)?;
        let mut milliseconds = 0.0;
        // SAFETY: both events were reached; the pointer is written.
        let status =
            unsafe { (self.functions.event_milliseconds)(&raw mut milliseconds, from.event, to.event) };
        self.check("take a time", status)?;
        Ok(f64::from(milliseconds) / 1e3)
    }

    fn event(&self) -> Result<Event, DriverError> {
        let mut event = std::ptr::null_mut();
        // SAFETY: the pointer is written; 0 are the flags of an event that takes the time.
        self.check("make an event", unsafe { (self.functions.event_create)(&raw mut event, 0) })?;
        Ok(Event { device: self.clone(), event })
    }

    fn record(&self, event: &Event, stream: CUstream) -> Result<(), DriverError> {
        // SAFETY: an event that lives, and the caller's stream.
        self.check("record an event", unsafe { (self.functions.event_record)(event.event, stream) })
    }
}

struct Event {
    device: Device,
    event: CUevent,
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: nobody else has it. A failure leaks it.
        let _ = unsafe { (self.device.functions.event_destroy)(self.event) };
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: nobody else has it. A failure leaks it.
        let _ = unsafe { (self.device.functions.free)(self.at) };
    }
}
