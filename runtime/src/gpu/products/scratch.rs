//! Operands that nobody needs, to check and time algorithms on.
//!
//! In: a [`Layout`], and the algorithms that are offered for it. Out: a [`Trial`] of them. Must not know what is done with
//! the winner.

use super::descriptors::{Beside, Call, Operation};
use super::device::{Block, ByteRows, Device};
use super::functions::Offer;
use super::layout::{Added, Key, Layout, Matrix};
use super::selection::{Fault, Trial};
use super::sequence::{Place, Sequence};
use super::verdict::{GELU_ERROR, Right, Sample, tolerance};
use crate::driver::DriverError;
use cudarc::driver::sys::CUstream;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::launch::Epilogue;
use kernwright_plan::ops::linear::GELU;

/// Operands of launches that follow each other lie apart, until they fill this much: more than a cache holds.
const ROTATED: usize = 192 << 20;
/// The most copies of operands.
const COPIES: usize = 16;
/// Bytes of a result that are looked at.
const LOOKED_AT: usize = 512 << 10;
/// Elements of a result that are compared with sums in double precision.
const SAMPLES: usize = 96;

/// Operands on the GPU, and what is known of the right result.
pub(super) struct Scratch<'a> {
    device: &'a Device,
    stream: CUstream,
    operation: &'a Operation,
    layout: &'a Layout,
    key: &'a Key,
    offers: &'a [Offer],
    workspace: (u64, usize),
    sequence: &'a Sequence,
    deterministic: bool,
    memory: Block,
    /// Bytes of one copy of all operands.
    copy: usize,
    n_copies: usize,
    places: Places,
    /// What is written, the result first.
    written: Vec<Written>,
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct Places {
    left: Place,
    right: Place,
    c: Option<Place>,
    d: Place,
    bias: Option<Place>,
    epilogue: Epilogue<Place>,
}

/// A matrix that an algorithm writes.
struct Written {
    matrix: Matrix,
    place: Place,
    right: Right,
    /// Behind what is wrong with it.
    name: &'static str,
}

/// What a trial works with.
pub(super) struct Bench<'a> {
    pub(super) device: &'a Device,
    pub(super) stream: CUstream,
    pub(super) workspace: (u64, usize),
    pub(super) sequence: &'a Sequence,
    /// Must a candidate give the same bits each time?
    pub(super) deterministic: bool,
    /// Relative error that operands alone may make.
    pub(super) operand_error: f64,
}

impl Layout {
    /// Where operands lie, one behind the other, each aligned as the real ones are.
    fn places(&self, key: &Key) -> (Places, usize) {
        let (mut end, mut number) = (0, 0);
        let mut place = |elements: usize, dtype: Dtype, alignment: u32| {
            // Bases are multiples of 256: what is less aligned is moved by that much, and by no more.
            let shift = if alignment < super::layout::ALIGNED { alignment as usize } else { 0 };
            let bytes = elements * dtype.bytes();
            let place = Place::new(number, end + shift, bytes, dtype);
            end = (end + shift + bytes).next_multiple_of(256);
            number += 1;
            place
        };
        let left = place(self.left.extent(self.batches), self.left.dtype, key.left.alignment);
        let right = place(self.right.extent(self.batches), self.right.dtype, key.right.alignment);
        let d = place(self.d.extent(self.batches), self.d.dtype, key.d.alignment);
        let c = match (&key.added, &self.c) {
            (Added::Apart(side), Some(c)) => Some(place(c.extent(self.batches), c.dtype, side.alignment)),
            _ => None,
        };
        let bias = match (key.bias, &self.bias) {
            (Some(alignment), Some(bias)) => Some(place(self.d.rows, bias.dtype, alignment)),
            _ => None,
        };
        let alignment = key.epilogue.matrix().map_or(super::layout::ALIGNED, |side| side.alignment);
        let epilogue = self.epilogue.map(|matrix| place(matrix.extent(1), matrix.dtype, alignment));
        (Places { left, right, c, d, bias, epilogue }, end)
    }
}

