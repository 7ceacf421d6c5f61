//! What a run is to do: flags over the resumed checkpoint over defaults.

use crate::cli::shape::Named;
use clap::Args;
use kernwright_model::checkpoint::Checkpoint;
use kernwright_model::corpus::{BUILT_IN, Tokens};
use kernwright_model::split::Split;
use kernwright_model::trainer::TrainOptions;
use kernwright_plan::shape::Shape;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Flags that may be left out.
#[derive(Clone, Debug, Args)]
pub(crate) struct Flags {
    /// Text (a file or a folder; bytes are the tokens) or a .bin of u16 tokens [default: the built-in text]
    #[arg(long, value_name = "PATH")]
    pub(super) data: Option<PathBuf>,
    /// Steps of the whole run [default: 500]
    #[arg(long, value_name = "N")]
    pub(super) steps: Option<u64>,
    /// Sequences per micro-batch [default: 8]
    #[arg(long, value_name = "N")]
    pub(super) batch: Option<usize>,
    /// Tokens per sequence [default: 256, or the model's context if that is less]
    #[arg(long, value_name = "N")]
    pub(super) length: Option<usize>,
    /// Micro-batches per step; their gradient is that of one large batch [default: 1]
    #[arg(long, value_name = "N")]
    pub(super) accumulate: Option<usize>,
    /// The highest learning rate; it falls along a cosine to a tenth [default: 3e-3]
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub(super) learning_rate: Option<f64>,
    /// Steps over which the learning rate rises [default: a tenth of the steps, at most 100]
    #[arg(long, value_name = "N")]
    pub(super) warmup: Option<u64>,
    /// Decoupled weight decay, of matrices only [default: 0.1]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(super) weight_decay: Option<f64>,
    /// Greatest norm of the whole gradient, 0 for no limit [default: 1.0]
    #[arg(long, value_name = "NORM", allow_negative_numbers = true)]
    pub(super) clip: Option<f64>,
    /// Seed of weights and data order [default: 0]
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Validate after every N steps, 0 only at the end [default: 100]
    #[arg(long, value_name = "N")]
    pub(super) eval_every: Option<u64>,
    /// Most batches of a validation [default: 32]
    #[arg(long, value_name = "N")]
    pub(super) eval_batches: Option<usize>,
    /// Save after every N steps, 0 only at the end [default: 100]
    #[arg(long, value_name = "N")]
    pub(super) save_every: Option<u64>,
    /// Stop and save after N steps of this call; the schedule stays that of --steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) stop_after: Option<u64>,
}

/// Everything about a run that its checkpoints remember.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(super) model: String,
    pub(super) data: Data,
    pub(super) train: TrainOptions,
    pub(super) eval_every: u64,
    pub(super) save_every: u64,
}

/// The corpus of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Data {
    /// Where it is; none for the built-in text.
    pub(crate) path: Option<PathBuf>,
    /// Tokens in it, 0 before it was opened.
    pub(crate) n_tokens: usize,
    /// Are the tokens bytes of text?
    pub(crate) is_bytes: bool,
    /// Checksum of its content, 16 hexadecimal digits; empty before it was opened, and in older checkpoints.
    #[serde(default)]
    pub(crate) fingerprint: String,
}

impl Data {
    fn unopened(path: Option<PathBuf>) -> Self {
        Self { path, n_tokens: 0, is_bytes: true, fingerprint: String::new() }
    }

    /// Opens it, and checks that it is what it was when it was opened before.
    fn open(&mut self, vocab: usize) -> Result<Tokens, Box<dyn Error>> {
        let tokens = match &self.path {
            Some(path) => Tokens::open(path, vocab)?,
            None => Tokens::embedded("the built-in text", BUILT_IN, vocab)?,
        };
        let (before, n_tokens) = (self.n_tokens, tokens.len());
        if before != 0 && before != n_tokens {
            let message = format!(
                "the data has changed since the run began: it had `{before}` tokens, found `{n_tokens}`; \
                 start a new run"
            );
            return Err(message.into());
        }
        let (before, fingerprint) = (&self.fingerprint, format!("{:016x}", tokens.fingerprint()?));
        if !before.is_empty() && *before != fingerprint {
            let message = format!(
                "the data has changed since the run began: its checksum was `{before}`, found `{fingerprint}`; \
                 start a new run"
            );
            return Err(message.into());
        }
        *self = Self { path: self.path.take(), n_tokens, is_bytes: tokens.is_text(), fingerprint };
        Ok(tokens)
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_bytes { "bytes" } else { "tokens" };
        match &self.path {
            Some(path) => write!(f, "{} ({} {kind})", path.display(), self.n_tokens),
            None => write!(f, "the built-in text ({} {kind})", self.n_tokens),
        }
    }
}

