//! The memory of the CPU executor, and how a step gets at it.
//!
//! In: plans. Out: for a step, one matrix per slot, cut out of two arenas without overlap: a persistent one, where
//! plans share weights and what belongs to them by name, and a transient one with the offsets of the plan that runs.
//! Whole numbers lie in the same words as bit patterns.

use super::matmul::{Matrix, MatrixMut, Store};
use super::slots::{Output, Slots};
use kernwright_plan::buffer::{Buffer, BufferId};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{ExecutorError, MicroStep};
use kernwright_plan::plan::{Plan, Step};
use std::collections::HashMap;
use std::ops::Range;

/// Which arena a buffer lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arena {
    Persistent,
    Transient,
}

/// Where a base buffer lies, in words.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    arena: Arena,
    words: Range<usize>,
}

/// A plan and the place of each of its base buffers; `None` for one that no step touches.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) plan: Plan,
    places: Vec<Option<Place>>,
}

/// A named room in the persistent arena, shared by all plans.
#[derive(Debug)]
struct Room {
    words: Range<usize>,
    about: String,
}

/// Both arenas.
#[derive(Debug, Default)]
pub(crate) struct Storage {
    persistent: Vec<f32>,
    transient: Vec<f32>,
    rooms: HashMap<String, Room>,
}

/// The word of a number in a buffer of this type.
fn word(dtype: Dtype, value: f32) -> f32 {
    f32::from_bits(dtype.encode(value.into()))
}

fn about(buffer: &Buffer) -> String {
    let shape: Vec<_> = buffer.shape.iter().map(ToString::to_string).collect();
    format!("{} of {}", shape.join("x"), buffer.dtype.name())
}

/// Makes both arenas at least so long; room for both is there before either is touched.
fn grow(arenas: [(&mut Vec<f32>, usize); 2]) -> Result<(), ExecutorError> {
    let needed = arenas.iter().fold(0, |sum: usize, (_, words)| sum.saturating_add(words.saturating_mul(4)));
    let [first, second] = arenas;
    for (arena, words) in [(&mut *first.0, first.1), (&mut *second.0, second.1)] {
        let more = words.saturating_sub(arena.len());
        arena.try_reserve_exact(more).map_err(|_| ExecutorError::Memory { needed })?;
    }
    for (arena, words) in [first, second] {
        arena.resize(words.max(arena.len()), 0.0);
    }
    Ok(())
}

impl Storage {
    /// Finds room for everything in a plan.
    pub(crate) fn load(&mut self, plan: Plan) -> Result<Loaded, ExecutorError> {
        plan.check().map_err(ExecutorError::Plan)?;
        let wide = |buffer: &&Buffer| !matches!(buffer.dtype, Dtype::Fp32 | Dtype::I32);
        if let Some(buffer) = plan.buffers.iter().find(wide) {
            let (name, dtype) = (&buffer.name, buffer.dtype.name());
            return Err(ExecutorError::Plan(format!(
                "the CPU computes in fp32, and `{name}` is {dtype}; make the plan with precision `fp32`"
            )));
        }
        let mut new = self.persistent.len();
        let mut added: HashMap<String, Room> = HashMap::new();
        // What is not zero at first.
        let mut begin: Vec<(Range<usize>, f32)> = Vec::new();
        let mut places = Vec::with_capacity(plan.buffers.len());
        for buffer in &plan.buffers {
            if buffer.view.is_some() {
                places.push(None);
            } else if buffer.role.is_shared() {
                let (key, now) = (&buffer.name, about(buffer));
                let words = match self.rooms.get(key).or_else(|| added.get(key)) {
                    Some(room) if room.about == now => room.words.clone(),
                    Some(room) => {
                        let (buffer, before) = (buffer.name.clone(), room.about.clone());
                        return Err(ExecutorError::Mismatch { buffer, before, now });
                    }
                    None => {
                        let words = new..new + buffer.len();
                        new = words.end;
                        let first = word(buffer.dtype, buffer.initial);
                        begin.extend((first.to_bits() != 0).then(|| (words.clone(), first)));
                        added.insert(key.clone(), Room { words: words.clone(), about: now });
                        words
                    }
                };
                places.push(Some(Place { arena: Arena::Persistent, words }));
            } else if buffer.role.is_persistent() {
                // Inputs and outputs are each plan's own: they depend on batch and length.
                let words = new..new + buffer.len();
                new = words.end;
                places.push(Some(Place { arena: Arena::Persistent, words }));
            } else {
                let start = buffer.offset.map(|offset| offset.saturating_sub(plan.persistent_bytes) / 4);
                let words = start.map(|start| start..start + buffer.len());
                places.push(words.map(|words| Place { arena: Arena::Transient, words }));
            }
        }
        let transient = plan.arena_bytes.saturating_sub(plan.persistent_bytes).div_ceil(4);
        grow([(&mut self.persistent, new), (&mut self.transient, transient)])?;
        begin.into_iter().for_each(|(words, first)| self.persistent[words].fill(first));
        self.rooms.extend(added);
        Ok(Loaded { plan, places })
    }

    fn arena(&self, arena: Arena) -> &[f32] {
        match arena {
            Arena::Persistent => &self.persistent,
            Arena::Transient => &self.transient,
        }
    }

