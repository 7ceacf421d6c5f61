//! A compiled attention: its plans on a device, and what every call does.
//!
//! In: a declaration, a device, batch and length. Out: calls, checked against the sizes they were compiled for. What the calls
//! are named and take is in `separate` and `packed`.

use super::statistics::{Figures, Statistics};
use super::tensors::Tensors;
use crate::device::Device;
use crate::error::Error;
use kernwright_plan::attention_step::{Pass, attention_step};
use kernwright_plan::buffer::BufferId;
use kernwright_plan::cost::Cost;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{ExecutorError, PlanId};
use kernwright_plan::measure::Mark;
use kernwright_plan::options::Options;
use kernwright_plan::plan::Plan;
use kernwright_plan::shape::{AttentionShape, Layout};
use kernwright_runtime::driver::Address;
use kernwright_runtime::queue::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Element, Given, SharedQueue};
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

/// The most sequences: those that a grid of CUDA takes.
const MOST_SEQUENCES: usize = 65_535;
/// The longest sequence: positions are counted in 32 bits, with a margin for windows and tiles.
const LONGEST: usize = 1 << 29;
/// The most elements of a tensor: more than any device holds, and so few that nobody's bytes are beyond counting.
const MOST_ELEMENTS: usize = 1 << 40;
/// Timed calls whose marks are kept before they are read.
const MOST_MARKS: usize = 64;

/// Attention with elements `T`, for one batch and length on one device. `X` says how queries, keys and values are handed
/// over: [`super::Separate`] or [`super::Packed`].
pub struct Compiled<T, X> {
    queue: SharedQueue,
    shape: AttentionShape,
    batch: usize,
    /// Queries and keys of a sequence.
    lengths: [usize; 2],
    passes: [Prepared; Pass::ALL.len()],
    is_timed: Cell<bool>,
    records: RefCell<[Record; Pass::ALL.len()]>,
    types: PhantomData<(T, X)>,
}

/// A plan of one pass, as the device knows it.
struct Prepared {
    id: PlanId,
    plan: Plan,
    /// In the declared types, whatever the device computes in.
    cost: Cost,
    /// What is handed over: its name and buffer.
    reads: Vec<(&'static str, BufferId)>,
    writes: Vec<(&'static str, BufferId)>,
}

/// Calls of one pass so far.
#[derive(Default)]
struct Record {
    calls: u64,
    timed: u64,
    seconds: f64,
    under_way: Vec<(Mark, Mark)>,
}

/// A buffer that is handed over, whatever its type.
#[derive(Clone, Copy)]
pub(super) struct Operand {
    at: Address,
    len: usize,
    dtype: Dtype,
    is_here: bool,
}

impl<T, X> std::fmt::Debug for Compiled<T, X> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { shape, batch, lengths, .. } = self;
        let mut debug = f.debug_struct("Compiled");
        debug.field("shape", shape).field("batch", batch).field("lengths", lengths).finish_non_exhaustive()
    }
}

impl<T, X> Drop for Compiled<T, X> {
    fn drop(&mut self) {
        for prepared in &self.passes {
            self.queue.borrow_mut().forget(prepared.id);
        }
    }
}

