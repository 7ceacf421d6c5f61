//! A Shape in a TOML file.

use super::Named;
use std::error::Error;
use std::path::Path;

/// Reads it; it is called as the file is, and where that is just `shape`, as in the folder of a run, as the folder is.
///
/// # Errors
/// That the file cannot be read; or every mistake in it, a line each, with file, line and column.
#[cfg(feature = "render")]
pub(super) fn read(path: &Path) -> Result<Named, Box<dyn Error>> {
    use kernwright_codegen::toml;
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read `{file}`: {error}"))?;
    let folder = path.parent().filter(|_| path.file_stem().is_some_and(|stem| stem == "shape"));
    let name = folder.and_then(Path::file_name).or(path.file_stem()).filter(|name| *name != ".");
    let name = name.map_or("model".into(), |name| name.to_string_lossy().into_owned());
    let shape = toml::read(&name, &text).shape().map_err(|problems| {
        let lines: Vec<_> = problems.iter().map(|problem| toml::locate(&file, &text, problem)).collect();
        lines.join("\n")
    })?;
    Ok(Named { name, shape })
}

#[cfg(not(feature = "render"))]
pub(super) fn read(path: &Path) -> Result<Named, Box<dyn Error>> {
    let path = path.display();
    Err(format!("this program was built without the feature `render`, which reads `{path}`").into())
}
