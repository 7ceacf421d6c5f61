//! Why a folder cannot be made.

use std::io;
use std::path::Path;

/// Says that `folder` cannot be created: what stands in its way, where something does, else the system's reason.
pub(super) fn cannot_create(folder: &Path, error: &io::Error) -> String {
    let shown = folder.display();
    let nearest = folder.ancestors().find(|path| path.symlink_metadata().is_ok());
    let Some(nearest) = nearest.filter(|path| !path.is_dir()) else {
        return format!("cannot create `{shown}`: {error}");
    };
    let is = if nearest.exists() { "is not a folder" } else { "is a link to nothing" };
    format!("cannot create `{shown}`: `{}` {is}", nearest.display())
}
