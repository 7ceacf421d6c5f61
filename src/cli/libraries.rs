//! Finding NVIDIA's libraries as every command does it.

use kernwright_compile::{Libraries, NEWEST_MAJOR, Places, driver_version};

/// The libraries of this machine. Where there is a driver, what it can run comes first: cubins of CUDA 13 do not load
/// on a driver of CUDA 12.
pub(super) fn find(places: &Places) -> Libraries {
    let mut libraries = Libraries::find(places);
    if let Some(version) = driver_version(&libraries) {
        libraries.rank(version.major().min(NEWEST_MAJOR));
    }
    libraries
}
