//! `config.toml` in the folder of a run: what it does, resolved, as a file that `--config` takes. Beside it a Shape
//! that came out of a file is kept as `shape.toml`, so that the run can be repeated when that file has changed.

use super::config::keys;
use super::options::Settings;
use crate::cli::Declared;
use crate::cli::shape::Named;
use crate::cli::shape::show::toml;
use clap::ValueEnum as _;
use kernwright_model::atomic_file::write_atomically;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::shape::presets;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

/// The name of the file.
pub(super) const FILE: &str = "config.toml";

/// The name of the Shape's file.
pub(super) const SHAPE: &str = "shape.toml";

/// Writes the files into the folder of a run; the Shape's, where there is one, only once.
pub(super) fn write(
    folder: &Path,
    settings: &Settings,
    model: &Named,
    shape: Option<&str>,
) -> Result<(), Box<dyn Error>> {
    if let Some(shape) = shape.filter(|_| !folder.join(SHAPE).exists()) {
        write_file(&folder.join(SHAPE), shape)?;
    }
    write_file(&folder.join(FILE), &text(settings, model, shape.is_some()))
}

fn write_file(path: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    write_atomically(path, |file| file.write_all(text.as_bytes()))
        .map_err(|error| format!("cannot write `{}`: {error}", path.display()).into())
}

/// The text of the Shape's file: none for a preset and for the model that the program itself declares, and none from a
/// program that was built without what writes and reads it.
pub(super) fn shape(model: &Named, declared: Option<Declared>) -> Option<String> {
    let is_declared = declared.is_some_and(|declared| declared.shape == model.shape.text());
    if is_declared || is_preset(model) { None } else { toml(model).ok() }
}

fn is_preset(model: &Named) -> bool {
    presets::find(&model.name).is_some_and(|preset| preset.shape().text() == model.shape.text())
}

fn text(settings: &Settings, model: &Named, keeps_shape: bool) -> String {
    let mut text = String::from(
        "# What this run does, with every default spelt out: `train --config` of this file does the same again.\n\
         # A flag wins over the file. Paths count from the folder of the file.\n",
    );
    if !settings.train.history.is_empty() {
        text.push_str(
            "# The run has changed its batch on the way, which a new run by this file does not do again.\n",
        );
    }
    for arg in keys().get_arguments() {
        let Some(name) = arg.get_long() else { continue };
        let key = name.replace('-', "_");
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.split(" [default").next().unwrap_or_default();
        match value(&key, settings, model, keeps_shape) {
            Some(value) => {
                let _ = write!(text, "\n# {help}\n{key} = {value}\n");
            }
            None => {
                let why = absent(&key, settings, model, keeps_shape);
                let _ = write!(text, "\n# {help}\n# {key}: {why}\n");
            }
        }
    }
    text
}

/// The value of a key as TOML; none where it has none.
fn value(key: &str, settings: &Settings, model: &Named, keeps_shape: bool) -> Option<String> {
    let Settings { train, plan, .. } = settings;
    Some(match key {
        "shape" if keeps_shape => quoted(SHAPE),
        "preset" if is_preset(model) => quoted(&model.name),
        "data" => quoted(settings.data.path.as_deref()?.to_str()?),
        "steps" => train.steps.to_string(),
        "batch" => train.batch.to_string(),
        "length" => train.length.to_string(),
        "accumulate" => train.accumulate.to_string(),
        "learning_rate" => number(train.learning_rate),
        "warmup" => train.warmup.to_string(),
        "schedule" => quoted(train.schedule.name()),
        "final_rate" if train.schedule.uses("final-rate") => number(train.final_rate),
        "decay_fraction" if train.schedule.uses("decay-fraction") => number(train.decay_fraction),
        "weight_decay" => number(train.weight_decay),
        "clip" => number(train.clip),
        "z_loss" => number(train.z_loss),
        "precision" => quoted(plan.precision.as_deref()?),
        "grad_dtype" => quoted(plan.grad_dtype.as_deref().unwrap_or(Dtype::Fp32.name())),
        "attention" => quoted(plan.attention.unwrap_or_default().to_possible_value()?.get_name()),
        "nondeterministic" => plan.is_free().to_string(),
        "without" => list(plan.without.as_deref()?)?,
        "with" => list(plan.with.as_deref()?)?,
        "head_chunk" => plan.head_chunk?.to_string(),
        "seed" => train.seed.to_string(),
        "eval_every" => settings.eval_every.to_string(),
        "eval_batches" => train.eval_batches.to_string(),
        "save_every" => settings.save_every.to_string(),
        _ => return None,
    })
}

