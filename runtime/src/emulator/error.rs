//! What can go wrong between a kernel's text and its last block.

use std::path::PathBuf;

/// Why the emulator could not do what it was asked for, or what it found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmulatorError {
    /// A folder or file of the cache.
    #[error("`{path}` cannot be {what}")]
    File {
        /// Which.
        path: PathBuf,
        /// What was tried: "written".
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The host compiler could not be started.
    #[error("the host C++ compiler `{program}` cannot be started")]
    Compiler {
        /// Its path.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The host compiler refuses a text.
    #[error("`{kernel}` does not compile for the emulator:\n{log}")]
    Rejected {
        /// The kernel, or the emulator's own name.
        kernel: String,
        /// What the compiler says.
        log: String,
    },
    /// What was compiled cannot be loaded.
    #[error("`{path}` cannot be loaded: {reason}")]
    Load {
        /// The file.
        path: PathBuf,
        /// What the loader says.
        reason: String,
    },
    /// A kernel's name is no name of C++.
    #[error("a kernel's name must consist of letters, digits and `_`, found `{name}`")]
    Name {
        /// The name.
        name: String,
    },
    /// Arguments that are not the kernel's.
    #[error("`{kernel}` takes ({expected}), found ({found})")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// The kinds of its parameters.
        expected: String,
        /// The kinds of what it got.
        found: String,
    },
    /// A launch that no GPU would take.
    #[error("`{kernel}`: {what} must be {allowed}, found `{found}`")]
    Limit {
        /// The kernel.
        kernel: String,
        /// What is wrong.
        what: &'static str,
        /// What is possible.
        allowed: String,
        /// What was asked for.
        found: u64,
    },
    /// A tensor that the copy unit would not take.
    #[error("`{kernel}`: {reason}")]
    TensorMap {
        /// The kernel.
        kernel: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No such kernel.
    #[error("no kernel of this number was loaded")]
    NoKernel,
    /// The host has no memory left.
    #[error("no room for the {bytes} bytes of `{name}`")]
    NoRoom {
        /// What they are for.
        name: String,
        /// How many.
        bytes: u64,
    },
    /// The host asks for memory that is not there.
    #[error("{bytes} bytes at {address:#x} are in no live allocation: {nearest}")]
    Memory {
        /// Bytes asked for.
        bytes: u64,
        /// From where on.
        address: u64,
        /// What lies there or nearby.
        nearest: String,
    },
    /// There is no room for the stacks of a block.
    #[error("no memory for the stacks of a block of threads")]
    Stacks,
    /// What the checks found: the report.
    #[error("{0}")]
    Fault(String),
}
