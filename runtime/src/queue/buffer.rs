//! Memory on a device that knows its elements, its device and its end.
//!
//! In: a queue. Out: buffers and parts of them to hand to calls. Dropping one while something still uses it is safe: its
//! memory is reused in the order of the queue.

use super::{ALIGNMENT, Element, Queue};
use crate::driver::{Address, Allocation};
use kernwright_plan::executor::ExecutorError;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::rc::Rc;

/// A queue that buffers and calls share.
pub type SharedQueue = Rc<RefCell<dyn Queue>>;

/// Elements on a device.
pub struct DeviceBuffer<T> {
    queue: SharedQueue,
    memory: Allocation,
    len: usize,
    elements: PhantomData<T>,
}

impl<T> std::fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeviceBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        self.queue.borrow_mut().give_back(self.memory);
    }
}

impl<T: Element> DeviceBuffer<T> {
    /// So many elements, which nobody wrote yet; the name is for messages.
    ///
    /// # Errors
    /// When the memory cannot be had.
    pub fn unwritten(queue: &SharedQueue, name: &str, len: usize) -> Result<Self, ExecutorError> {
        let bytes = len.checked_mul(size_of::<T>()).ok_or(ExecutorError::Memory { needed: usize::MAX })?;
        let memory = queue.borrow_mut().take(name, bytes.max(1))?;
        Ok(Self { queue: Rc::clone(queue), memory, len, elements: PhantomData })
    }

    /// A copy of these elements.
    ///
    /// # Errors
    /// When the memory cannot be had or the device fails.
    pub fn of(queue: &SharedQueue, elements: &[T]) -> Result<Self, ExecutorError> {
        let mut buffer = Self::unwritten(queue, "a buffer", elements.len())?;
        buffer.upload(elements)?;
        Ok(buffer)
    }

    /// How many elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Has it none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Replaces all elements; returns before they are there.
    ///
    /// # Errors
    /// When there are more or fewer of them, or the device fails.
    pub fn upload(&mut self, elements: &[T]) -> Result<(), ExecutorError> {
        self.as_slice_mut().upload(elements)
    }

    /// All elements, once everything that was asked for before is done.
    ///
    /// # Errors
    /// When the device fails, or anything before did.
    pub fn download(&self) -> Result<Vec<T>, ExecutorError> {
        let mut elements = vec![T::zeroed(); self.len];
        self.as_slice().download(&mut elements)?;
        Ok(elements)
    }

    /// All of it.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { buffer: self, first: 0, len: self.len }
    }

    /// All of it, to be written.
    #[must_use]
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        let len = self.len;
        DeviceSliceMut { buffer: self, first: 0, len }
    }

    /// A part of it, from a multiple of 16 bytes on.
    ///
    /// # Errors
    /// When it reaches past the end or begins between two such multiples.
    pub fn slice(&self, part: Range<usize>) -> Result<DeviceSlice<'_, T>, ExecutorError> {
        self.check(&part)?;
        Ok(DeviceSlice { buffer: self, first: part.start, len: part.len() })
    }

    /// The same, to be written.
    ///
    /// # Errors
    /// As [`Self::slice`].
    pub fn slice_mut(&mut self, part: Range<usize>) -> Result<DeviceSliceMut<'_, T>, ExecutorError> {
        self.check(&part)?;
        Ok(DeviceSliceMut { buffer: self, first: part.start, len: part.len() })
    }

    fn check(&self, part: &Range<usize>) -> Result<(), ExecutorError> {
        let step = ALIGNMENT / size_of::<T>();
        if part.start > part.end || part.end > self.len {
            let (Range { start, end }, len) = (part, self.len);
            return Err(ExecutorError::Data(format!(
                "a part of a buffer must lie in its {len} elements, found `{start}..{end}`"
            )));
        }
        if !part.start.is_multiple_of(step) {
            return Err(ExecutorError::Data(format!(
                "a part of a buffer must begin at a multiple of {step} elements, found `{}`",
                part.start
            )));
        }
        Ok(())
    }

    fn address(&self, first: usize) -> Address {
        Address { allocation: self.memory, offset: first * size_of::<T>() }
    }
}

/// A part of a buffer that is read.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSlice<'a, T> {
    buffer: &'a DeviceBuffer<T>,
    first: usize,
    len: usize,
}

/// A part of a buffer that is written.
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    buffer: &'a mut DeviceBuffer<T>,
    first: usize,
    len: usize,
}

impl<T: Element> DeviceSlice<'_, T> {
    /// How many elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Has it none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its elements, once everything that was asked for before is done.
    ///
    /// # Errors
    /// When there is room for more or fewer of them, the device fails, or anything before did.
    pub fn download(&self, elements: &mut [T]) -> Result<(), ExecutorError> {
        check_len::<T>(self.len, elements.len())?;
        self.buffer.queue.borrow().download(self.address(), bytemuck::cast_slice_mut(elements))
    }

    /// Where it lies.
    #[must_use]
    pub fn address(&self) -> Address {
        self.buffer.address(self.first)
    }

    /// Is it in the memory of this queue?
    #[must_use]
    pub fn is_of(&self, queue: &SharedQueue) -> bool {
        Rc::ptr_eq(&self.buffer.queue, queue)
    }
}

impl<T: Element> DeviceSliceMut<'_, T> {
    /// The same part, to be read.
    #[must_use]
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice { buffer: self.buffer, first: self.first, len: self.len }
    }

    /// Replaces its elements; returns before they are there.
    ///
    /// # Errors
    /// When there are more or fewer of them, or the device fails.
    pub fn upload(&mut self, elements: &[T]) -> Result<(), ExecutorError> {
        check_len::<T>(self.len, elements.len())?;
        let at = self.as_slice().address();
        self.buffer.queue.borrow_mut().upload(at, bytemuck::cast_slice(elements))
    }
}

impl<'a, T: Element> From<&'a DeviceBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        buffer.as_slice()
    }
}

impl<'a, T: Element> From<&'a mut DeviceBuffer<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        buffer.as_slice_mut()
    }
}

fn check_len<T: Element>(expected: usize, found: usize) -> Result<(), ExecutorError> {
    if expected == found {
        return Ok(());
    }
    let dtype = T::DTYPE.name();
    Err(ExecutorError::Data(format!("the buffer holds {expected} elements of {dtype}, found {found}")))
}
