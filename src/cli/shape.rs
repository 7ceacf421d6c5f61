//! Which Shape a command is about: `--preset`, `--shape`, or the one that the program declares.

pub(super) mod changed;
mod file;
pub(super) mod show;

use super::Declared;
use clap::Args;
use kernwright_plan::shape::{Shape, parse_text, presets};
use std::error::Error;
use std::path::PathBuf;

/// Flags that choose a Shape.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct ShapeArguments {
    /// A named shape [default: the declared model, or `tiny` where none is declared]
    #[arg(long, value_name = "NAME", value_parser = preset_names())]
    pub(super) preset: Option<String>,
    /// A shape in a file, as `shape --toml` prints it
    #[arg(long, value_name = "FILE.toml", conflicts_with = "preset")]
    pub(super) shape: Option<PathBuf>,
}

/// A Shape and what it is called.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) shape: Shape,
}

impl ShapeArguments {
    /// Is a Shape chosen here?
    pub(super) fn is_given(&self) -> bool {
        self.preset.is_some() || self.shape.is_some()
    }

    /// The Shape.
    pub(super) fn resolve(&self, declared: Option<Declared>) -> Result<Named, Box<dyn Error>> {
        if let Some(path) = &self.shape {
            return file::read(path);
        }
        let name = match (self.preset.as_deref(), declared) {
            (None, Some(declared)) => {
                let shape = parse_text(&format!("{}{}", declared.shape, declared.targets))?;
                return Ok(Named { name: declared.name.to_owned(), shape });
            }
            (Some(name), _) => name,
            (None, None) => "tiny",
        };
        let preset = presets::find(name).ok_or_else(|| format!("`{name}` is not a preset"))?;
        Ok(Named { name: preset.name.to_owned(), shape: preset.shape() })
    }
}

pub(super) fn preset_names() -> clap::builder::PossibleValuesParser {
    let values =
        presets::ALL.iter().map(|preset| clap::builder::PossibleValue::new(preset.name).help(preset.about));
    clap::builder::PossibleValuesParser::new(values)
}
