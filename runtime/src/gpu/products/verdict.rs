//! Whether what an algorithm wrote is right.
//!
//! In: what it wrote, what some elements should be, and what the first right algorithm wrote. Out: what is wrong, in words.
//! Must not know how it was computed.

use kernwright_plan::dtype::Dtype;

/// Relative error, by root mean square, that a gelu of the library's may add: its tangent need not be exact.
pub(super) const GELU_ERROR: f64 = 1.0 / 1024.0;

/// Relative error, by root mean square, that a right algorithm stays below: the rounding of the result, what `else_error` says
/// of operands and of what becomes of sums, and `depth` sums in fp32.
pub(super) fn tolerance(result: Dtype, else_error: f64, depth: usize) -> f64 {
    result.epsilon() + else_error + (depth as f64).sqrt() * 2.0_f64.powi(-20)
}

/// An element of what is looked at, and what it should be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) index: usize,
    pub(super) expected: f64,
}

/// What is known of a matrix that an algorithm writes.
#[derive(Clone, Debug)]
pub(super) struct Right {
    dtype: Dtype,
    tolerance: f64,
    samples: Vec<Sample>,
    /// Mean square of what they should be.
    scale: f64,
    /// What the first right algorithm wrote.
    seen: Option<Vec<u8>>,
}

impl Right {
    pub(super) fn new(dtype: Dtype, tolerance: f64, samples: Vec<Sample>) -> Self {
        let squares = samples.iter().map(|sample| sample.expected * sample.expected);
        let scale = squares.sum::<f64>() / samples.len().max(1) as f64;
        Self { dtype, tolerance, samples, scale, seen: None }
    }

    /// Takes what was found to be right, to hold others to it.
    pub(super) fn keep(&mut self, found: Vec<u8>) {
        self.seen.get_or_insert(found);
    }

    /// What is wrong.
    pub(super) fn fault(&self, found: &[u8]) -> Option<String> {
        let Self { dtype, tolerance, scale, .. } = *self;
        let size = dtype.bytes();
        let value = |bytes: &[u8], index: usize| {
            dtype.decode_all(&bytes[index * size..(index + 1) * size]).next().unwrap_or(f64::NAN)
        };
        let of_samples = self.samples.iter().map(|sample| (value(found, sample.index), sample.expected));
        if let Some(error) = excess(of_samples, scale, tolerance) {
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
        excess(judged, scale, 4.0 * tolerance)
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
