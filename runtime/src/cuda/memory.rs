//! Where the buffers of several plans lie on a device.
//!
//! In: plans. Out: the address of each buffer. Plans share weights and what belongs to them by name. A driver either gets
//! an allocation for each buffer, or one for what each plan brings that lasts, and one for all that does not.

use super::binding::ENTRY;
use crate::driver::{Address, Allocation, Command, Driver, DriverError, Layout};
use kernwright_plan::buffer::{Buffer, BufferId};
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::launch::Entry;
use kernwright_plan::passes::memory::ALIGNMENT;
use kernwright_plan::plan::Plan;
use std::collections::HashMap;

/// Where a base buffer lies.
#[derive(Clone, Copy, Debug)]
enum Place {
    At(Address),
    /// So far from the beginning of the room that all plans use in turn.
    Transient(usize),
}

/// Where what a plan names lies.
#[derive(Debug)]
pub(super) struct Places {
    /// Base buffers; `None` for views, and for what no step touches.
    buffers: Vec<Option<Place>>,
    /// The different tables of its launches.
    tables: Vec<(Vec<Entry>, Address)>,
}

impl Places {
    /// Where a table lies that a launch of the plan has.
    pub(super) fn table(&self, entries: &[Entry]) -> Result<Address, ExecutorError> {
        let found = self.tables.iter().find(|(known, _)| known == entries).map(|(_, at)| *at);
        found.ok_or_else(|| ExecutorError::Plan("a table of a launch has no place in memory".to_owned()))
    }

    /// Every table.
    pub(super) fn tables(&self) -> impl Iterator<Item = (&[Entry], Address)> {
        self.tables.iter().map(|(entries, at)| (entries.as_slice(), *at))
    }
}

/// A buffer that plans share.
#[derive(Debug)]
struct Shared {
    at: Address,
    about: String,
}

/// The memory of an executor.
#[derive(Debug, Default)]
pub(super) struct Memory {
    shared: HashMap<String, Shared>,
    transient: Option<(Allocation, usize)>,
    /// All that was allocated.
    held: Vec<Allocation>,
}

fn about(buffer: &Buffer) -> String {
    let shape: Vec<_> = buffer.shape.iter().map(ToString::to_string).collect();
    format!("{} of {}", shape.join("x"), buffer.dtype.name())
}

pub(super) fn failed(what: &str, error: DriverError) -> ExecutorError {
    match error {
        DriverError::Memory { bytes, .. } => ExecutorError::Memory { needed: bytes },
        error => ExecutorError::Device { what: what.to_owned(), source: Box::new(error) },
    }
}

/// What was allocated for a plan, to be given back if the plan does not fit.
struct Taken<'a, D> {
    driver: &'a mut D,
    all: Vec<Allocation>,
}

impl<D: Driver> Taken<'_, D> {
    fn allocate(&mut self, name: &str, bytes: usize) -> Result<Allocation, ExecutorError> {
        let what = || format!("allocate `{name}`");
        let allocation = self.driver.allocate(name, bytes).map_err(|error| failed(&what(), error))?;
        self.all.push(allocation);
        Ok(allocation)
    }
}

impl Memory {
    /// Finds room for everything in a plan, and for the tables of its launches, which are yet to be filled. `true` says
    /// that the transient room moved: what was recorded with its old address is void.
    pub(super) fn load(
        &mut self,
        driver: &mut impl Driver,
        plan: &Plan,
        tables: Vec<Vec<Entry>>,
    ) -> Result<(Places, bool), ExecutorError> {
        let mut taken = Taken { driver, all: Vec::new() };
        match self.place(&mut taken, plan, tables) {
            Ok(placed) => {
                self.held.extend(taken.all);
                Ok(placed)
            }
            Err(error) => {
                let Taken { driver, all } = taken;
                for allocation in all {
                    driver.free(allocation).map_err(|error| failed("give memory back", error))?;
                }
                Err(error)
            }
        }
    }

