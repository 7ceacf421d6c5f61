//! Sum, multiple, copy and zero.

use super::blocks::for_rows;
use super::matmul::Store;
use super::slots::{Output, Slots};
use kernwright_plan::executor::ExecutorError;
use kernwright_plan::ops::scale::Scale;

/// `y = a + b`.
pub(crate) fn add(mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (a, b, Output { matrix, store }) = (slots.read("a")?, slots.read("b")?, slots.take("y")?);
    for_rows(matrix, |row, y| {
        let pairs = a.row(row).iter().zip(b.row(row));
        match store {
            Store::Replace => y.iter_mut().zip(pairs).for_each(|(y, (a, b))| *y = a + b),
            Store::Add => y.iter_mut().zip(pairs).for_each(|(y, (a, b))| *y += a + b),
        }
    });
    Ok(())
}

/// `y = factor x`.
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn scale(op: &Scale, mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (x, Output { matrix, store }) = (slots.read("x")?, slots.take("y")?);
    let factor = op.factor as f32;
    for_rows(matrix, |row, y| match store {
        Store::Replace => y.iter_mut().zip(x.row(row)).for_each(|(y, x)| *y = factor * x),
        Store::Add => y.iter_mut().zip(x.row(row)).for_each(|(y, x)| *y += factor * x),
    });
    Ok(())
}

/// `y = x`.
pub(crate) fn copy(mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let (x, Output { matrix, store }) = (slots.read("x")?, slots.take("y")?);
    for_rows(matrix, |row, y| match store {
        Store::Replace => y.copy_from_slice(x.row(row)),
        Store::Add => y.iter_mut().zip(x.row(row)).for_each(|(y, x)| *y += x),
    });
    Ok(())
}

/// `y = 0`, or nothing where it adds.
pub(crate) fn zero(mut slots: Slots<'_>) -> Result<(), ExecutorError> {
    let Output { matrix, store } = slots.take("y")?;
    if store == Store::Replace {
        for_rows(matrix, |_, y| y.fill(0.0));
    }
    Ok(())
}
