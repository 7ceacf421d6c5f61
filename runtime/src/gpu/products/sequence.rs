//! The numbers that algorithms are tried on.
//!
//! In: a matrix's place. Out: its elements, of which the host knows every one without keeping them: matrices repeat a fixed
//! sequence of a prime number of elements.

use kernwright_plan::dtype::{self, Dtype};

/// Elements of the sequence: prime, so that no two rows of a matrix are alike.
const PERIOD: usize = 65_521;

/// A matrix's place in a copy of the operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) offset: usize,
    pub(super) bytes: usize,
    pub(super) dtype: Dtype,
    /// Where in the sequence it begins.
    phase: usize,
}

impl Place {
    /// That of the matrix with this number; each begins elsewhere in the sequence.
    pub(super) fn new(number: usize, offset: usize, bytes: usize, dtype: Dtype) -> Self {
        Self { offset, bytes, dtype, phase: 4099 * number % PERIOD }
    }
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

    /// What a matrix repeats, from its first element on.
    pub(super) fn pattern(&self, place: Place) -> Vec<u8> {
        let (head, tail) = self.of(place.dtype).1.split_at(place.phase * place.dtype.bytes());
        [tail, head].concat()
    }

    /// Elements of a matrix, as the GPU reads them: from one on, evenly apart.
    pub(super) fn walk(&self, place: Place, start: usize, stride: usize) -> impl Iterator<Item = f64> + '_ {
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

    /// One element of a matrix.
    pub(super) fn element(&self, place: Place, index: usize) -> f64 {
        self.walk(place, index, 0).next().unwrap_or(f64::NAN)
    }
}
