//! Calls over buffers of the caller's: a device that does what it is asked for in order, and memory that is safe to hold.
//!
//! In: plans whose inputs and outputs are somebody else's ([`kernwright_plan::attention_step`]), and where those lie. Out:
//! what the plans write there. A call returns once it is asked for; whoever reads, waits. Memory that is given back while
//! something still uses it is reused in the order of the queue, and so never too early. [`crate::cuda::Caller`] is the
//! queue of a GPU or the emulator, [`Host`] that of an executor on the host.

mod buffer;
mod element;
mod host;
mod pool;

pub use buffer::{DeviceBuffer, DeviceSlice, DeviceSliceMut, SharedQueue};
pub use element::Element;
pub use host::{Host, Make};
pub(crate) use pool::Pool;

use crate::driver::{Address, Allocation};
use kernwright_plan::buffer::BufferId;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{ExecutorError, PlanId};
use kernwright_plan::measure::{Mark, Usage};
use kernwright_plan::plan::Plan;

/// Every offset of what a kernel is given is a multiple of this, bytes.
pub const ALIGNMENT: usize = 16;

/// A buffer of a plan, and the caller's memory that stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// The buffer; no view.
    pub buffer: BufferId,
    /// Its first element.
    pub at: Address,
    /// What lies there.
    pub dtype: Dtype,
}

/// What runs plans over the caller's buffers, in the order in which it is asked.
pub trait Queue {
    /// Takes a plan in: kernels are compiled and loaded, nothing else is allocated.
    ///
    /// # Errors
    /// When the plan is not sound, a step has no kernel, or one does not compile.
    fn prepare(&mut self, plan: Plan) -> Result<PlanId, ExecutorError>;

    /// Drops a plan; its number is void.
    fn forget(&mut self, plan: PlanId);

    /// Memory for the caller; its content is undefined.
    ///
    /// # Errors
    /// When there is none left.
    fn take(&mut self, name: &str, bytes: usize) -> Result<Allocation, ExecutorError>;

    /// Gives such memory back; what was asked for before may still use it.
    fn give_back(&mut self, memory: Allocation);

    /// Copies bytes to the device.
    ///
    /// # Errors
    /// When they reach past the memory, or the device fails.
    fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<(), ExecutorError>;

    /// Copies bytes from the device, once all that was asked for is done.
    ///
    /// # Errors
    /// As [`Queue::upload`], and what was asked for before may have failed.
    fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), ExecutorError>;

    /// Asks for all steps of a plan. Whatever is not given is scratch.
    ///
    /// # Errors
    /// When something it needs is not given or the device fails.
    fn call(&mut self, plan: PlanId, given: &[Given]) -> Result<(), ExecutorError>;

    /// Marks the point after all that was asked for.
    ///
    /// # Errors
    /// When the device fails.
    fn mark(&mut self) -> Result<Mark, ExecutorError>;

    /// Seconds between two points, once the later one is reached. Both marks are used up.
    ///
    /// # Errors
    /// When the device fails.
    fn seconds(&mut self, from: Mark, to: Mark) -> Result<f64, ExecutorError>;

    /// Waits until all that was asked for is done.
    ///
    /// # Errors
    /// What any of it met with.
    fn wait(&mut self) -> Result<(), ExecutorError>;

    /// What it has taken of the device's memory.
    fn usage(&self) -> Usage;
}
