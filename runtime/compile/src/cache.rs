//! Cubins on disk, so that a kernel is compiled once per machine and not once per start.
//!
//! One file per kernel, named by its name, architecture and a hash of all that decides its bytes. Entries are
//! written under a temporary name and renamed, so any number of processes may start at once; each carries a
//! checksum, so a damaged one counts as absent and is replaced. Trouble with the folder is a note, not an error.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::hash::Hash;
use crate::nvrtc::{Compiled, Compiler, Source};
use crate::resources;

/// A folder of compiled kernels.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    note: Mutex<Option<String>>,
}

/// What an entry is found by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey {
    file_name: String,
}

/// An entry is: cubin, description as JSON, length of the description, checksum of all before it, magic. The cubin
/// comes first so that NVIDIA's tools read the file as it is.
const MAGIC: &[u8; 8] = b"kwcubin1";
const TAIL_BYTES: usize = 8 + 16 + MAGIC.len();

/// What a crash left behind is removed after this long.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);
const TEMPORARY: &str = ".writing-";

#[derive(Serialize, Deserialize)]
struct Description {
    log: String,
    seconds: f64,
}

impl Cache {
    /// Uses a folder, made if it is not there. Never fails: see [`Cache::note`].
    pub fn open(folder: impl Into<PathBuf>) -> Cache {
        let cache = Cache { folder: folder.into(), note: Mutex::new(None) };
        match fs::create_dir_all(&cache.folder) {
            Ok(()) => cache.remove_stale(),
            Err(error) => cache.remark("made", &error),
        }
        cache
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The first trouble met, such as a folder that cannot be written; kernels are then compiled at each start.
    pub fn note(&self) -> Option<String> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The key of a source compiled by this compiler.
    pub fn key(compiler: &Compiler, source: &Source<'_>) -> CacheKey {
        key(&compiler.identity(), &compiler.options(source), source)
    }

    /// The entry, `None` when it is absent, truncated or damaged. Resources and notes come from the stored log.
    pub fn load(&self, key: &CacheKey) -> Option<Compiled> {
        let mut bytes = fs::read(self.folder.join(&key.file_name)).ok()?;
        let (n_cubin_bytes, description) = decode(&bytes)?;
        bytes.truncate(n_cubin_bytes);
        let Description { log, seconds } = description;
        let (resources, notes) = (resources::resources(&log), resources::notes(&log));
        Some(Compiled { cubin: bytes, log, resources, notes, seconds })
    }

    /// Writes an entry; when that fails, leaves a note.
    pub fn store(&self, key: &CacheKey, compiled: &Compiled) {
        if let Err(error) = self.write(key, &encode(compiled)) {
            self.remark("written to", &error);
        }
    }

    fn write(&self, key: &CacheKey, bytes: &[u8]) -> io::Result<()> {
        let (temporary, mut file) = self.temporary()?;
        let written = file.write_all(bytes).and_then(|()| {
            drop(file);
            fs::rename(&temporary, self.folder.join(&key.file_name))
        });
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// A new file of our own. Process numbers of two machines may be equal on a shared folder: hence `create_new`.
    fn temporary(&self) -> io::Result<(PathBuf, File)> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = self.folder.join(format!("{TEMPORARY}{}-{count}", process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => return result.map(|file| (path, file)),
            }
        }
    }

    fn remove_stale(&self) {
        let now = SystemTime::now();
        for entry in self.folder.read_dir().into_iter().flatten().flatten() {
            let modified = || entry.metadata().and_then(|data| data.modified()).ok();
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY)
                && modified().is_some_and(|time| now.duration_since(time).is_ok_and(|age| age > STALE))
            {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn remark(&self, what: &str, error: &io::Error) {
        let mut note = self.note.lock().unwrap_or_else(PoisonError::into_inner);
        note.get_or_insert_with(|| {
            let folder = self.folder.display();
            format!(
                "the cubin cache `{folder}` cannot be {what} ({error}); kernels are compiled at each start"
            )
        });
    }
}

fn key(compiler: &str, options: &[String], source: &Source<'_>) -> CacheKey {
    let mut hash = Hash::new().bytes(MAGIC).field(compiler).field(source.name).field(source.arch);
    hash = hash.field(source.text).bytes(&(options.len() as u64).to_le_bytes());
    for option in options {
        hash = hash.field(option);
    }
    // File names end at 255 bytes; the hash alone already tells entries apart.
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = source.name.chars().take(120).map(plain).collect();
    let arch: String = source.arch.chars().take(20).map(plain).collect();
    CacheKey { file_name: format!("{name}-{arch}-{:032x}.cubin", hash.finish()) }
}

fn encode(compiled: &Compiled) -> Vec<u8> {
    let description = Description { log: compiled.log.clone(), seconds: compiled.seconds };
    // A string and a number: cannot fail; an empty description would only make the entry count as damaged.
    let description = serde_json::to_vec(&description).unwrap_or_default();
    let mut bytes = Vec::with_capacity(compiled.cubin.len() + description.len() + TAIL_BYTES);
    bytes.extend(&compiled.cubin);
    bytes.extend(&description);
    bytes.extend((description.len() as u64).to_le_bytes());
    bytes.extend(Hash::new().bytes(&bytes).finish().to_le_bytes());
    bytes.extend(MAGIC);
    bytes
}

/// The length of the cubin at the start of an entry and what comes with it, if all of it is sound.
fn decode(bytes: &[u8]) -> Option<(usize, Description)> {
    let (rest, magic) = bytes.split_last_chunk::<8>()?;
    let (rest, checksum) = rest.split_last_chunk::<16>()?;
    if magic != MAGIC || Hash::new().bytes(rest).finish() != u128::from_le_bytes(*checksum) {
        return None;
    }
    let (rest, length) = rest.split_last_chunk::<8>()?;
    let n_cubin_bytes = rest.len().checked_sub(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    let description = serde_json::from_slice(&rest[n_cubin_bytes..]).ok()?;
    Some((n_cubin_bytes, description))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;
    use std::collections::HashSet;
    use std::thread;

    const LOG: &str = "ptxas info    : Compiling entry function 'norm' for 'sm_86'\n\
                       ptxas info    : Used 24 registers, used 1 barriers, 368 bytes cmem[0]";

    fn compiled(fill: u8) -> Compiled {
        let (resources, notes) = (resources::resources(LOG), resources::notes(LOG));
        Compiled { cubin: vec![fill; 5003], log: LOG.to_owned(), resources, notes, seconds: 0.125 }
    }

    fn source(text: &str) -> Source<'_> {
        Source { name: "norm", text, arch: "sm_86", options: &[] }
    }

    fn some_key(text: &str) -> CacheKey {
        key("13.0", &[], &source(text))
    }

    #[test]
    fn an_entry_comes_back_with_its_registers() {
        let scratch = Scratch::new("cache-hit");
        let cache = Cache::open(scratch.path().join("deep/folder"));
        assert_eq!(cache.load(&some_key("a")), None);
        cache.store(&some_key("a"), &compiled(7));
        let found = Cache::open(cache.folder()).load(&some_key("a")).expect("stored just now");
        assert_eq!(found, compiled(7));
        assert_eq!(found.resources[0].registers, 24);
        assert_eq!(cache.note(), None);
        assert_eq!(cache.load(&some_key("b")), None);
    }

    #[test]
    fn everything_that_decides_the_bytes_is_in_the_key() {
        let base = Source { name: "norm", text: "t", arch: "sm_86", options: &[] };
        let strings = |options: &[&str]| options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>();
        let keys = [
            key("13.0", &[], &base),
            key("13.1", &[], &base),
            key("13.0", &strings(&["-x"]), &base),
            key("13.0", &strings(&["-", "x"]), &base),
            key("13.0", &[], &Source { name: "norm2", ..base }),
            key("13.0", &[], &Source { text: "t ", ..base }),
            key("13.0", &[], &Source { arch: "sm_90a", ..base }),
        ];
        assert_eq!(keys.iter().map(|key| &key.file_name).collect::<HashSet<_>>().len(), keys.len());
        // Stable across builds: a changed hash would silently compile everything again.
        assert_eq!(keys[0].file_name, "norm-sm_86-b2de631ebe1fdefd8027c0675ca4ae80.cubin");
    }

    #[test]
    fn a_name_unfit_for_a_file_still_gets_one() {
        let name = "../a b/".repeat(99);
        let file = key("13.0", &[], &Source { name: &name, ..source("t") }).file_name;
        assert!(
            file.len() < 200 && !file.contains(['/', ' ', '.'].as_slice().first().copied().unwrap_or('/')),
            "{file}"
        );
    }

    #[test]
    fn every_truncation_and_flipped_byte_is_noticed() {
        let mut small = compiled(3);
        small.cubin.truncate(41);
        let whole = encode(&small);
        assert!(decode(&whole).is_some());
        for n_bytes in 0..whole.len() {
            assert!(decode(&whole[..n_bytes]).is_none(), "cut to {n_bytes} bytes");
            let mut flipped = whole.clone();
            flipped[n_bytes] ^= 0x10;
            assert!(decode(&flipped).is_none(), "byte {n_bytes} flipped");
        }
    }

    #[test]
    fn a_damaged_file_is_absent_and_can_be_replaced() {
        let scratch = Scratch::new("cache-damage");
        let cache = Cache::open(scratch.path());
        let file = scratch.path().join(&some_key("a").file_name);
        for damaged in [&b""[..], b"\x7fELF", &encode(&compiled(1))[..900]] {
            fs::write(&file, damaged).expect("scratch");
            assert_eq!(cache.load(&some_key("a")), None);
            cache.store(&some_key("a"), &compiled(2));
            assert_eq!(cache.load(&some_key("a")), Some(compiled(2)));
        }
    }

    #[test]
    fn many_threads_may_write_and_read_one_entry() {
        let scratch = Scratch::new("cache-threads");
        thread::scope(|scope| {
            for fill in 0..8 {
                let path = scratch.path();
                scope.spawn(move || {
                    let cache = Cache::open(path);
                    for _ in 0..50 {
                        cache.store(&some_key("a"), &compiled(fill));
                        let found = cache.load(&some_key("a")).expect("some thread's whole entry");
                        assert!(found.cubin.iter().all(|&byte| byte == found.cubin[0]));
                    }
                    assert_eq!(cache.note(), None);
                });
            }
        });
        assert_eq!(scratch.path().read_dir().expect("scratch").count(), 1, "no temporary file is left");
    }

    #[test]
    fn an_unusable_folder_is_a_note() {
        let scratch = Scratch::new("cache-unusable");
        // A file in the way stops root too, which permissions would not.
        let file = scratch.path().join("file");
        fs::write(&file, "").expect("scratch");
        let cache = Cache::open(file.join("cache"));
        cache.store(&some_key("a"), &compiled(1));
        assert_eq!(cache.load(&some_key("a")), None);
        let note = cache.note().expect("a note");
        assert!(note.starts_with("the cubin cache `") && note.contains("compiled at each start"), "{note}");
    }

    #[test]
    fn only_old_temporary_files_are_removed() {
        let scratch = Scratch::new("cache-stale");
        let (old, new) = (scratch.path().join(".writing-1-1"), scratch.path().join(".writing-1-2"));
        File::create(&new).expect("scratch");
        let two_days_ago = SystemTime::now() - 2 * STALE;
        File::create(&old).and_then(|file| file.set_modified(two_days_ago)).expect("scratch");
        Cache::open(scratch.path());
        assert!(!old.exists() && new.exists());
    }
}
