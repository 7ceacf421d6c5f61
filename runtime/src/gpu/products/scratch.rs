//! Operands that nobody needs, to check and time algorithms on.
//!
//! In: a [`Layout`], and the algorithms that are offered for it. Out: a [`Trial`] of them. Operands repeat a fixed
//! sequence of a prime number of elements, so that the host knows every element without keeping them. Must not know what
//! is done with the winner.

use super::descriptors::{Call, Operation};
use super::device::{Block, ByteRows, Device};
use super::functions::Offer;
use super::layout::{Added, Key, Layout};
use super::selection::{Fault, Trial};
use crate::driver::DriverError;
use cudarc::driver::sys::CUstream;
use kernwright_plan::dtype::{self, Dtype};

/// Elements of the sequence that operands repeat: prime, so that no two rows of a matrix are alike.
const PERIOD: usize = 65_521;
/// Operands of launches that follow each other lie apart, until they fill this much: more than a cache holds.
const ROTATED: usize = 192 << 20;
/// The most copies of operands.
const COPIES: usize = 16;
/// Bytes of a result that are looked at.
const LOOKED_AT: usize = 512 << 10;
/// Elements of a result that are compared with sums in double precision.
const SAMPLES: usize = 96;

/// A matrix's place in a copy of the operands.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: usize,
    bytes: usize,
    dtype: Dtype,
    /// Where in the sequence it begins.
    phase: usize,
}

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
    tolerance: f64,
    memory: Block,
    /// Bytes of one copy of all operands.
    copy: usize,
    n_copies: usize,
    places: Places,
    samples: Vec<Sample>,
    /// Mean square of what they should be.
    scale: f64,
    /// What the first right candidate computed.
    seen: Option<Vec<u8>>,
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct Places {
    left: Place,
    right: Place,
    c: Option<Place>,
    d: Place,
    bias: Option<Place>,
}

/// An element of what is downloaded, and what it should be.
#[derive(Clone, Copy, Debug)]
struct Sample {
    index: usize,
    expected: f64,
}

/// What a trial works with.
pub(super) struct Bench<'a> {
    pub(super) device: &'a Device,
    pub(super) stream: CUstream,
    pub(super) workspace: (u64, usize),
    pub(super) sequence: &'a Sequence,
    /// Must a candidate give the same bits each time?
    pub(super) deterministic: bool,
    /// Relative error that operands alone may make; see [`tolerance`].
    pub(super) operand_error: f64,
}

/// Numbers between -1 and 1, by a fixed rule, in each type that a matrix may have.
pub(super) struct Sequence(Vec<(Dtype, Vec<f64>, Vec<u8>)>);

impl Sequence {
    pub(super) fn new() -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            // xorshift64 of G. Marsaglia, 2003.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        };
        let exact: Vec<f64> = (0..PERIOD).map(|_| next()).collect();
        let of = |row: &dtype::Row| {
            let bytes = row.dtype.encode_all(exact.iter().copied());
            (row.dtype, row.dtype.decode_all(&bytes).collect(), bytes)
        };
        Self(dtype::ALL.iter().filter(|row| row.is_precision).map(of).collect())
    }

    fn of(&self, dtype: Dtype) -> (&[f64], &[u8]) {
        self.0.iter().find(|row| row.0 == dtype).map_or((&[], &[]), |(_, values, bytes)| (values, bytes))
    }

    /// Elements of a matrix, as the GPU reads them: from one on, evenly apart.
    fn walk(&self, place: Place, start: usize, stride: usize) -> impl Iterator<Item = f64> + '_ {
        let values = self.of(place.dtype).0;
        let (mut at, stride) = ((start + place.phase) % PERIOD, stride % PERIOD);
        std::iter::from_fn(move || {
            let value = values.get(at).copied();
            at += stride;
            if at >= PERIOD {
                at -= PERIOD;
            }
            value
        })
    }
}

/// Relative error, by root mean square, that a right algorithm stays below: the rounding of the result, of operands, and
/// of `depth` sums in fp32.
pub(super) fn tolerance(result: Dtype, operand_error: f64, depth: usize) -> f64 {
    result.epsilon() + operand_error + (depth as f64).sqrt() * 2.0_f64.powi(-20)
}

impl Layout {
    /// Where operands lie, one behind the other, each aligned as the real ones are.
    fn places(&self, key: &Key) -> (Places, usize) {
        let mut end = 0;
        let mut phase = 0;
        let mut place = |elements: usize, dtype: Dtype, alignment: u32| {
            // Bases are multiples of 256: what is less aligned is moved by that much, and by no more.
            let shift = if alignment < super::layout::ALIGNED { alignment as usize } else { 0 };
            let bytes = elements * dtype.bytes();
            let place = Place { offset: end + shift, bytes, dtype, phase };
            end = (end + shift + bytes).next_multiple_of(256);
            phase = (phase + 4099) % PERIOD;
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
        (Places { left, right, c, d, bias }, end)
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
            tolerance: tolerance(layout.d.dtype, bench.operand_error, layout.depth),
            memory,
            copy,
            n_copies,
            places,
            sequence: bench.sequence,
            deterministic: bench.deterministic,
            samples: Vec::new(),
            scale: 0.0,
            seen: None,
            next: 0,
        };
        let Places { left, right, c, d, bias } = places;
        for place in [Some(left), Some(right), c, Some(d), bias].into_iter().flatten() {
            scratch.fill(place)?;
        }
        let first = scratch.memory.at;
        for number in 1..n_copies {
            device.copy(first + (number * copy) as u64, first, copy, bench.stream)?;
        }
        scratch.samples = scratch.expected();
        let squares = scratch.samples.iter().map(|sample| sample.expected * sample.expected);
        scratch.scale = squares.sum::<f64>() / scratch.samples.len().max(1) as f64;
        Ok(scratch)
    }

