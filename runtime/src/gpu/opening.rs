//! What a GPU is, and why one cannot be used: asked of the driver through our own binding, before cudarc is.
//!
//! In: the libraries that were found. Out: [`GpuFacts`] or an [`OpenError`]. cudarc finds libraries by name only, and
//! panics where one or a symbol of one is missing; so its first call comes after the library was loaded by its path, which
//! later finds it by that name, and after every function that is called was seen to be there.

use super::calls::{self, Context, Fault};
use kernwright_compile::{Libraries, Library, Version};
use kernwright_plan::arch::{self, Arch};

/// The first CUDA whose driver has every function that is called; the last to come was `cuEventElapsedTime_v2`.
pub const OLDEST_DRIVER: (u32, u32) = (12, 8);

/// What is known of a GPU before it does anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuFacts {
    /// Its number, as `CUDA_VISIBLE_DEVICES` leaves it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// The row of the table that has it; `None` where none does.
    pub arch: Option<&'static Arch>,
    /// Its memory, bytes.
    pub memory: u64,
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// The most shared memory that a block may have, bytes.
    pub shared_memory: u32,
    /// The version of CUDA that its driver offers.
    pub driver: Version,
}

/// Why a GPU cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A library is missing, or the driver shows no GPU.
    #[error(transparent)]
    Missing(#[from] kernwright_compile::Error),
    /// The driver is too old.
    #[error(
        "the driver offers CUDA {found}, needed is {}.{} or later: update it to 580 or later",
        OLDEST_DRIVER.0,
        OLDEST_DRIVER.1
    )]
    OldDriver {
        /// The CUDA it offers.
        found: Version,
    },
    /// There are not that many GPUs.
    #[error(
        "there is no GPU `{index}`: allowed is a number below {count}; `CUDA_VISIBLE_DEVICES` hides GPUs"
    )]
    Index {
        /// What was asked for.
        index: u32,
        /// How many there are.
        count: usize,
    },
    /// The driver refused.
    #[error("the GPU cannot be used: {0}")]
    Failed(String),
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault.to_string())
    }
}

impl From<crate::driver::DriverError> for OpenError {
    fn from(error: crate::driver::DriverError) -> Self {
        Self::Failed(error.to_string())
    }
}

/// The GPUs of this machine.
///
/// # Errors
/// When there is no driver, it is too old, or it shows none.
pub fn gpus(libraries: &Libraries) -> Result<Vec<GpuFacts>, OpenError> {
    let (driver, gpus) = kernwright_compile::gpus(libraries)?;
    let facts = gpus.into_iter().map(|gpu| GpuFacts {
        index: gpu.index,
        name: gpu.name,
        capability: gpu.compute_capability,
        arch: arch::of_capability(gpu.compute_capability),
        memory: gpu.memory_bytes,
        multiprocessors: gpu.n_multiprocessors,
        shared_memory: gpu.shared_memory_bytes,
        driver: driver.clone(),
    });
    let facts = facts.collect();
    if driver < Version(vec![OLDEST_DRIVER.0, OLDEST_DRIVER.1]) {
        return Err(OpenError::OldDriver { found: driver });
    }
    Ok(facts)
}

/// The facts of one of them.
///
/// # Errors
/// As [`gpus`], and when there is none of that number.
pub fn find(libraries: &Libraries, index: u32) -> Result<GpuFacts, OpenError> {
    let all = gpus(libraries)?;
    let count = all.len();
    all.into_iter().find(|gpu| gpu.index == index).ok_or(OpenError::Index { index, count })
}

/// The context of a GPU, for whose facts the driver was asked.
pub(super) fn context(libraries: &Libraries, facts: &GpuFacts) -> Result<Context, OpenError> {
    let driver = libraries.load(Library::Driver)?;
    calls::check(&driver).map_err(OpenError::Failed)?;
    Ok(Context::open(facts.index)?)
}
