//! Where cargo builds: the `target` folder, found from inside a macro or a build script.
//!
//! In: what the process was started with. Out: a folder, or nothing, and then no copies are written.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What a process that cargo started knows of its whereabouts.
#[derive(Clone, Debug, Default)]
pub struct Whereabouts {
    /// `OUT_DIR`: set for a build script, and for the compiler if the package has one.
    pub out_dir: Option<OsString>,
    /// The command line; the compiler's has `--out-dir`.
    pub arguments: Vec<OsString>,
    /// `CARGO_TARGET_DIR`.
    pub cargo_target_dir: Option<OsString>,
}

impl Whereabouts {
    /// Those of this process. Only macros and build scripts call this.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self {
            out_dir: std::env::var_os("OUT_DIR"),
            arguments: std::env::args_os().collect(),
            cargo_target_dir: std::env::var_os("CARGO_TARGET_DIR"),
        }
    }

    /// The target folder. An editor's macro server has no `--out-dir`, and guesses are not good enough to write by.
    #[must_use]
    pub fn target_dir(&self) -> Option<PathBuf> {
        if let Some(found) = self.out_dir.as_ref().and_then(|out_dir| outermost_tagged(Path::new(out_dir))) {
            return Some(found);
        }
        let out_dir = self.arguments.iter().position(|argument| argument == "--out-dir");
        if let Some(out_dir) = out_dir.and_then(|index| self.arguments.get(index + 1))
            && let Some(found) = outermost_tagged(Path::new(out_dir))
        {
            return Some(found);
        }
        self.cargo_target_dir.as_ref().map(PathBuf::from).filter(|path| path.is_absolute())
    }
}

/// The outermost of an unbroken run of folders that cargo tagged: `target/<triple>` has a tag of its own.
fn outermost_tagged(from: &Path) -> Option<PathBuf> {
    let mut outermost = None;
    for folder in from.ancestors() {
        if folder.join("CACHEDIR.TAG").exists() || folder.join(".rustc_info.json").exists() {
            outermost = Some(folder.to_path_buf());
        } else if outermost.is_some() {
            break;
        }
    }
    outermost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::tests::Folder;
    use std::fs;

    /// `<folder>/target` with tags as cargo leaves them for `--target`; also a tag far above, as a home has.
    fn tagged(folder: &Folder) -> PathBuf {
        let target = folder.0.join("project/target");
        let deps = target.join("x86_64-unknown-linux-gnu/debug/deps");
        fs::create_dir_all(&deps).expect("the folder is ours");
        for tagged in [&folder.0, &target, &target.join("x86_64-unknown-linux-gnu")] {
            fs::write(tagged.join("CACHEDIR.TAG"), "").expect("the folder is ours");
        }
        deps
    }

    #[test]
    fn the_outermost_tag_of_the_run_is_the_target_folder() {
        let folder = Folder::new("target-dir");
        let deps = tagged(&folder);
        let target = Some(folder.0.join("project/target"));
        let arguments = vec!["rustc".into(), "--out-dir".into(), deps.clone().into_os_string()];
        let by_argument = Whereabouts { arguments, ..Whereabouts::default() };
        assert_eq!(by_argument.target_dir(), target);
        let out_dir = Some(deps.join("build/brain-0123/out").into_os_string());
        let by_out_dir = Whereabouts { out_dir, ..Whereabouts::default() };
        assert_eq!(by_out_dir.target_dir(), target);
    }

    #[test]
    fn without_a_tag_only_an_absolute_variable_counts() {
        let variable = |value: &str| Whereabouts {
            cargo_target_dir: Some(value.into()),
            arguments: vec!["rustc".into(), "--out-dir".into()],
            ..Whereabouts::default()
        };
        assert_eq!(variable("/somewhere").target_dir(), Some("/somewhere".into()));
        assert_eq!(variable("somewhere").target_dir(), None);
        assert_eq!(Whereabouts::default().target_dir(), None);
    }
}