    fn place<D: Driver>(
        &mut self,
        taken: &mut Taken<'_, D>,
        plan: &Plan,
        tables: Vec<Vec<Entry>>,
    ) -> Result<(Places, bool), ExecutorError> {
        let mut places = vec![None; plan.buffers.len()];
        let (mut lasting, mut transient) = (Vec::new(), Vec::new());
        for (index, buffer) in plan.buffers.iter().enumerate().filter(|(_, buffer)| buffer.view.is_none()) {
            let now = about(buffer);
            match self.shared.get(&buffer.name).filter(|_| buffer.role.is_shared()) {
                Some(room) if room.about == now => places[index] = Some(Place::At(room.at)),
                Some(room) => {
                    let (buffer, before) = (buffer.name.clone(), room.about.clone());
                    return Err(ExecutorError::Mismatch { buffer, before, now });
                }
                None if buffer.role.is_persistent() => lasting.push(index),
                None => transient.extend(buffer.offset.map(|offset| (index, offset))),
            }
        }
        let mut room = None;
        match taken.driver.layout() {
            Layout::Separate => {
                for index in lasting.iter().copied().chain(transient.iter().map(|(index, _)| *index)) {
                    let buffer = &plan.buffers[index];
                    let allocation = taken.allocate(&buffer.name, buffer.bytes())?;
                    places[index] = Some(Place::At(Address { allocation, offset: 0 }));
                }
            }
            Layout::Arena => {
                let (mut offsets, mut end) = (Vec::new(), 0);
                for index in &lasting {
                    offsets.push(end);
                    end += plan.buffers[*index].bytes().next_multiple_of(ALIGNMENT);
                }
                if end > 0 {
                    let allocation = taken.allocate("weights and what belongs to them", end)?;
                    for (index, offset) in lasting.iter().zip(offsets) {
                        places[*index] = Some(Place::At(Address { allocation, offset }));
                    }
                }
                for (index, offset) in transient {
                    places[index] = Some(Place::Transient(offset.saturating_sub(plan.persistent_bytes)));
                }
                let bytes = plan.arena_bytes.saturating_sub(plan.persistent_bytes);
                if bytes > self.transient.map_or(0, |(_, bytes)| bytes) {
                    room = Some((taken.allocate("activations", bytes)?, bytes));
                }
            }
        }
        let mut placed_tables = Vec::with_capacity(tables.len());
        for entries in tables {
            let allocation = taken.allocate("a table of tensors", (ENTRY * entries.len()).max(1))?;
            placed_tables.push((entries, Address { allocation, offset: 0 }));
        }
        let mut shared = Vec::new();
        for index in lasting {
            let (buffer, Some(Place::At(at))) = (&plan.buffers[index], places[index]) else { continue };
            if buffer.role.is_shared() {
                let what = || format!("set `{}` to what it is at first", buffer.name);
                if buffer.initial == 0.0 {
                    let zero = Command::Zero { at, bytes: buffer.bytes() };
                    taken.driver.launch(&zero).map_err(|error| failed(&what(), error))?;
                } else {
                    let values = std::iter::repeat_n(f64::from(buffer.initial), buffer.len());
                    let bytes = buffer.dtype.encode_all(values);
                    taken.driver.upload(at, &bytes).map_err(|error| failed(&what(), error))?;
                }
                shared.push((buffer.name.clone(), Shared { at, about: about(buffer) }));
            }
        }
        self.shared.extend(shared);
        let places = Places { buffers: places, tables: placed_tables };
        let Some(room) = room else { return Ok((places, false)) };
        let old = self.transient.replace(room);
        if let Some((old, _)) = old {
            self.held.retain(|held| *held != old);
            taken.driver.free(old).map_err(|error| failed("give memory back", error))?;
        }
        Ok((places, old.is_some()))
    }

    /// Gives everything back.
    pub(super) fn clear(&mut self, driver: &mut impl Driver) -> Result<(), ExecutorError> {
        let Self { held, .. } = std::mem::take(self);
        let mut freed = held.into_iter().map(|allocation| driver.free(allocation));
        freed.try_for_each(|freed| freed.map_err(|error| failed("give memory back", error)))
    }

    /// The first element of a buffer.
    pub(super) fn address(
        &self,
        plan: &Plan,
        places: &Places,
        id: BufferId,
    ) -> Result<Address, ExecutorError> {
        let (base, column) = plan.base(id);
        let at = match (places.buffers[base.0], self.transient) {
            (Some(Place::At(at)), _) => Some(at),
            (Some(Place::Transient(offset)), Some((allocation, _))) => Some(Address { allocation, offset }),
            _ => None,
        };
        at.map(|at| at.after(column * plan.buffer(id).dtype.bytes())).ok_or_else(|| missing(plan, id))
    }
}

pub(super) fn missing(plan: &Plan, id: BufferId) -> ExecutorError {
    ExecutorError::Plan(format!("`{}` has no place in memory", plan.buffer(id).name))
}
