//! What can go wrong while training, and in which words.

use std::fmt;

use kernwright_plan::executor::ExecutorError;

use super::Fault;
use crate::batches::LoaderError;
use crate::checkpoint::CheckpointError;
use crate::corpus::CorpusError;
use crate::weights::WeightsError;

/// What can go wrong while training.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum TrainError {
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error(transparent)]
    Loader(#[from] LoaderError),
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("`{name}` must be {allowed}, found `{found}`")]
    Option { name: &'static str, allowed: String, found: String },
    #[error("the checkpoint has {found} tokens in {step} steps, and the options say {said}")]
    Tokens { step: u64, found: u64, said: u64 },
    #[error("no step is launched that could be finished")]
    NotLaunched,
    #[error("{0}")]
    Diverged(Box<Divergence>),
}

/// A number that training cannot go on from.
#[derive(Debug, Clone, PartialEq)]
pub struct Divergence {
    /// Which: `loss`, `gradient's norm`, `validation loss`.
    pub what: &'static str,
    /// The step, from 1, that gave it, or after which it was measured.
    pub step: u64,
    /// Its value.
    pub value: f64,
    /// The learning rate of the last update before it.
    pub learning_rate: f64,
    /// Where it began; none where a second run of the step was sound.
    pub fault: Option<Fault>,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, step, value, learning_rate, fault } = self;
        write!(f, "the {what} of step {step} is `{value}`: ")?;
        match fault {
            Some(fault) => write!(f, "{fault}")?,
            None => write!(f, "the same step run again was sound, so the device may be at fault")?,
        }
        write!(f, "; the learning rate may be too high, `{learning_rate:.3e}`")
    }
}
