//! Streams, the orders in which a device does things, and events, points in them.
// Calls into the driver.
#![allow(unsafe_code)]

use super::{Fault, checked};
use cudarc::driver::sys;

/// Things that are done one after the other, beside those of other streams.
#[derive(Debug)]
pub(in crate::gpu) struct Stream(sys::CUstream);

impl Stream {
    /// One that does not wait for the default stream, nor it for this one.
    pub(in crate::gpu) fn new() -> Result<Self, Fault> {
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the pointer outlives the call.
        checked("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
        Ok(Self(stream))
    }

    pub(in crate::gpu) fn raw(&self) -> sys::CUstream {
        self.0
    }

    /// Waits until all that was asked for is done.
    pub(in crate::gpu) fn synchronize(&self) -> Result<(), Fault> {
        // SAFETY: the stream is held.
        checked("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.0) })
    }

    /// Lets what is asked for from now on wait for an event of another stream.
    pub(in crate::gpu) fn wait(&self, event: &Event) -> Result<(), Fault> {
        // SAFETY: both are held; the flags must be 0.
        checked("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.0, event.0, 0) })
    }

    /// Copies bytes within the device.
    pub(in crate::gpu) fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), Fault> {
        // SAFETY: addresses of the device; it finds fault with others by itself.
        checked("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.0) })
    }

    /// Sets bytes of the device to zero.
    pub(in crate::gpu) fn zero(&self, at: u64, bytes: usize) -> Result<(), Fault> {
        // Words are several times as fast as bytes.
        if at.is_multiple_of(4) && bytes.is_multiple_of(4) {
            // SAFETY: as for `copy`.
            return checked("cuMemsetD32Async", unsafe { sys::cuMemsetD32Async(at, 0, bytes / 4, self.0) });
        }
        // SAFETY: as for `copy`.
        checked("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(at, 0, bytes, self.0) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: it was made once. What the driver says of it changes nothing.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.0) };
    }
}

/// Does an event know when it was reached?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gpu) enum Timing {
    On,
    /// Cheaper.
    Off,
}

/// A point in a stream.
#[derive(Debug)]
pub(in crate::gpu) struct Event(sys::CUevent);

impl Event {
    pub(in crate::gpu) fn new(timing: Timing) -> Result<Self, Fault> {
        let mut event = std::ptr::null_mut();
        let flags = match timing {
            Timing::On => sys::CUevent_flags::CU_EVENT_DEFAULT,
            Timing::Off => sys::CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        // SAFETY: the pointer outlives the call.
        checked("cuEventCreate", unsafe { sys::cuEventCreate(&mut event, flags as u32) })?;
        Ok(Self(event))
    }

    /// Puts it after all that was asked for so far.
    pub(in crate::gpu) fn record(&self, stream: &Stream) -> Result<(), Fault> {
        // SAFETY: both are held.
        checked("cuEventRecord", unsafe { sys::cuEventRecord(self.0, stream.raw()) })
    }

    /// The same within a sequence that is being captured: each run of it reaches the event anew.
    pub(in crate::gpu) fn record_in_capture(&self, stream: &Stream) -> Result<(), Fault> {
        let flags = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: both are held, and a `Gpu` drops its graphs before its events.
        checked("cuEventRecordWithFlags", unsafe { sys::cuEventRecordWithFlags(self.0, stream.raw(), flags) })
    }

    /// Waits until it is reached.
    pub(in crate::gpu) fn synchronize(&self) -> Result<(), Fault> {
        // SAFETY: it is held.
        checked("cuEventSynchronize", unsafe { sys::cuEventSynchronize(self.0) })
    }

    /// Seconds from this one to a later one; both know the time and are reached.
    pub(in crate::gpu) fn seconds_until(&self, later: &Event) -> Result<f64, Fault> {
        let mut milliseconds = 0.0;
        // SAFETY: both are held; the pointer outlives the call.
        checked("cuEventElapsedTime", unsafe {
            sys::cuEventElapsedTime_v2(&mut milliseconds, self.0, later.0)
        })?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it was made once. What the driver says of it changes nothing.
        let _ = unsafe { sys::cuEventDestroy_v2(self.0) };
    }
}
