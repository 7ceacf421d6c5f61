//! Everything that can go wrong between a kernel's text and its cubin, in words a user can act on.

use std::path::PathBuf;

/// Why a library could not be used or a kernel could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No file of this library was found anywhere.
    #[error("`{library}` was not found in {n_places} places and by the loader; {advice}")]
    Missing {
        /// The library's file name without its version, such as `libnvrtc.so`.
        library: String,
        /// How many folders were searched.
        n_places: usize,
        /// What to install or set.
        advice: String,
    },
    /// Files of this library exist, but none of them can be loaded.
    #[error("`{library}` was found but cannot be loaded: {reasons}; {advice}")]
    Unusable {
        /// The library's file name without its version.
        library: String,
        /// Path and reason of each attempt.
        reasons: String,
        /// What to install or set.
        advice: String,
    },
    /// A loaded library lacks a function that is needed.
    #[error("`{path}` has no function `{symbol}`: it is too old or not the library its name says")]
    Symbol {
        /// The file that was loaded.
        path: PathBuf,
        /// The function's name.
        symbol: String,
    },
    /// The architecture is not one that this NVRTC compiles for.
    #[error("`{kernel}`: NVRTC {version} compiles for {allowed}, found `{arch}`: {age} NVRTC is needed")]
    Arch {
        /// The kernel's name.
        kernel: String,
        /// The architecture asked for.
        arch: String,
        /// NVRTC's version.
        version: String,
        /// Which other version may know it: "a newer".
        age: &'static str,
        /// The architectures it knows, in backticks.
        allowed: String,
    },
    /// The text holds something that cannot be handed to a C library.
    #[error("`{kernel}`: its name, text and options must hold no NUL byte")]
    Nul {
        /// The kernel's name.
        kernel: String,
    },
    /// The compiler rejected the text.
    #[error("`{kernel}` does not compile for `{arch}`:\n{log}")]
    Rejected {
        /// The kernel's name.
        kernel: String,
        /// The architecture.
        arch: String,
        /// The compiler's log, whole.
        log: String,
    },
    /// The driver shows no GPU.
    #[error("{problem}; {advice}")]
    NoGpu {
        /// What is in the way.
        problem: &'static str,
        /// What to do.
        advice: String,
    },
    /// There is no C++ compiler for the host.
    #[error("no host C++ compiler: {problem}; {advice}")]
    NoHostCompiler {
        /// What is missing.
        problem: String,
        /// What to install or set.
        advice: &'static str,
    },
    /// NVRTC failed for a reason other than the kernel's text.
    #[error("`{kernel}`: `{call}` failed for `{arch}` with `{status}`{log}")]
    Nvrtc {
        /// The kernel's name.
        kernel: String,
        /// The architecture.
        arch: String,
        /// The NVRTC function that failed.
        call: String,
        /// NVRTC's name for the failure.
        status: String,
        /// Empty, or a colon and the log.
        log: String,
    },
}

impl Error {
    /// The message without the advice, for where the advice has a place of its own.
    pub(crate) fn problem(&self) -> String {
        match self {
            Error::Missing { library, n_places, .. } => {
                format!("`{library}` was not found in {n_places} places and by the loader")
            }
            Error::Unusable { library, reasons, .. } => format!("`{library}` cannot be loaded: {reasons}"),
            Error::NoHostCompiler { problem, .. } => problem.clone(),
            other => other.to_string(),
        }
    }
}
