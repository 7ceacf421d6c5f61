//! Weights, data, schedules, the records of a run and its checkpoints: everything around a training step that is
//! the same whoever executes it.
//!
//! In: a corpus on disk, a step number. Out: batches, learning rates, metrics, plots, checkpoints. Nothing here
//! knows a GPU.

pub mod atomic_file;
pub mod batches;
pub mod bigram;
pub mod checkpoint;
pub mod checksum;
pub mod corpus;
pub mod generator;
mod message;
pub mod metrics;
pub mod permutation;
pub mod plot;
pub mod random;
pub mod run;
pub mod sample;
pub mod schedule;
pub mod split;
pub mod trainer;
pub mod weights;
