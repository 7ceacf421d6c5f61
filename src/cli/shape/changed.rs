//! A Shape with fields changed on the command line.

use super::{Named, ShapeArguments};
use crate::cli::Declared;
use clap::Args;
use kernwright_plan::field::read_text;
use std::error::Error;
use std::ffi::OsString;

/// Flags that choose a Shape and change it.
#[derive(Clone, Debug, Default, Args)]
pub(in super::super) struct ChangedShape {
    #[command(flatten)]
    pub(in super::super) base: ShapeArguments,
    /// Change a field of the shape, as in `--set model.layers=4`; may be given several times
    #[arg(long, value_name = "FIELD=VALUE", value_parser = assignment)]
    pub(in super::super) set: Vec<String>,
}

impl ChangedShape {
    /// Is a Shape chosen or changed here?
    pub(in super::super) fn is_given(&self) -> bool {
        self.base.is_given() || !self.set.is_empty()
    }

    /// The Shape.
    pub(in super::super) fn resolve(&self, declared: Option<Declared>) -> Result<Named, Box<dyn Error>> {
        self.of(self.base.resolve(declared)?)
    }

    /// A Shape with these changes.
    pub(in super::super) fn of(&self, base: Named) -> Result<Named, Box<dyn Error>> {
        if self.set.is_empty() {
            return Ok(base);
        }
        let Named { name, shape } = base;
        let shape = shape.with(&read_text(&self.set.join("\n"))).map_err(|problems| {
            let lines: Vec<_> =
                problems.into_iter().map(|problem| format!("--set: {}", problem.message)).collect();
            lines.join("\n")
        })?;
        Ok(Named { name: format!("{name} with {}", self.set.join(", ")), shape })
    }

    /// These over `others`, which were given elsewhere.
    pub(in super::super) fn over(self, others: Self) -> Self {
        Self {
            base: if self.base.is_given() { self.base } else { others.base },
            set: if self.set.is_empty() { others.set } else { self.set },
        }
    }

    /// The flags that say the same.
    pub(in super::super) fn flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = Vec::new();
        if let Some(preset) = &self.base.preset {
            flags.extend(["--preset".into(), preset.into()]);
        }
        if let Some(path) = &self.base.shape {
            flags.extend(["--shape".into(), path.into()]);
        }
        for change in &self.set {
            flags.extend(["--set".into(), change.into()]);
        }
        flags
    }
}

/// One line that has a path; what it means the Shape decides.
pub(in super::super) fn assignment(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        _ if text.trim().is_empty() || text.contains(['\n', '\r']) => {
            Err("a field must be on one line".to_owned())
        }
        Some((path, value)) if path.trim().is_empty() || value.trim().is_empty() => {
            Err(format!("a change must be `FIELD=VALUE`, found `{text}`"))
        }
        _ => Ok(text.to_owned()),
    }
}