impl<'a> Scratch<'a> {
    /// Takes memory and fills it.
    ///
    /// # Errors
    /// [`DriverError::Memory`] when there is no room for one copy of the operands.
    pub(super) fn new(
        bench: &Bench<'a>,
        operation: &'a Operation,
        layout: &'a Layout,
        key: &'a Key,
        offers: &'a [Offer],
    ) -> Result<Self, DriverError> {
        let (places, copy) = layout.places(key);
        let mut n_copies = ROTATED.div_ceil(copy.max(1)).clamp(1, COPIES);
        let device = bench.device;
        let memory = loop {
            match device.allocate("operands to try algorithms on", copy * n_copies) {
                Err(DriverError::Memory { .. }) if n_copies > 1 => n_copies /= 2,
                other => break other?,
            }
        };
        let mut scratch = Self {
            device,
            stream: bench.stream,
            operation,
            layout,
            key,
            offers,
            workspace: bench.workspace,
            memory,
            copy,
            n_copies,
            places,
            sequence: bench.sequence,
            deterministic: bench.deterministic,
            written: Vec::new(),
            next: 0,
        };
        let Places { left, right, c, d, bias, epilogue } = places;
        for place in
            [Some(left), Some(right), c, Some(d), bias, epilogue.matrix().copied()].into_iter().flatten()
        {
            scratch.fill(place)?;
        }
        let first = scratch.memory.at;
        for number in 1..n_copies {
            device.copy(first + (number * copy) as u64, first, copy, bench.stream)?;
        }
        scratch.written = scratch.expected(bench.operand_error);
        Ok(scratch)
    }

    fn at(&self, number: usize, place: Place) -> u64 {
        self.memory.at + (number * self.copy + place.offset) as u64
    }

    /// Writes a matrix of the first copy.
    fn fill(&self, place: Place) -> Result<(), DriverError> {
        self.device.repeat(self.at(0, place), &self.sequence.pattern(place), place.bytes, self.stream)
    }

    fn call(&self, number: usize) -> Call {
        let Places { left, right, c, d, bias, epilogue } = self.places;
        let beside = Beside {
            bias: bias.map_or(0, |bias| self.at(number, bias)),
            epilogue: epilogue.matrix().map_or(0, |place| self.at(number, *place)),
        };
        Call {
            left: self.at(number, left),
            right: self.at(number, right),
            c: self.at(number, c.unwrap_or(d)),
            d: self.at(number, d),
            beside,
            workspace: self.workspace,
            stream: self.stream,
        }
    }

    /// The rows of the result that are looked at, row-major, evenly spread and with the last; of the first batch, and of
    /// the last.
    fn rows(&self) -> (usize, usize, Vec<usize>) {
        let d = &self.layout.d;
        let width = d.rows * d.dtype.bytes();
        let step = d.columns.div_ceil((LOOKED_AT / width.max(1)).max(1));
        let first = (d.columns - 1) % step;
        let batches = if self.layout.batches > 1 { vec![0, self.layout.batches - 1] } else { vec![0] };
        (first, step, batches)
    }

    /// Those rows of a matrix that is written.
    fn look(&self, of: &Written) -> Result<Vec<u8>, DriverError> {
        let (first, step, batches) = self.rows();
        let Written { matrix, place, .. } = of;
        let size = matrix.dtype.bytes();
        let mut bytes = Vec::new();
        for batch in batches {
            let start = (batch * matrix.batch_stride + first * matrix.leading) * size;
            let rows = ByteRows {
                at: self.at(0, *place) + start as u64,
                pitch: step * matrix.leading.max(matrix.rows) * size,
                width: matrix.rows * size,
                n_rows: matrix.columns.div_ceil(step),
            };
            bytes.extend(self.device.download(rows, self.stream)?);
        }
        Ok(bytes)
    }

    /// What is written, and what some elements of it should be, by sums in double precision.
    fn expected(&self, operand_error: f64) -> Vec<Written> {
        let (first, step, batches) = self.rows();
        let (d, epilogue) = (self.layout.d, self.places.epilogue);
        let per_batch = d.columns.div_ceil(step) * d.rows;
        let all = per_batch * batches.len();
        let (mut results, mut inputs) = (Vec::new(), Vec::new());
        for number in 0..SAMPLES.min(all) {
            // Spread over all of them, the last among them, at no even distance.
            let index = all - 1 - (number * (all / SAMPLES.min(all)) + number * number % 7).min(all - 1);
            let batch = batches[index / per_batch];
            let (row, column) = (first + index % per_batch / d.rows * step, index % d.rows);
            let sum = self.sum(batch, row, column);
            let result = match epilogue {
                Epilogue::None => sum,
                Epilogue::Gelu(_) => GELU.value_and_slope(sum).0,
                Epilogue::GeluSlope(place) => {
                    let leading = self.layout.epilogue.matrix().map_or(0, |matrix| matrix.leading);
                    let input = self.sequence.element(place, row * leading + column);
                    sum * GELU.value_and_slope(input).1
                }
            };
            results.push(Sample { index, expected: result });
            inputs.push(Sample { index, expected: sum });
        }
        let gelu_error = if self.layout.epilogue == Epilogue::None { 0.0 } else { GELU_ERROR };
        let written = |matrix: Matrix, place, samples, error: f64, name| {
            let tolerance = tolerance(matrix.dtype, operand_error + error, self.layout.depth);
            Written { matrix, place, right: Right::new(matrix.dtype, tolerance, samples), name }
        };
        let mut all = vec![written(d, self.places.d, results, gelu_error, "")];
        if let (Epilogue::Gelu(Some(place)), Some(matrix)) = (epilogue, self.layout.epilogue.matrix()) {
            all.push(written(*matrix, place, inputs, 0.0, " in the gelu's input"));
        }
        all
    }