    fn at(&self, number: usize, place: Place) -> u64 {
        self.memory.at + (number * self.copy + place.offset) as u64
    }

    /// Writes a matrix of the first copy.
    fn fill(&self, place: Place) -> Result<(), DriverError> {
        let (head, tail) = self.sequence.of(place.dtype).1.split_at(place.phase * place.dtype.bytes());
        self.device.repeat(self.at(0, place), &[tail, head].concat(), place.bytes, self.stream)
    }

    /// An element of a matrix, as the GPU reads it.
    fn element(&self, place: Place, index: usize) -> f64 {
        self.sequence.walk(place, index, 0).next().unwrap_or(f64::NAN)
    }

    fn call(&self, number: usize) -> Call {
        let Places { left, right, c, d, bias } = self.places;
        Call {
            left: self.at(number, left),
            right: self.at(number, right),
            c: self.at(number, c.unwrap_or(d)),
            d: self.at(number, d),
            bias: bias.map_or(0, |bias| self.at(number, bias)),
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

    fn look(&self) -> Result<Vec<u8>, DriverError> {
        let (first, step, batches) = self.rows();
        let d = &self.layout.d;
        let size = d.dtype.bytes();
        let mut bytes = Vec::new();
        for batch in batches {
            let rows = ByteRows {
                at: self.at(0, self.places.d) + ((batch * d.batch_stride + first * d.leading) * size) as u64,
                pitch: step * d.leading.max(d.rows) * size,
                width: d.rows * size,
                n_rows: d.columns.div_ceil(step),
            };
            bytes.extend(self.device.download(rows, self.stream)?);
        }
        Ok(bytes)
    }

    /// What some elements should be, by sums in double precision.
    fn expected(&self) -> Vec<Sample> {
        let (first, step, batches) = self.rows();
        let Layout { left, right, d, depth, .. } = self.layout;
        let per_batch = d.columns.div_ceil(step) * d.rows;
        let all = per_batch * batches.len();
        let mut samples = Vec::new();
        for number in 0..SAMPLES.min(all) {
            // Spread over all of them, the last among them, at no even distance.
            let index = all - 1 - (number * (all / SAMPLES.min(all)) + number * number % 7).min(all - 1);
            let batch = batches[index / per_batch];
            let (row, column) = (first + index % per_batch / d.rows * step, index % d.rows);
            let walk = |of: &super::layout::Matrix, fixed: usize, is_column: bool| {
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
                sum += self.element(place, batch * matrix.batch_stride + row * matrix.leading + column);
            }
            if let Some(bias) = self.places.bias {
                sum += self.element(bias, column);
            }
            samples.push(Sample { index, expected: sum });
        }
        samples
    }

    /// Runs a candidate once on a result that was spoiled before.
    fn run(&self, candidate: usize) -> Result<Result<Vec<u8>, Fault>, DriverError> {
        let d = self.places.d;
        match self.key.added {
            Added::InPlace => self.fill(d)?,
            // All bits set is a NaN in every type.
            _ => self.device.fill(self.at(0, d), 0xff, d.bytes, self.stream)?,
        }
        self.device.fill(self.workspace.0, 0xff, self.workspace.1, self.stream)?;
        if let Err(refusal) = self.operation.launch(&self.offers[candidate].algorithm, self.call(0)) {
            return Ok(Err(Fault::Refused(refusal.to_string())));
        }
        self.look().map(Ok)
    }

    /// What is wrong with a result.
    fn compare(&self, found: &[u8]) -> Option<String> {
        let dtype = self.layout.d.dtype;
        let size = dtype.bytes();
        let value = |bytes: &[u8], index: usize| {
            dtype.decode_all(&bytes[index * size..(index + 1) * size]).next().unwrap_or(f64::NAN)
        };
        let of_samples = self.samples.iter().map(|sample| (value(found, sample.index), sample.expected));
        if let Some(error) = excess(of_samples, self.scale, self.tolerance) {
            return Some(format!("is off by {error:.1e} against sums in double precision"));
        }
        let Some(seen) = &self.seen else {
            let is_finite = dtype.decode_all(found).all(f64::is_finite);
            return (!is_finite).then(|| "leaves elements unwritten, or gives a NaN".to_owned());
        };
        let pairs = seen.chunks_exact(size).zip(found.chunks_exact(size));
        let different = pairs.enumerate().filter(|(_, (a, b))| a != b).map(|(index, _)| index);
        let different: Vec<usize> = different.collect();
        // Those that agree are right; those that do not are judged by themselves, or a wrong tile would drown in the rest.
        let judged = different.iter().map(|&index| (value(found, index), value(seen, index)));
        // Two right results differ by up to twice what each is off, and elements that differ are the unlucky ones.
        excess(judged, self.scale, 4.0 * self.tolerance)
            .map(|error| format!("is off by {error:.1e} where it differs from another"))
    }
}

/// The error by root mean square, relative to numbers whose mean square is `scale`, where it is not below `tolerance`.
fn excess(pairs: impl Iterator<Item = (f64, f64)>, scale: f64, tolerance: f64) -> Option<f64> {
    let (mut error, mut count) = (0.0, 0);
    for (found, expected) in pairs {
        error += (found - expected) * (found - expected);
        count += 1;
    }
    let relative = (error / (f64::from(count.max(1)) * scale)).sqrt();
    // A NaN is below nothing.
    let is_right = relative < tolerance;
    (!is_right).then_some(relative)
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
        self.seen.get_or_insert(first);
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
