//! Matrices in memory that stands for a GPU's.
//!
//! Tests of the library and tests within it share this file, so names of the library are those of who includes it.

use super::{Address, Allocation, DriverError, Dtype, HostMemory, Rows};

/// A room per allocation.
#[derive(Clone)]
pub(crate) struct Memory(pub(crate) Vec<Vec<u8>>);

impl HostMemory for Memory {
    fn load(&self, from: Address, bytes: &mut [u8]) -> Result<(), DriverError> {
        bytes.copy_from_slice(&self.0[from.allocation.0][from.offset..from.offset + bytes.len()]);
        Ok(())
    }

    fn store(&mut self, to: Address, bytes: &[u8]) -> Result<(), DriverError> {
        self.0[to.allocation.0][to.offset..to.offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// A matrix at the beginning of an allocation.
pub(crate) fn rows(allocation: usize, dtype: Dtype, stride: usize) -> Rows {
    Rows { at: Address { allocation: Allocation(allocation), offset: 0 }, dtype, stride }
}
