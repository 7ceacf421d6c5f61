//! What can go wrong in calls from a user's program.

use kernwright_plan::chain;
use kernwright_plan::executor::ExecutorError;

/// Why a device or a call fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device cannot be used.
    #[error("{0}")]
    Device(String),
    /// A size is out of bounds.
    #[error("`{what}` must be a whole number from 1 to {most}, found `{found}`")]
    Size {
        /// Its name.
        what: &'static str,
        /// The greatest.
        most: usize,
        /// What was given.
        found: usize,
    },
    /// A tensor is larger than any device.
    #[error("`{what}` must have at most {most} elements, found {dimensions}")]
    Elements {
        /// Its name.
        what: &'static str,
        /// The greatest number.
        most: usize,
        /// What was given, in words.
        dimensions: String,
    },
    /// Packed tensors with other lengths for keys than for queries.
    #[error(
        "packed queries and keys are rows of one buffer: `query_length` must be `key_length`, found `{query_length}` and \
         `{key_length}`"
    )]
    Lengths {
        /// Queries of a sequence.
        query_length: usize,
        /// Its keys.
        key_length: usize,
    },
    /// A buffer is too short or too long.
    #[error("`{what}` must hold {expected} elements ({dimensions}), found {found}")]
    Length {
        /// What it stands for.
        what: &'static str,
        /// How many it must have.
        expected: usize,
        /// Why, in words.
        dimensions: String,
        /// How many it has.
        found: usize,
    },
    /// A buffer is another device's.
    #[error("`{what}` lies on another device than the one that this was compiled for")]
    Elsewhere {
        /// What it stands for.
        what: &'static str,
    },
    /// The text of a declaration is damaged.
    #[error("the declaration cannot be read: {0}")]
    Declaration(String),
    /// The device failed, or has no room.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
}

impl Error {
    /// What is in the way of a device.
    pub(crate) fn open(error: impl std::error::Error) -> Self {
        Self::Device(chain(&error))
    }
}