impl Settings {
    /// Flags over the checkpoint over defaults.
    pub(super) fn resolve(
        flags: &Flags,
        model: &Named,
        checkpoint: Option<&Checkpoint>,
    ) -> Result<Self, Box<dyn Error>> {
        let progress = checkpoint.map(|checkpoint| &checkpoint.manifest.progress);
        let before: Option<Self> = match progress {
            Some(progress) => Some(
                serde_json::from_value(progress.options.clone())
                    .map_err(|error| format!("the checkpoint's options cannot be read: {error}"))?,
            ),
            None => None,
        };
        let old = before.as_ref();
        let train = old.map(|old| &old.train);
        let steps = flags.steps.or(train.map(|t| t.steps)).unwrap_or(500);
        // With one step or two there is no room for a rise.
        let warmup = (steps / 10).clamp(u64::from(steps > 2), 100);
        let settings = Self {
            model: model.name.clone(),
            data: match (&flags.data, old) {
                (None, Some(old)) => old.data.clone(),
                // The same data may have moved.
                (Some(path), Some(old)) => Data { path: Some(path.clone()), ..old.data.clone() },
                (path, None) => Data::unopened(path.clone()),
            },
            train: TrainOptions {
                batch: flags.batch.or(train.map(|t| t.batch)).unwrap_or(8),
                length: flags.length.or(train.map(|t| t.length)).unwrap_or(model.shape.context.min(256)),
                accumulate: flags.accumulate.or(train.map(|t| t.accumulate)).unwrap_or(1),
                steps,
                learning_rate: flags.learning_rate.or(train.map(|t| t.learning_rate)).unwrap_or(3e-3),
                warmup: flags.warmup.or(train.map(|t| t.warmup)).unwrap_or(warmup),
                weight_decay: flags.weight_decay.or(train.map(|t| t.weight_decay)).unwrap_or(0.1),
                clip: flags.clip.or(train.map(|t| t.clip)).unwrap_or(1.0),
                seed: flags.seed.or(train.map(|t| t.seed)).unwrap_or(0),
                eval_batches: flags.eval_batches.or(train.map(|t| t.eval_batches)).unwrap_or(32),
            },
            eval_every: flags.eval_every.or(old.map(|old| old.eval_every)).unwrap_or(100),
            save_every: flags.save_every.or(old.map(|old| old.save_every)).unwrap_or(100),
        };
        if let Some(old) = old {
            settings.check_resumable(old)?;
        }
        Ok(settings)
    }

    /// The place in the data means the same only for the same length and seed.
    fn check_resumable(&self, old: &Self) -> Result<(), Box<dyn Error>> {
        let fixed = [
            ("--length", self.train.length as u64, old.train.length as u64),
            ("--seed", self.train.seed, old.train.seed),
        ];
        for (flag, now, before) in fixed {
            if now != before {
                let message = format!("a resumed run keeps its `{flag}`: it is `{before}`, found `{now}`");
                return Err(message.into());
            }
        }
        Ok(())
    }

    /// Opens the corpus, counts its tokens and holds a part out.
    pub(super) fn open_data(&mut self, shape: &Shape) -> Result<Split, Box<dyn Error>> {
        let tokens = self.data.open(shape.vocab)?;
        Ok(Split::last(Arc::new(tokens), Split::FRACTION, self.train.length)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_changed_is_refused_even_if_it_is_as_long() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "as it was").unwrap();
        let mut data = Data::unopened(Some(path.clone()));
        data.open(256).unwrap();
        assert_eq!((data.n_tokens, data.is_bytes, data.fingerprint.len()), (9, true, 16));
        let text = serde_json::to_string(&data).unwrap();
        let mut data: Data = serde_json::from_str(&text).unwrap();
        data.open(256).unwrap();
        for changed in ["as it is.", "as it is"] {
            std::fs::write(&path, changed).unwrap();
            let error = data.open(256).unwrap_err().to_string();
            assert!(error.starts_with("the data has changed since the run began: "), "{error}");
        }
        // A checkpoint of before there were fingerprints.
        let mut data: Data = serde_json::from_str(r#"{"path":null,"n_tokens":0,"is_bytes":true}"#).unwrap();
        data.open(256).unwrap();
    }

    #[test]
    fn tokens_below_the_folder_are_no_bytes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        std::fs::write(folder.path().join("inner/a.bin"), [1, 0, 2, 0]).unwrap();
        let mut data = Data::unopened(Some(folder.path().to_owned()));
        data.open(256).unwrap();
        assert!(!data.is_bytes);
    }
}
