//! The record of a run: `metrics.jsonl`, one line of JSON per record.
//!
//! In: records, as they come. Out: a file that can be followed while it grows and is read back for the plot. A run
//! that resumes drops the lines past its step first, so that no step appears twice.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};

use crate::atomic_file::write_atomically;

/// What is known after a step. A value that is not a number is written as `null` and read back as NaN.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Steps done, this one included.
    pub step: u64,
    /// Tokens trained on so far.
    pub tokens: u64,
    /// Mean training loss of the step, nats per token.
    #[serde(deserialize_with = "null_is_nan")]
    pub loss: f64,
    /// The learning rate of the step.
    #[serde(deserialize_with = "null_is_nan")]
    pub learning_rate: f64,
    /// The norm of the whole gradient before it was clipped.
    #[serde(deserialize_with = "null_is_nan")]
    pub grad_norm: f64,
    /// Tokens per second since the record before.
    #[serde(deserialize_with = "null_is_nan")]
    pub tokens_per_second: f64,
    /// Mean validation loss after the step, nats per token, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_null_is_nan")]
    pub validation_loss: Option<f64>,
    /// Where the loss is scaled: its scale after the step.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_null_is_nan")]
    pub loss_scale: Option<f64>,
    /// And the steps so far that were skipped, since a gradient overflowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_steps: Option<u64>,
    /// Seconds since the run started, or since it was resumed.
    #[serde(deserialize_with = "null_is_nan")]
    pub elapsed: f64,
}

/// The file, open to append.
#[derive(Debug)]
pub struct Metrics {
    path: PathBuf,
    file: File,
}

/// What went wrong with the file.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum MetricsError {
    #[error("cannot read `{path}`")]
    Read { path: String, source: io::Error },
    #[error("cannot write `{path}`")]
    Write { path: String, source: io::Error },
}

impl Metrics {
    /// Starts an empty file, in place of one that is there.
    pub fn create(path: &Path) -> Result<Self, MetricsError> {
        let file = File::create(path).map_err(|source| unwritable(path, source))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Continues the file of a run that resumes after `step` steps: drops the records past it. A file that is not
    /// there is started. Lines that are no records are dropped.
    pub fn resume(path: &Path, step: u64) -> Result<Self, MetricsError> {
        if path.exists() {
            let text = read_text(path)?;
            let kept = parse(&text).filter(|(_, record)| record.step <= step);
            let kept: String = kept.flat_map(|(line, _)| [line, "\n"]).collect();
            // Lines that stay are copied as they are, with fields that other versions may have added.
            if kept != text {
                write_atomically(path, |file| file.write_all(kept.as_bytes()))
                    .map_err(|source| unwritable(path, source))?;
            }
        }
        let file = OpenOptions::new().append(true).create(true).open(path);
        Ok(Self { path: path.to_owned(), file: file.map_err(|source| unwritable(path, source))? })
    }

    /// Appends one line, by one write, so that a reader sees it whole.
    pub fn append(&mut self, record: &Record) -> Result<(), MetricsError> {
        let line = serde_json::to_string(record).map_err(io::Error::from);
        line.and_then(|line| self.file.write_all(format!("{line}\n").as_bytes()))
            .map_err(|source| unwritable(&self.path, source))
    }
}

/// Every record of the file at `path`, in order. Lines that are no records, and a last line that a killed run left
/// unfinished, are passed over: a gap in the record must not end the run.
pub fn read(path: &Path) -> Result<Vec<Record>, MetricsError> {
    Ok(parse(&read_text(path)?).map(|(_, record)| record).collect())
}

fn read_text(path: &Path) -> Result<String, MetricsError> {
    let bytes =
        fs::read(path).map_err(|source| MetricsError::Read { path: path.display().to_string(), source })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The lines that are records, and the records.
fn parse(text: &str) -> impl Iterator<Item = (&str, Record)> {
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    lines.filter_map(|line| Some((line, serde_json::from_str(line).ok()?)))
}

fn unwritable(path: &Path, source: io::Error) -> MetricsError {
    MetricsError::Write { path: path.display().to_string(), source }
}

fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

fn some_null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    null_is_nan(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(step: u64) -> Record {
        let loss = 11.0 / (1.0 + step as f64);
        let validation_loss = step.is_multiple_of(3).then_some(loss + 0.1);
        Record { step, tokens: step * 1024, loss, learning_rate: 3e-4, validation_loss, ..Record::default() }
    }

    fn write(path: &Path, steps: impl IntoIterator<Item = u64>) {
        let mut metrics = Metrics::create(path).unwrap();
        steps.into_iter().for_each(|step| metrics.append(&record(step)).unwrap());
    }

    #[test]
    fn records_are_read_back_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        write(&path, 1..20);
        assert_eq!(read(&path).unwrap(), (1..20).map(record).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_not_a_number_is_written_as_null_and_read_as_nan() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let (loss, grad_norm, validation_loss) = (f64::NAN, f64::INFINITY, Some(f64::NAN));
        let written = Record { loss, grad_norm, validation_loss, ..record(1) };
        Metrics::create(&path).unwrap().append(&written).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains(r#""loss":null"#));
        let found = read(&path).unwrap().remove(0);
        assert!(found.loss.is_nan() && found.grad_norm.is_nan() && found.validation_loss.unwrap().is_nan());
        assert_eq!(found.tokens, 1024);
    }

    #[test]
    fn a_resumed_run_has_each_step_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        write(&path, 1..=10);
        let mut metrics = Metrics::resume(&path, 6).unwrap();
        (7..=12).for_each(|step| metrics.append(&record(step)).unwrap());
        assert_eq!(read(&path).unwrap(), (1..=12).map(record).collect::<Vec<_>>());
        drop(Metrics::resume(&folder.path().join("new.jsonl"), 6).unwrap());
        assert_eq!(read(&folder.path().join("new.jsonl")).unwrap(), []);
    }

    #[test]
    fn a_line_cut_short_is_dropped_and_unknown_fields_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let line = serde_json::to_string(&record(1)).unwrap();
        let extended = line.replace('{', r#"{"watts":300,"#);
        for cut in [0, 1, line.len() / 2, line.len()] {
            fs::write(&path, format!("{extended}\n{}", &line[..cut])).unwrap();
            assert_eq!(read(&path).unwrap(), [record(1)]);
            Metrics::resume(&path, 9).unwrap().append(&record(2)).unwrap();
            assert_eq!(read(&path).unwrap(), [record(1), record(2)], "cut at {cut}");
            assert!(fs::read_to_string(&path).unwrap().starts_with(&extended));
        }
    }

    #[test]
    fn damaged_lines_are_dropped_and_the_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        for damage in ["!", "", "{}", "\0\0\0", "{\"step\":1", "\u{FFFD}"] {
            write(&path, 1..4);
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replacen('\n', &format!("\n{damage}\n"), 1)).unwrap();
            assert_eq!(read(&path).unwrap(), [1, 2, 3].map(record), "{damage}");
            drop(Metrics::resume(&path, 9).unwrap());
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "{damage}");
        }
    }
}
