//! A captured sequence of commands.
// Calls into the driver.
#![allow(unsafe_code)]

use super::{Fault, Stream, checked};
use cudarc::driver::sys;
use std::sync::{PoisonError, RwLock};

/// Held for reading by whoever captures.
static CAPTURES: RwLock<()> = RwLock::new(());

/// Does what waits for the whole device inside, while no thread of this process captures: such a wait makes every capture
/// of the device void, whichever thread captures.
pub(in crate::gpu) fn between_captures<T>(act: impl FnOnce() -> T) -> T {
    let _alone = CAPTURES.write().unwrap_or_else(PoisonError::into_inner);
    act()
}

/// A sequence that the device keeps, ready to run.
#[derive(Debug)]
pub(in crate::gpu) struct Graph(sys::CUgraphExec);

/// A captured graph that is not ready yet.
struct Captured(sys::CUgraph);

impl Graph {
    /// Keeps what `ask` asks of `stream`, without running it. `ask` must not wait for the device.
    pub(in crate::gpu) fn capture<E: From<Fault>>(
        stream: &Stream,
        ask: impl FnOnce() -> Result<(), E>,
    ) -> Result<Self, E> {
        let capturing = CAPTURES.read().unwrap_or_else(PoisonError::into_inner);
        // Other threads may go on as they like, but for `between_captures`.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is held.
        checked("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream.raw(), mode) })?;
        let asked = ask();
        let mut captured = std::ptr::null_mut();
        // SAFETY: the stream is capturing, also after a failure; the pointer outlives the call.
        let status = unsafe { sys::cuStreamEndCapture(stream.raw(), &mut captured) };
        drop(capturing);
        let captured = Captured(captured);
        // What failed first says more than that the capture is void.
        asked?;
        checked("cuStreamEndCapture", status)?;
        let mut ready = std::ptr::null_mut();
        // SAFETY: the graph is held; the pointer outlives the call; no flags.
        checked("cuGraphInstantiate", unsafe {
            sys::cuGraphInstantiateWithFlags(&mut ready, captured.0, 0)
        })?;
        let graph = Self(ready);
        // SAFETY: both are held. Without it the first launch would be slower than the others.
        checked("cuGraphUpload", unsafe { sys::cuGraphUpload(graph.0, stream.raw()) })?;
        Ok(graph)
    }

    /// Asks for a run.
    pub(in crate::gpu) fn launch(&self, stream: &Stream) -> Result<(), Fault> {
        // SAFETY: both are held.
        checked("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.0, stream.raw()) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: it was made once. What the driver says of it changes nothing.
        let _ = unsafe { sys::cuGraphExecDestroy(self.0) };
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: it was made once. What the driver says of it changes nothing.
            let _ = unsafe { sys::cuGraphDestroy(self.0) };
        }
    }
}
