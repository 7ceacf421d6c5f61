//! For tests of this and the other crates: a compiler or one line that says what was skipped, and scratch folders.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::host::HostCompiler;
use crate::libraries::Libraries;
use crate::nvrtc::Compiler;
use crate::places::Places;

/// The compiler of this machine; pass `std::env::vars_os()` and what the test covers. Without NVRTC: panics if the
/// variables hold `REQUIRE_NVRTC=1`, else says in one line what is skipped and returns `None`.
///
/// ```no_run
/// # use kernwright_compile::testing;
/// let Some(compiler) = testing::compiler_or_skip(std::env::vars_os(), "compiling every kernel") else { return };
/// ```
pub fn compiler_or_skip<K, V>(variables: impl IntoIterator<Item = (K, V)>, what: &str) -> Option<Compiler>
where
    K: Into<OsString>,
    V: Into<OsString>,
{
    let variables: Vec<(OsString, OsString)> =
        variables.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
    let required = variables.iter().any(|(key, value)| key == "REQUIRE_NVRTC" && value == "1");
    let error: Error = match Compiler::open(&Libraries::find(&Places::from_variables(variables))) {
        Ok(compiler) => return Some(compiler),
        Err(error) => error,
    };
    assert!(!required, "REQUIRE_NVRTC=1, but {error}");
    // Written past the test harness, which would swallow what a passing test prints.
    let _ = writeln!(std::io::stderr().lock(), "skipped: {what}: {error}");
    None
}

/// The host's C++ compiler, for what runs on the emulator. Without one: panics if the variables hold
/// `REQUIRE_EMULATOR=1`, else says in one line what is skipped and returns `None`.
pub fn host_compiler_or_skip<K, V>(
    variables: impl IntoIterator<Item = (K, V)>,
    what: &str,
) -> Option<HostCompiler>
where
    K: Into<OsString>,
    V: Into<OsString>,
{
    let variables: Vec<(OsString, OsString)> =
        variables.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
    let required = variables.iter().any(|(key, value)| key == "REQUIRE_EMULATOR" && value == "1");
    let error = match HostCompiler::find(&Places::from_variables(variables)) {
        Ok(compiler) => return Some(compiler),
        Err(error) => error,
    };
    assert!(!required, "REQUIRE_EMULATOR=1, but {error}");
    let _ = writeln!(std::io::stderr().lock(), "skipped: {what}: {error}");
    None
}

/// A folder that is removed when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new, empty one.
    ///
    /// # Panics
    ///
    /// If it cannot be made.
    pub fn new(name: &str) -> Scratch {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let unique = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("kernwright-{name}-{}-{}", unique.0, unique.1));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("`{}`: {error}", path.display()));
        Scratch(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes an empty file and the folders above it.
    ///
    /// # Panics
    ///
    /// If it cannot be made.
    pub fn touch(&self, file: &str) -> PathBuf {
        let path = self.0.join(file);
        let made =
            path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&path, ""));
        made.unwrap_or_else(|error| panic!("`{}`: {error}", path.display()));
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