    /// A buffer, to read.
    pub(crate) fn matrix(&self, loaded: &Loaded, id: BufferId) -> Result<Matrix<'_>, ExecutorError> {
        let place = loaded.place(id)?;
        let data = &self.arena(place.arena)[place.words.clone()];
        let (rows, width) = loaded.dims(id);
        Ok(Matrix::new(data, rows, width, width).columns(loaded.plan.columns(id)))
    }

    /// A buffer, to write.
    pub(crate) fn matrix_mut(
        &mut self,
        loaded: &Loaded,
        id: BufferId,
    ) -> Result<MatrixMut<'_>, ExecutorError> {
        let place = loaded.place(id)?;
        let arena = match place.arena {
            Arena::Persistent => &mut self.persistent,
            Arena::Transient => &mut self.transient,
        };
        let (rows, width) = loaded.dims(id);
        let columns = loaded.plan.columns(id);
        let matrix = MatrixMut::new(&mut arena[place.words.clone()], rows, width, width);
        Ok(matrix.split_columns(columns.end).0.split_columns(columns.start).1)
    }

    /// A matrix for each slot of a step.
    pub(crate) fn bind<'a>(
        &'a mut self,
        loaded: &Loaded,
        step: &Step,
        micro: MicroStep,
    ) -> Result<Slots<'a>, ExecutorError> {
        // By their place in the step.
        let (mut read, mut written) = (Vec::new(), Vec::new());
        for (base, words) in self.cut(loaded, step)? {
            let (rows, width) = loaded.dims(base);
            let of_base = |id: BufferId| loaded.plan.base(id).0 == base;
            let writes = step.writes.iter().enumerate().filter(|(_, write)| of_base(write.buffer));
            let writes: Vec<_> = writes.collect();
            let reads = step.reads.iter().enumerate().filter(|(_, read)| of_base(read.buffer));
            let reads: Vec<_> = reads.collect();
            let columns = |id| loaded.plan.columns(id);
            if writes.is_empty() {
                let whole = Matrix::new(words, rows, width, width);
                for (at, one) in reads {
                    read.push((at, (one.slot, whole.columns(columns(one.buffer)))));
                }
                continue;
            }
            let mut ranges: Vec<_> = writes.iter().map(|(_, write)| columns(write.buffer)).collect();
            ranges.extend(reads.iter().map(|(_, read)| columns(read.buffer)));
            ranges.sort_by_key(|range| (range.start, range.end));
            ranges.dedup();
            let mut rest = MatrixMut::new(words, rows, width, width);
            let mut reached = 0;
            for range in ranges {
                if range.start < reached {
                    let (op, name) = (step.op.name(), &loaded.plan.buffer(base).name);
                    return Err(ExecutorError::Plan(format!(
                        "a `{op}` step uses parts of `{name}` that overlap"
                    )));
                }
                let (part, after) = rest.split_columns(range.start - reached).1.split_columns(range.len());
                (rest, reached) = (after, range.end);
                if let Some((at, write)) = writes.iter().find(|(_, write)| columns(write.buffer) == range) {
                    let store = if write.mode.adds(micro) { Store::Add } else { Store::Replace };
                    written.push((*at, (write.slot, Output { matrix: part, store })));
                } else {
                    let part = part.into_view();
                    let of_range = reads.iter().filter(|(_, read)| columns(read.buffer) == range);
                    read.extend(of_range.map(|(at, one)| (*at, (one.slot, part))));
                }
            }
        }
        read.sort_by_key(|(at, _)| *at);
        written.sort_by_key(|(at, _)| *at);
        let mut slots = Slots::new(step.op.name());
        slots.reads.extend(read.into_iter().map(|(_, one)| one));
        slots.writes.extend(written.into_iter().map(|(_, one)| one));
        Ok(slots)
    }

    /// The words of every base buffer that a step touches.
    fn cut<'a>(
        &'a mut self,
        loaded: &Loaded,
        step: &Step,
    ) -> Result<Vec<(BufferId, &'a mut [f32])>, ExecutorError> {
        let touched = step.reads.iter().map(|read| read.buffer).chain(step.writes.iter().map(|w| w.buffer));
        let mut bases: Vec<BufferId> = touched.map(|id| loaded.plan.base(id).0).collect();
        bases.sort_unstable();
        bases.dedup();
        let mut wanted = Vec::with_capacity(bases.len());
        for base in bases {
            wanted.push((base, loaded.place(base)?));
        }
        wanted.sort_by_key(|(_, place)| place.words.start);
        let mut cut = Vec::with_capacity(wanted.len());
        for (arena, mut rest) in [
            (Arena::Persistent, self.persistent.as_mut_slice()),
            (Arena::Transient, self.transient.as_mut_slice()),
        ] {
            let mut reached = 0;
            for (base, place) in wanted.iter().filter(|(_, place)| place.arena == arena) {
                let name = || loaded.plan.buffer(*base).name.clone();
                let overlap =
                    || ExecutorError::Plan(format!("`{}` shares memory with another buffer", name()));
                let gap = place.words.start.checked_sub(reached).ok_or_else(overlap)?;
                let (words, after) = rest.split_at_mut(gap).1.split_at_mut(place.words.len());
                cut.push((*base, words));
                (rest, reached) = (after, place.words.end);
            }
        }
        Ok(cut)
    }
}

impl Loaded {
    fn place(&self, id: BufferId) -> Result<&Place, ExecutorError> {
        let base = self.plan.base(id).0;
        self.places[base.0].as_ref().ok_or_else(|| {
            ExecutorError::Plan(format!("`{}` has no place in memory", self.plan.buffer(id).name))
        })
    }

    /// Rows and columns of the base of a buffer.
    fn dims(&self, id: BufferId) -> (usize, usize) {
        let base = self.plan.buffer(self.plan.base(id).0);
        (base.rows(), base.columns())
    }
}