impl<T: Element, X: Tensors> Compiled<T, X> {
    pub(super) fn new(
        device: &Device,
        shape: AttentionShape,
        batch: usize,
        lengths: [usize; 2],
    ) -> Result<Self, Error> {
        let [query_length, key_length] = lengths;
        let (queries, keys) = (("query_length", query_length, LONGEST), ("key_length", key_length, LONGEST));
        for (what, found, most) in [("batch", batch, MOST_SEQUENCES), queries, keys] {
            if !(1..=most).contains(&found) {
                return Err(Error::Size { what, most, found });
            }
        }
        if shape.layout == Layout::Packed && query_length != key_length {
            return Err(Error::Lengths { query_length, key_length });
        }
        check_elements(&shape, batch, lengths)?;
        let prepare = |pass: Pass| -> Result<Prepared, Error> {
            let plan = attention_step(&shape, &device.options, batch, lengths, pass);
            let find = |name: &'static str| {
                let missing = || ExecutorError::Plan(format!("it has no buffer `{name}`"));
                Ok((name, plan.find(name).ok_or_else(missing)?))
            };
            let all = |names: Vec<&'static str>| -> Result<Vec<_>, ExecutorError> {
                names.into_iter().map(find).collect()
            };
            let (reads, writes) = (all(pass.reads(shape.layout))?, all(pass.writes(shape.layout))?);
            let id = device.queue.borrow_mut().prepare(plan.clone())?;
            let declared = Options { precision: None, ..device.options.clone() };
            let cost = attention_step(&shape, &declared, batch, lengths, pass).cost();
            Ok(Prepared { id, plan, cost, reads, writes })
        };
        let [forward, inference, backward] = Pass::ALL.map(prepare);
        Ok(Self {
            queue: Rc::clone(&device.queue),
            batch,
            lengths,
            passes: [forward?, inference?, backward?],
            shape,
            is_timed: Cell::new(false),
            records: RefCell::default(),
            types: PhantomData,
        })
    }

    /// What it computes.
    #[must_use]
    pub fn shape(&self) -> &AttentionShape {
        &self.shape
    }

    /// Sequences of a call.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Queries and keys of a sequence.
    #[must_use]
    pub fn lengths(&self) -> [usize; 2] {
        self.lengths
    }

    /// The most bytes that a call takes beside what it is handed and what it gives: known before anything is allocated. It is
    /// the backward pass that takes them; the others take none.
    #[must_use]
    pub fn workspace_bytes(&self) -> usize {
        let scratch = |one: &Prepared| one.plan.arena_bytes - one.plan.persistent_bytes;
        self.passes.iter().map(scratch).max().unwrap_or(0)
    }

    /// From now on each call is timed, by the device's clock, or none. It costs a call two marks on the device's queue.
    pub fn time(&self, is_timed: bool) {
        self.is_timed.set(is_timed);
    }

    /// What calls have done so far; waits for those that are timed.
    ///
    /// # Errors
    /// When the device fails.
    pub fn statistics(&self) -> Result<Statistics, Error> {
        let mut records = self.records.borrow_mut();
        let mut figures = [Figures::default(); Pass::ALL.len()];
        for ((record, prepared), figures) in records.iter_mut().zip(&self.passes).zip(&mut figures) {
            record.read(&self.queue)?;
            let cost = prepared.cost;
            let Record { calls, timed, seconds, .. } = *record;
            *figures = Figures { calls, timed, seconds, flops: cost.tensor_flops, bytes: cost.bytes };
        }
        let [forward, inference, backward] = figures;
        Ok(Statistics { forward, inference, backward })
    }

    fn prepared(&self, pass: Pass) -> (usize, &Prepared) {
        let index = Pass::ALL.iter().position(|other| *other == pass).unwrap_or(0);
        (index, &self.passes[index])
    }

    /// A buffer for what a pass writes as its `index`-th output.
    pub(super) fn output<E: Element>(&self, pass: Pass, index: usize) -> Result<DeviceBuffer<E>, Error> {
        let prepared = self.prepared(pass).1;
        let (name, id) = prepared.writes[index];
        Ok(DeviceBuffer::unwritten(&self.queue, name, prepared.plan.buffer(id).len())?)
    }

    /// A buffer that is read, as a call is handed it.
    pub(super) fn read<E: Element>(&self, slice: DeviceSlice<'_, E>) -> Operand {
        Operand { at: slice.address(), len: slice.len(), dtype: E::DTYPE, is_here: slice.is_of(&self.queue) }
    }

    /// A buffer that is written.
    pub(super) fn write<E: Element>(&self, slice: &DeviceSliceMut<'_, E>) -> Operand {
        self.read(slice.as_slice())
    }

    /// One call. Operands come in the order of [`Pass::reads`] and [`Pass::writes`].
    pub(super) fn call(&self, pass: Pass, reads: &[Operand], writes: &[Operand]) -> Result<(), Error> {
        let (index, prepared) = self.prepared(pass);
        let mut given = Vec::with_capacity(reads.len() + writes.len());
        let all = prepared.reads.iter().zip(reads).chain(prepared.writes.iter().zip(writes));
        for (&(what, buffer), operand) in all {
            let expected = prepared.plan.buffer(buffer).len();
            if !operand.is_here {
                return Err(Error::Elsewhere { what });
            }
            if operand.len != expected {
                let (dimensions, found) =
                    (dimensions(&self.shape, self.batch, self.lengths, what), operand.len);
                return Err(Error::Length { what, expected, dimensions, found });
            }
            given.push(Given { buffer, at: operand.at, dtype: operand.dtype });
        }
        let mut queue = self.queue.borrow_mut();
        let from = self.is_timed.get().then(|| queue.mark()).transpose()?;
        queue.call(prepared.id, &given)?;
        let to = self.is_timed.get().then(|| queue.mark()).transpose()?;
        drop(queue);
        let record = &mut self.records.borrow_mut()[index];
        record.calls += 1;
        record.under_way.extend(from.zip(to));
        if record.under_way.len() > MOST_MARKS {
            record.read(&self.queue)?;
        }
        Ok(())
    }
}

/// The dimensions of what is handed over under this name, in words.
fn dimensions(shape: &AttentionShape, batch: usize, [queries, keys]: [usize; 2], what: &str) -> String {
    let AttentionShape { heads, kv_heads, head_dim, layout, .. } = shape;
    let (heads, length) = match what {
        "lse" => return format!("batch {batch} x heads {heads} x query_length {queries}"),
        "qkv" | "d_qkv" => {
            (format!("heads and twice kv_heads {}", heads + 2 * kv_heads), format!("length {queries}"))
        }
        "k" | "v" | "d_k" | "d_v" => (format!("kv_heads {kv_heads}"), format!("key_length {keys}")),
        _ => (format!("heads {heads}"), format!("query_length {queries}")),
    };
    match layout {
        Layout::Bhsd => format!("batch {batch} x {heads} x {length} x head_dim {head_dim}"),
        _ => format!("batch {batch} x {length} x {heads} x head_dim {head_dim}"),
    }
}

/// Can the elements of every tensor be counted?
fn check_elements(shape: &AttentionShape, batch: usize, lengths: [usize; 2]) -> Result<(), Error> {
    let tensors = match shape.layout {
        Layout::Packed => vec![("qkv", shape.heads + 2 * shape.kv_heads, lengths[0])],
        Layout::Bshd | Layout::Bhsd => {
            vec![("q", shape.heads, lengths[0]), ("k", shape.kv_heads, lengths[1])]
        }
    };
    for (what, heads, length) in tensors {
        let elements = [length, heads, shape.head_dim].iter().try_fold(batch, |n, by| n.checked_mul(*by));
        if elements.is_none_or(|n| n > MOST_ELEMENTS) {
            let dimensions = dimensions(shape, batch, lengths, what);
            return Err(Error::Elements { what, most: MOST_ELEMENTS, dimensions });
        }
    }
    Ok(())
}

impl Record {
    /// Adds up what is under way, once it is done.
    fn read(&mut self, queue: &SharedQueue) -> Result<(), Error> {
        for (from, to) in self.under_way.drain(..) {
            self.seconds += queue.borrow_mut().seconds(from, to)?;
            self.timed += 1;
        }
        Ok(())
    }
}
