//! The allocations of a GPU.
//!
//! In: places as the executor names them. Out: the device's own addresses, or which bytes are not there.

use super::calls::DeviceMemory;
use crate::driver::{Address, DriverError};

/// Memory that somebody asked for.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) name: String,
    pub(super) memory: DeviceMemory,
}

/// Allocations by their numbers; `None` for those given back.
#[derive(Debug, Default)]
pub(super) struct Rooms(pub(super) Vec<Option<Held>>);

impl Rooms {
    /// The device's own address of a place, of which so many bytes are wanted.
    pub(super) fn place(&self, at: Address, bytes: usize) -> Result<u64, DriverError> {
        let number = at.allocation.0;
        let Some(held) = self.0.get(number).and_then(Option::as_ref) else {
            return Err(DriverError::Failed(format!("allocation {number} is not there: it was given back")));
        };
        let size = held.memory.bytes();
        if at.offset.checked_add(bytes).is_none_or(|end| end > size) {
            return Err(DriverError::Bounds { name: held.name.clone(), size, offset: at.offset, bytes });
        }
        Ok(held.memory.address() + at.offset as u64)
    }
}
