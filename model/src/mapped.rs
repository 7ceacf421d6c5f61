//! A file mapped into memory for reading. The only file of this crate that holds `unsafe`.
//!
//! In: a path. Out: its bytes, paged in by the system when touched. It knows nothing of what the bytes mean.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// The bytes of a file, mapped read-only.
#[derive(Debug)]
pub(crate) struct MappedFile {
    map: memmap2::Mmap,
}

impl MappedFile {
    /// Maps the whole of `path`, which must be a regular file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // Asked of the path: to open a pipe is to wait for whoever writes to it.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(path)?;
        // SAFETY: the map is read-only and private to this value. Checkpoints are not written in place by this
        // program (they appear by rename and vanish by unlink, which leaves the map intact); another program that
        // truncates the file while it is mapped ends the process by SIGBUS, as for any mapped file.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(Self { map })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_maps_to_no_bytes_and_a_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty");
        std::fs::write(&path, b"").unwrap();
        assert!(MappedFile::open(&path).unwrap().is_empty());
        assert!(MappedFile::open(folder.path()).is_err());
    }
}
