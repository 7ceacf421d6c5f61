//! Memory that was given back, kept for who asks for as much again.
//!
//! In: sizes and a driver. Out: allocations. A queue does things in order, so what a kernel still reads is not yet written by
//! the one that comes after it, and nothing waits when memory changes hands.

use crate::driver::{Allocation, Driver, DriverError};
use std::collections::HashMap;

/// Allocations that nobody holds, by size, and the size of each there is.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: HashMap<usize, Vec<Allocation>>,
    sizes: HashMap<Allocation, usize>,
}

impl Pool {
    /// So many bytes: some that were given back, else new ones. Where there are none, all that nobody holds goes back to the
    /// driver first.
    pub(crate) fn take(
        &mut self,
        driver: &mut impl Driver,
        name: &str,
        bytes: usize,
    ) -> Result<Allocation, DriverError> {
        if let Some(memory) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            return Ok(memory);
        }
        let memory = match driver.allocate(name, bytes) {
            Err(DriverError::Memory { .. }) if self.free.values().any(|some| !some.is_empty()) => {
                self.trim(driver)?;
                driver.allocate(name, bytes)?
            }
            taken => taken?,
        };
        self.sizes.insert(memory, bytes);
        Ok(memory)
    }

    /// Keeps memory for who asks next.
    pub(crate) fn give_back(&mut self, memory: Allocation) {
        if let Some(bytes) = self.sizes.get(&memory) {
            self.free.entry(*bytes).or_default().push(memory);
        }
    }

    fn trim(&mut self, driver: &mut impl Driver) -> Result<(), DriverError> {
        for memory in self.free.drain().flat_map(|(_, some)| some) {
            self.sizes.remove(&memory);
            driver.free(memory)?;
        }
        Ok(())
    }
}