/// Why a key has no value.
fn absent(key: &str, settings: &Settings, model: &Named, keeps_shape: bool) -> String {
    match (key, &settings.data.path) {
        ("preset" | "set", _) if keeps_shape => "the shape is in a file".to_owned(),
        ("shape" | "set" | "without" | "with", _) => "none".to_owned(),
        ("precision", _) => "that of the shape, and fp32 on the CPU".to_owned(),
        ("head_chunk", _) => "as many as 512 MiB hold".to_owned(),
        ("final_rate" | "decay_fraction", _) => "the schedule does not use it".to_owned(),
        ("data", None) => "the built-in text".to_owned(),
        _ => format!("the model is {}", model.name.escape_debug()),
    }
}

/// A number that TOML reads back to the same bits.
fn number(value: f64) -> String {
    format!("{value:?}")
}

/// Several words; none where there are none.
fn list(words: &[String]) -> Option<String> {
    (!words.is_empty()).then(|| toml::Value::from(words.to_vec()).to_string())
}

/// Text in quotes, as TOML escapes it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::plan_flags::{Path, PlanFlags};
    use crate::cli::train::batch::Batch;
    use crate::cli::train::config::Config;
    use crate::cli::train::data::Data;
    use crate::cli::train::flags::Flags;

    fn tiny() -> Named {
        let preset = presets::find("tiny").unwrap();
        Named { name: "tiny".to_owned(), shape: preset.shape() }
    }

    #[test]
    fn what_is_written_is_read_back_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let flags = Flags {
            data: Some("/a \"b\"\\c\n\u{1}ü.txt".into()),
            steps: Some(1 << 40),
            batch: Some(Batch::Of(3)),
            length: Some(17),
            accumulate: Some(5),
            learning_rate: Some(0.1 + 0.2),
            warmup: Some(11),
            schedule: Some(kernwright_model::schedule::Form::Wsd),
            final_rate: Some(1e-7),
            decay_fraction: Some(0.3),
            weight_decay: Some(0.0),
            clip: Some(1e30),
            z_loss: Some(1e-4),
            plan: PlanFlags {
                precision: Some("bf16".to_owned()),
                grad_dtype: Some("bf16".to_owned()),
                attention: Some(Path::Split),
                nondeterministic: Some(true),
                without: Some(vec!["residual_in_linear".to_owned(), "narrow_gradient".to_owned()]),
                with: Some(vec!["residual_copy".to_owned()]),
                head_chunk: Some(48),
            },
            seed: Some(u64::MAX),
            eval_every: Some(0),
            eval_batches: Some(9),
            save_every: Some(8),
        };
        let settings = Settings::resolve(&flags, &tiny(), None).unwrap();
        write(folder.path(), &settings, &tiny(), None).unwrap();
        let read = Config::read(&folder.path().join(FILE)).unwrap();
        assert_eq!((read.flags, read.shape.base.preset.as_deref()), (flags, Some("tiny")));
    }

    #[test]
    fn every_key_is_there_with_its_comment() {
        let settings = Settings::resolve(&Flags::default(), &tiny(), None).unwrap();
        let all = text(&settings, &tiny(), false);
        for arg in keys().get_arguments() {
            let key = arg.get_long().unwrap().replace('-', "_");
            let line = all.lines().position(|line| line.starts_with(&format!("{key} = ")));
            // The built-in text has no path, and a preset no file.
            let absent = [
                "# without: none",
                "# with: none",
                "# set: none",
                "# precision: that of the shape, and fp32 on the CPU",
                "# head_chunk: as many as 512 MiB hold",
                "# data: the built-in text",
                "# shape: none",
                "# decay_fraction: the schedule does not use it",
            ];
            let line = line.or_else(|| all.lines().position(|line| absent.contains(&line)));
            let line = line.unwrap_or_else(|| panic!("{key} is not in {all}"));
            assert!(all.lines().nth(line - 1).unwrap().starts_with("# "), "{key}");
        }
        let other = Named { name: "Brain".to_owned(), ..tiny() };
        assert!(text(&settings, &other, false).contains("# preset: the model is Brain"));
        let data = Data::unopened(Some("a.txt".into()));
        assert!(text(&Settings { data, ..settings }, &tiny(), false).contains("data = \"/"));
    }
}