    /// An element of the result before the epilogue.
    fn sum(&self, batch: usize, row: usize, column: usize) -> f64 {
        let Layout { left, right, depth, .. } = self.layout;
        let walk = |of: &Matrix, fixed: usize, is_column: bool| {
            let along_rows = is_column != of.transposed;
            let (start, stride) = if along_rows { (fixed * of.leading, 1) } else { (fixed, of.leading) };
            (batch * of.batch_stride + start, stride)
        };
        let (left_start, left_stride) = walk(left, column, false);
        let (right_start, right_stride) = walk(right, row, true);
        let of_left = self.sequence.walk(self.places.left, left_start, left_stride);
        let of_right = self.sequence.walk(self.places.right, right_start, right_stride);
        let mut sum: f64 = of_left.zip(of_right).take(*depth).map(|(a, b)| a * b).sum();
        if let (Some(matrix), place) = (&self.layout.c, self.places.c.unwrap_or(self.places.d)) {
            let index = batch * matrix.batch_stride + row * matrix.leading + column;
            sum += self.sequence.element(place, index);
        }
        if let Some(bias) = self.places.bias {
            sum += self.sequence.element(bias, column);
        }
        sum
    }

    /// Runs a candidate once on results that were spoiled before.
    fn run(&self, candidate: usize) -> Result<Result<Vec<Vec<u8>>, Fault>, DriverError> {
        for Written { place, .. } in &self.written {
            match self.key.added {
                Added::InPlace => self.fill(*place)?,
                // All bits set is a NaN in every type.
                _ => self.device.fill(self.at(0, *place), 0xff, place.bytes, self.stream)?,
            }
        }
        self.device.fill(self.workspace.0, 0xff, self.workspace.1, self.stream)?;
        if let Err(refusal) = self.operation.launch(&self.offers[candidate].algorithm, self.call(0)) {
            return Ok(Err(Fault::Refused(refusal.to_string())));
        }
        self.written.iter().map(|written| self.look(written)).collect::<Result<_, _>>().map(Ok)
    }

    /// What is wrong with results.
    fn compare(&self, found: &[Vec<u8>]) -> Option<String> {
        let mut faults = self.written.iter().zip(found).filter_map(|(written, found)| {
            written.right.fault(found).map(|fault| format!("{fault}{}", written.name))
        });
        faults.next()
    }
}

impl Trial for Scratch<'_> {
    fn fault(&mut self, candidate: usize) -> Result<Option<Fault>, DriverError> {
        let first = match self.run(candidate)? {
            Ok(found) => found,
            Err(refusal) => return Ok(Some(refusal)),
        };
        if let Some(fault) = self.compare(&first) {
            return Ok(Some(Fault::Wrong(fault)));
        }
        let again = self.run(candidate)?;
        if self.deterministic && again.as_ref() != Ok(&first) {
            return Ok(Some(Fault::Unordered));
        }
        self.written.iter_mut().zip(first).for_each(|(written, found)| written.right.keep(found));
        Ok(None)
    }

    fn seconds(&mut self, candidate: usize, repeats: usize) -> Result<f64, DriverError> {
        let algorithm = self.offers[candidate].algorithm;
        let first = self.next;
        self.next = (first + repeats) % self.n_copies;
        let taken = self.device.seconds(self.stream, || {
            (0..repeats).try_for_each(|number| {
                self.operation.launch(&algorithm, self.call((first + number) % self.n_copies))
            })
        })?;
        Ok(taken / repeats.max(1) as f64)
    }
}
