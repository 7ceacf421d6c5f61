//! The loss of a bigram model, which a trained one is measured against.
//!
//! In: a corpus, what validation measures. Out: a number. A large corpus takes seconds to count, so a thread does that
//! while training begins; who wants the number later waits for it.

use crate::terminal;
use kernwright_model::batches::Cover;
use kernwright_model::bigram::Bigram;
use kernwright_model::corpus::CorpusError;
use kernwright_model::split::Split;
use std::error::Error;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The first step is not kept waiting for longer.
const PATIENCE: Duration = Duration::from_millis(200);

/// The number, or a thread that will have it.
pub(super) struct Baseline {
    counted: Receiver<Result<f64, CorpusError>>,
    loss: Option<f64>,
}

impl Baseline {
    /// Begins to count.
    pub(super) fn start(split: &Split, cover: &Cover) -> Self {
        let (sender, counted) = channel();
        let (section, cover) = (split.training.clone(), cover.clone());
        let count = move || _ = sender.send(Bigram::loss(&section, &cover));
        // Without a thread there is no baseline, and nothing else is lost.
        let _ = thread::Builder::new().name("bigram".to_owned()).spawn(count);
        Self { counted, loss: None }
    }

    /// Says it, where it is there soon.
    pub(super) fn say(&mut self) -> Result<(), Box<dyn Error>> {
        match self.counted.recv_timeout(PATIENCE) {
            Ok(loss) => {
                let loss = self.loss.insert(loss?);
                let text = format!("bigram baseline: {loss:.4} nats per token, on what validation measures");
                terminal::line(&text)?;
            }
            Err(RecvTimeoutError::Timeout) => {
                terminal::line("bigram baseline: counted while training begins, then drawn in the picture")?;
            }
            Err(RecvTimeoutError::Disconnected) => {}
        }
        Ok(())
    }

    /// The number, once it is there; none where the corpus could not be read.
    pub(super) fn wait(&mut self) -> Option<f64> {
        if let (None, Ok(loss)) = (self.loss, self.counted.recv()) {
            match loss {
                Ok(loss) => self.loss = Some(loss),
                Err(error) => terminal::note(&format!("no bigram baseline: {error}")),
            }
        }
        self.loss
    }
}
