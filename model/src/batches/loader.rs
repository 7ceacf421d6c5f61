//! A thread that prepares the next batches while a step runs.
//!
//! In: a [`Sampler`] and where to start. Out: its batches, in order. The position it reports is that of the batches
//! taken from it, not of those prepared, so it may be written down at any time.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

use super::{Batch, Position, Sampler};
use crate::corpus::CorpusError;

/// Batches prepared ahead. Dropping it ends its thread.
#[derive(Debug)]
pub struct Loader {
    batches: Option<Receiver<Result<(Batch, Position), CorpusError>>>,
    thread: Option<JoinHandle<()>>,
    position: Position,
}

/// Why there is no next batch.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum LoaderError {
    #[error("cannot read the next batch")]
    Corpus(#[from] CorpusError),
    #[error("the thread that prepares batches ended at epoch `{}`, window `{}`", .0.epoch, .0.index)]
    Ended(Position),
    #[error("cannot start the thread that prepares batches")]
    Start(#[source] std::io::Error),
    #[error(
        "the position in the corpus must be below window `{n_windows}` of epoch `{}`, found `{}`: \
         is it the same corpus, seed and length",
        position.epoch,
        position.index
    )]
    Position { position: Position, n_windows: u64 },
}

impl Loader {
    /// Starts to prepare the batches of `sampler` from `position` on, `n_ready` of them ahead beside the one that is being
    /// prepared.
    pub fn start(sampler: Sampler, position: Position, n_ready: usize) -> Result<Self, LoaderError> {
        if !sampler.can_resume(position) {
            return Err(LoaderError::Position { position, n_windows: sampler.n_windows(position.epoch) });
        }
        let (sender, batches) = sync_channel(n_ready);
        let mut next = position;
        let prepare = move || {
            loop {
                let prepared = sampler.read(next);
                let failed = prepared.is_err();
                if let Ok((_, after)) = &prepared {
                    next = *after;
                }
                if sender.send(prepared).is_err() || failed {
                    return;
                }
            }
        };
        let thread =
            thread::Builder::new().name("batches".to_owned()).spawn(prepare).map_err(LoaderError::Start)?;
        Ok(Self { batches: Some(batches), thread: Some(thread), position })
    }

    /// Takes the next batch, waiting for it where it is not ready.
    pub fn take(&mut self) -> Result<Batch, LoaderError> {
        let prepared = self.batches.as_ref().and_then(|batches| batches.recv().ok());
        let (batch, position) = prepared.ok_or(LoaderError::Ended(self.position))??;
        self.position = position;
        Ok(batch)
    }

    /// Where the batch that comes next starts: what to resume from.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // With nobody to receive, the thread's next send fails and it returns.
        drop(self.batches.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::tests::sampler;

    #[test]
    fn batches_and_positions_are_those_of_the_sampler() {
        let sampler = sampler(199, 3, 10);
        let mut loader = Loader::start(sampler.clone(), Position::default(), 2).unwrap();
        let mut position = Position::default();
        for step in 0..50 {
            assert_eq!(loader.position(), position, "step {step}");
            let (batch, next) = sampler.read(position).unwrap();
            assert_eq!(loader.take().unwrap(), batch, "step {step}");
            position = next;
        }
        assert!(position.epoch > 3);
    }

    #[test]
    fn a_run_resumed_at_any_step_takes_the_same_batches() {
        let sampler = sampler(101, 2, 7);
        let mut whole = Loader::start(sampler.clone(), Position::default(), 2).unwrap();
        let mut positions = Vec::new();
        let mut batches = Vec::new();
        for _ in 0..20 {
            let written = serde_json::to_string(&whole.position()).unwrap();
            positions.push(serde_json::from_str::<Position>(&written).unwrap());
            batches.push(whole.take().unwrap());
        }
        for (step, position) in positions.into_iter().enumerate() {
            let mut resumed = Loader::start(sampler.clone(), position, 3).unwrap();
            for batch in &batches[step..] {
                assert_eq!(resumed.take().unwrap(), *batch, "resumed at {step}");
            }
        }
    }

    #[test]
    fn a_position_of_another_corpus_is_refused() {
        let error = Loader::start(sampler(101, 2, 7), Position { epoch: 1, index: 14 }, 2).unwrap_err();
        assert!(
            error.to_string().starts_with("the position in the corpus must be below window `1"),
            "{error}"
        );
    }

    #[test]
    fn an_error_arrives_once_and_the_loader_then_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        // The bad token lies past what is checked when a corpus is opened.
        let mut bytes = vec![0; 2 << 14];
        bytes.extend([255; 2]);
        std::fs::write(&path, bytes).unwrap();
        let tokens = std::sync::Arc::new(crate::corpus::Tokens::open(&path, 9).unwrap());
        let section = crate::split::Section::whole(tokens);
        let length = (1 << 14) - 1;
        let sampler = Sampler::new(section, 1, 1, length, crate::batches::Share::WHOLE).unwrap();
        let mut loader = Loader::start(sampler, Position::default(), 1).unwrap();
        let error = (0..40).find_map(|_| loader.take().err()).unwrap();
        assert!(matches!(error, LoaderError::Corpus(CorpusError::Token { token: 65_535, .. })), "{error}");
        assert!(matches!(loader.take(), Err(LoaderError::Ended(_))));
    }
}
