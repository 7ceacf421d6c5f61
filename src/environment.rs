//! The environment, read once and passed on as data.

use kernwright_compile::Places;
use std::path::PathBuf;

/// What the environment says.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    /// Where NVIDIA's libraries and the C++ compiler may be.
    pub(crate) places: Places,
    /// Where compiled kernels are kept between runs: KERNWRIGHT_CACHE, else XDG_CACHE_HOME/kernwright, else
    /// ~/.cache/kernwright.
    pub(crate) cache: Option<PathBuf>,
    /// KERNWRIGHT_GPU_SYNCHRONOUS is set and not 0: wait for each launch on a GPU, to be told which one fails.
    pub(crate) gpu_synchronous: bool,
    /// NO_COLOR is set and not empty (no-color.org).
    pub(crate) no_color: bool,
    /// TERM is `dumb`: a terminal that cannot move its cursor.
    pub(crate) dumb_terminal: bool,
}

impl Environment {
    /// Reads it.
    pub(crate) fn read() -> Self {
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = path("KERNWRIGHT_CACHE")
            .or_else(|| path("XDG_CACHE_HOME").map(|folder| folder.join("kernwright")))
            .or_else(|| path("HOME").map(|folder| folder.join(".cache/kernwright")));
        Self {
            places: Places::from_variables(std::env::vars_os()),
            cache,
            gpu_synchronous: path("KERNWRIGHT_GPU_SYNCHRONOUS").is_some_and(|value| value.as_os_str() != "0"),
            no_color: path("NO_COLOR").is_some(),
            dumb_terminal: std::env::var_os("TERM").is_some_and(|term| term == "dumb"),
        }
    }
}
