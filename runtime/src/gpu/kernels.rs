//! Kernels on a GPU.
//!
//! In: the text of a kernel and the cubin that was made of it. Out: a function that can be launched.

use super::calls::Function;
use super::signature::n_parameters;
use crate::driver::{DriverError, Text};
use kernwright_plan::arch::Arch;

/// A GPU that runs as many blocks of a kernel at a time as another would.
#[derive(Clone, Debug)]
pub struct StandIn {
    /// The one that there is.
    pub gpu: Arch,
    /// The other.
    pub other: Arch,
}

/// A kernel and the launch shape that it is always launched with.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) name: String,
    pub(super) function: Function,
    pub(super) block: u32,
    pub(super) shared_memory: u32,
}

impl Loaded {
    /// `stands_in` for kernels of another GPU, of which no more blocks are to run at a time than there.
    pub(super) fn new(text: &Text, cubin: &[u8], stands_in: Option<&StandIn>) -> Result<Self, DriverError> {
        let name = text.spec.name();
        let (block, own) = (text.spec.block, text.spec.shared_memory);
        let shared_memory =
            stands_in.map_or(own, |StandIn { gpu, other }| gpu.shared_memory_as_on(other, block, own));
        let most_parameters = n_parameters(&text.text, &name).unwrap_or(usize::MAX);
        let function = Function::load(cubin, &name, shared_memory, most_parameters)
            .map_err(|fault| DriverError::Failed(format!("kernel `{name}` cannot be loaded: {fault}")))?;
        Ok(Self { name, function, block, shared_memory })
    }
}

/// Where to read a kernel that failed.
pub(super) fn source_of(kernel: &str) -> String {
    format!("`cuda --show {kernel}` prints its source")
}
