//! What an op of the CPU executor gets: a matrix per slot of its step.
//!
//! In: matrices cut by the storage. Out: matrices by slot name, or the complaint that the step lacks one. A slot
//! that is read and written in place is found among the written ones only. Slots come in the order of the step.

use super::matmul::{Matrix, MatrixMut, Store};
use kernwright_plan::executor::ExecutorError;

/// A matrix to write and what becomes of its content.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    pub(crate) matrix: MatrixMut<'a>,
    pub(crate) store: Store,
}

impl Output<'_> {
    /// The same place for a shorter time.
    pub(crate) fn whole(&mut self) -> Output<'_> {
        Output { matrix: self.matrix.reborrow(), store: self.store }
    }

    /// The same place for the next of several parts of a sum: the first one follows the store, later ones add.
    pub(crate) fn next_part(&mut self) -> Output<'_> {
        let store = std::mem::replace(&mut self.store, Store::Add);
        Output { matrix: self.matrix.reborrow(), store }
    }
}

/// The matrices of a step.
#[derive(Debug)]
pub(crate) struct Slots<'a> {
    op: &'static str,
    pub(crate) reads: Vec<(&'static str, Matrix<'a>)>,
    pub(crate) writes: Vec<(&'static str, Output<'a>)>,
}

impl<'a> Slots<'a> {
    pub(crate) fn new(op: &'static str) -> Self {
        Self { op, reads: Vec::new(), writes: Vec::new() }
    }

    fn lacks(&self, slot: &str) -> ExecutorError {
        ExecutorError::Plan(format!("a `{}` step has no `{slot}` apart from what it writes", self.op))
    }

    /// An optional slot that is read.
    pub(crate) fn find(&self, slot: &str) -> Option<Matrix<'a>> {
        self.reads.iter().find(|(name, _)| *name == slot).map(|(_, matrix)| *matrix)
    }

    /// A slot that is read.
    pub(crate) fn read(&self, slot: &str) -> Result<Matrix<'a>, ExecutorError> {
        self.find(slot).ok_or_else(|| self.lacks(slot))
    }

    /// A slot that is read and has rows without gaps, such as a vector.
    pub(crate) fn read_slice(&self, slot: &str) -> Result<&'a [f32], ExecutorError> {
        self.read(slot)?.slice().ok_or_else(|| self.strided(slot))
    }

    /// The first element of a slot that is read.
    pub(crate) fn read_scalar(&self, slot: &str) -> Result<f32, ExecutorError> {
        self.read_slice(slot)?.first().copied().ok_or_else(|| self.lacks(slot))
    }

    /// The first element of a slot of whole numbers.
    pub(crate) fn read_integer(&self, slot: &str) -> Result<i32, ExecutorError> {
        Ok(self.read_scalar(slot)?.to_bits().cast_signed())
    }

    /// A slot of whole numbers.
    pub(crate) fn read_integers(&self, slot: &str) -> Result<Vec<i64>, ExecutorError> {
        let words = self.read_slice(slot)?.iter();
        Ok(words.map(|word| i64::from(word.to_bits().cast_signed())).collect())
    }

    /// Is this slot written?
    pub(crate) fn writes(&self, slot: &str) -> bool {
        self.writes.iter().any(|(name, _)| *name == slot)
    }

    /// An optional slot that is written.
    pub(crate) fn take_optional(&mut self, slot: &str) -> Option<Output<'a>> {
        let at = self.writes.iter().position(|(name, _)| *name == slot)?;
        Some(self.writes.swap_remove(at).1)
    }

    /// A slot that is written.
    pub(crate) fn take(&mut self, slot: &str) -> Result<Output<'a>, ExecutorError> {
        self.take_optional(slot).ok_or_else(|| self.lacks(slot))
    }

    /// A slot that is written by an op that always replaces.
    pub(crate) fn take_replaced(&mut self, slot: &str) -> Result<MatrixMut<'a>, ExecutorError> {
        let Output { matrix, store } = self.take(slot)?;
        if store == Store::Replace {
            return Ok(matrix);
        }
        Err(ExecutorError::Plan(format!("a `{}` step cannot add to its `{slot}`", self.op)))
    }

    /// A replaced slot whose rows have no gaps.
    pub(crate) fn take_slice(&mut self, slot: &str) -> Result<&'a mut [f32], ExecutorError> {
        let matrix = self.take_replaced(slot)?;
        matrix.into_slice().ok_or_else(|| self.strided(slot))
    }

    /// A slot `write` that an op works on in place; where `read` is another buffer, its content is copied first.
    pub(crate) fn take_in_place(&mut self, read: &str, write: &str) -> Result<MatrixMut<'a>, ExecutorError> {
        let mut matrix = self.take_replaced(write)?;
        if let Some(from) = self.find(read) {
            for row in 0..matrix.n_rows() {
                matrix.row(row).copy_from_slice(from.row(row));
            }
        }
        Ok(matrix)
    }

    /// The number of a slot that is changed in place.
    pub(crate) fn take_number(&mut self, slot: &str) -> Result<&'a mut f32, ExecutorError> {
        if self.find(slot).is_some() {
            return Err(ExecutorError::Plan(format!("a `{}` step changes its `{slot}` in place", self.op)));
        }
        self.take_slice(slot)?.first_mut().ok_or_else(|| self.lacks(slot))
    }

    fn strided(&self, slot: &str) -> ExecutorError {
        ExecutorError::Plan(format!("`{slot}` of a `{}` step must not be a view", self.op))
    }
}
