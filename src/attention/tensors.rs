//! How queries, keys and values are handed over, as types: calls that do not fit the declaration do not compile.

/// [`Separate`] or [`Packed`].
pub trait Tensors: sealed::Sealed {}

/// Queries, keys and values are buffers of their own.
#[derive(Clone, Copy, Debug)]
pub enum Separate {}

/// Queries, keys and values of a token are one row of one buffer.
#[derive(Clone, Copy, Debug)]
pub enum Packed {}

impl Tensors for Separate {}
impl Tensors for Packed {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Separate {}
    impl Sealed for super::Packed {}
}
