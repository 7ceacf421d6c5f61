//! The emulated device's memory: named allocations, and which of their bytes anybody wrote.
//!
//! Addresses are the host's own, so that kernels follow them as they are. Each allocation begins at a multiple of 256, as
//! on a GPU, lies apart from the others, and is filled with what is no number in any type until something is written.

use super::EmulatorError;
use super::binding::Range;
use std::collections::BTreeMap;

/// A place in the emulated device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(pub u64);

impl Address {
    /// No place at all.
    pub const NULL: Address = Address(0);

    /// The place so many bytes further on.
    #[must_use]
    pub fn after(self, bytes: u64) -> Address {
        Address(self.0.wrapping_add(bytes))
    }
}

const ALIGNMENT: usize = 256;
/// Between neighbours, so that a step too far lands in nobody's memory.
const GAP: usize = 256;
const POISON: u8 = 0xff;
const WRITTEN: u8 = 1;

pub(super) struct Allocation {
    pub(super) name: String,
    room: Vec<u8>,
    skipped: usize,
    bytes: usize,
    written: Vec<u8>,
}

impl Allocation {
    fn content(&self) -> &[u8] {
        &self.room[self.skipped..self.skipped + self.bytes]
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

/// All live allocations by address.
#[derive(Default)]
pub(super) struct Memory {
    allocations: BTreeMap<u64, Allocation>,
}

impl Memory {
    pub(super) fn allocate(&mut self, name: &str, bytes: u64) -> Option<Address> {
        let bytes = usize::try_from(bytes).ok()?;
        let mut room = Vec::new();
        room.try_reserve_exact(bytes.checked_add(ALIGNMENT + GAP)?).ok()?;
        room.resize(bytes + ALIGNMENT + GAP, POISON);
        let mut written = Vec::new();
        written.try_reserve_exact(bytes).ok()?;
        written.resize(bytes, 0);
        let start = room.as_mut_ptr().expose_provenance();
        let skipped = start.next_multiple_of(ALIGNMENT) - start;
        let address = (start + skipped) as u64;
        self.allocations.insert(address, Allocation { name: name.to_owned(), room, skipped, bytes, written });
        Some(Address(address))
    }

    pub(super) fn free(&mut self, address: Address) -> Result<(), EmulatorError> {
        match self.allocations.remove(&address.0) {
            Some(_) => Ok(()),
            None => Err(self.absent(address, 0)),
        }
    }

    /// The first byte of the allocation that holds these bytes, and which of its bytes they are.
    fn place(&self, address: Address, bytes: u64) -> Result<(u64, std::ops::Range<usize>), EmulatorError> {
        let found = self.allocations.range(..=address.0).next_back().and_then(|(&base, allocation)| {
            let first = address.0 - base;
            let end = first.checked_add(bytes).filter(|&end| end <= allocation.bytes())?;
            Some((base, usize::try_from(first).ok()?..usize::try_from(end).ok()?))
        });
        found.ok_or_else(|| self.absent(address, bytes))
    }

    fn of(&self, address: Address, bytes: u64) -> Result<(&[u8], &[u8]), EmulatorError> {
        let (base, range) = self.place(address, bytes)?;
        let one = &self.allocations[&base];
        Ok((&one.content()[range.clone()], &one.written[range]))
    }

    fn of_mut(&mut self, address: Address, bytes: u64) -> Result<(&mut [u8], &mut [u8]), EmulatorError> {
        let (base, range) = self.place(address, bytes)?;
        let missing = self.absent(address, bytes);
        let one = self.allocations.get_mut(&base).ok_or(missing)?;
        let (first, end) = (one.skipped + range.start, one.skipped + range.end);
        Ok((&mut one.room[first..end], &mut one.written[range]))
    }

    /// What kernels may touch, sorted by address.
    pub(super) fn ranges(&mut self) -> Vec<Range> {
        let range = |(&address, one): (&u64, &mut Allocation)| Range {
            address,
            bytes: one.bytes(),
            written: one.written.as_mut_ptr(),
            constant: 0,
        };
        self.allocations.iter_mut().filter(|(_, one)| one.bytes > 0).map(range).collect()
    }

    fn absent(&self, address: Address, bytes: u64) -> EmulatorError {
        EmulatorError::Memory { bytes, address: address.0, nearest: self.nearest(address) }
    }

    /// The allocation that an address belongs to, or just misses, and the way from its beginning.
    pub(super) fn around(&self, address: Address) -> Option<(&Allocation, i64)> {
        let (below, above) = (
            self.allocations.range(..=address.0).next_back(),
            self.allocations.range(address.0.saturating_add(1)..).next(),
        );
        let past =
            below.map(|(base, one)| (one, address.0 - base, (address.0 - base).saturating_sub(one.bytes())));
        let before = above.map(|(base, one)| (one, base - address.0));
        // Within a mebibyte it is likelier a wrong index than a wrong pointer.
        const NEAR: u64 = 1 << 20;
        match (past, before) {
            (Some((one, offset, 0)), _) => Some((one, offset as i64)),
            (Some((one, offset, beyond)), before)
                if beyond < NEAR && before.is_none_or(|(_, missing)| beyond <= missing) =>
            {
                Some((one, offset as i64))
            }
            (_, Some((one, missing))) if missing < NEAR => Some((one, -(missing as i64))),
            _ => None,
        }
    }

    fn nearest(&self, address: Address) -> String {
        match self.around(address) {
            Some((one, offset)) => format!("`{}` has {} bytes, this is byte {offset}", one.name, one.bytes),
            None => "nothing is near".to_owned(),
        }
    }

    pub(super) fn upload(&mut self, to: Address, bytes: &[u8]) -> Result<(), EmulatorError> {
        let (content, written) = self.of_mut(to, bytes.len() as u64)?;
        content.copy_from_slice(bytes);
        written.fill(WRITTEN);
        Ok(())
    }

    pub(super) fn download(&self, from: Address, bytes: &mut [u8]) -> Result<(), EmulatorError> {
        let (content, _) = self.of(from, bytes.len() as u64)?;
        bytes.copy_from_slice(content);
        Ok(())
    }

    pub(super) fn zero(&mut self, at: Address, bytes: u64) -> Result<(), EmulatorError> {
        let (content, written) = self.of_mut(at, bytes)?;
        content.fill(0);
        written.fill(WRITTEN);
        Ok(())
    }

    pub(super) fn discard(&mut self, at: Address, bytes: u64) -> Result<(), EmulatorError> {
        let (content, written) = self.of_mut(at, bytes)?;
        content.fill(POISON);
        written.fill(0);
        Ok(())
    }

    pub(super) fn copy(&mut self, to: Address, from: Address, bytes: u64) -> Result<(), EmulatorError> {
        let (content, written) = self.of(from, bytes)?;
        let (content, written) = (content.to_vec(), written.to_vec());
        let (to_content, to_written) = self.of_mut(to, bytes)?;
        to_content.copy_from_slice(&content);
        to_written.copy_from_slice(&written);
        Ok(())
    }

    pub(super) fn first_unwritten(&self, at: Address, bytes: u64) -> Result<Option<u64>, EmulatorError> {
        let (_, written) = self.of(at, bytes)?;
        Ok(written.iter().position(|&state| state != WRITTEN).map(|byte| byte as u64))
    }
}
