//! Texts become loadable files, kept in a folder from run to run.
//!
//! In: a kernel's text, or the emulator's own source, which is embedded. Out: a file that the loader takes. An entry is
//! named by a hash of all that decides its bytes, ends with a checksum, and is written under a temporary name and renamed:
//! any number of processes may share the folder, and a damaged entry is made again. The text lies beside it, where a
//! debugger finds it.

use super::EmulatorError;
use kernwright_compile::{Hash, HostCompiler};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

macro_rules! device {
    ($($name:literal,)*) => {
        &[$(($name, include_str!(concat!("device/", $name))),)*]
    };
}

/// What kernels include.
const HEADERS: &[(&str, &str)] =
    device!["kernwright_emulator.h", "kernwright_hopper.h", "kernwright_numbers.h",];
/// What the library is made of, compiled as one text.
const SOURCES: &[(&str, &str)] = device![
    "faults.h",
    "model.h",
    "hopper.h",
    "fiber.cc",
    "scheduler.cc",
    "warp.cc",
    "barrier.cc",
    "checks.cc",
    "memory.cc",
    "matrix.cc",
    "mbarrier.cc",
    "tma.cc",
    "wgmma.cc",
    "warpgroup.cc",
    "cluster.cc",
    "counters.cc",
    "hooks.cc",
];

/// Frame pointers let a report walk a fiber's stack.
const FLAGS: &[&str] = &[
    "-std=c++17",
    "-fPIC",
    "-shared",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-omit-frame-pointer",
    "-ffp-contract=off",
];
const LIBRARY_FLAGS: &[&str] = &["-O2", "-g1", "-Wall", "-Wextra", "-pthread"];
const KERNEL_FLAGS: &[&str] = &[
    "-DKERNWRIGHT_EMULATOR",
    "-fno-math-errno",
    "-Wno-unknown-pragmas",
    // Tensor maps are aligned to 128 bytes.
    "-Wno-psabi",
    // STACK_RESERVE of device/model.h leaves room for it.
    "-Werror=frame-larger-than=131072",
    "-nostdlib",
    // A name that the emulator lacks is then an error of the compiler, not of the loader.
    "-Wl,-z,defs",
];
const CHECKED: &[&str] = &["-fsanitize=thread"];
const FAST: &[&str] = &["-O1", "-g1"];
const DEBUGGED: &[&str] = &["-O0", "-g"];

const MAGIC: &[u8; 8] = b"kwemul01";
const TAIL_BYTES: usize = 16 + MAGIC.len();
const TEMPORARY: &str = ".writing-";
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// Compiles for the emulator, into one folder.
pub(super) struct Builder {
    compiler: HostCompiler,
    /// Headers, library and modules of this source and compiler.
    folder: PathBuf,
    /// The emulator's library.
    pub(super) library: PathBuf,
    kernel_flags: Vec<&'static str>,
}

/// A compiled kernel.
pub(super) struct Built {
    pub(super) module: PathBuf,
    pub(super) source: PathBuf,
}

impl Builder {
    /// Compiles the emulator itself, unless the folder has it.
    pub(super) fn open(
        compiler: HostCompiler,
        cache: &Path,
        checks: bool,
        debug: bool,
    ) -> Result<Builder, EmulatorError> {
        let mut hash = Hash::new().field(&compiler.program.to_string_lossy()).field(&compiler.version);
        for text in compiler.arguments.iter().map(String::as_str).chain(FLAGS.iter().copied()) {
            hash = hash.field(text);
        }
        for (name, text) in HEADERS.iter().chain(SOURCES) {
            hash = hash.field(name).field(text);
        }
        for flag in LIBRARY_FLAGS {
            hash = hash.field(flag);
        }
        let stamp = format!("{:032x}", hash.finish());
        // Absolute, since the loader takes a bare name for one of its own, and a debugger needs to find the texts.
        let cache = std::path::absolute(cache).map_err(|source| file(cache, "found", source))?;
        let folder = cache.join(format!("emulator-{stamp}"));
        fs::create_dir_all(&folder).map_err(|source| file(&folder, "made", source))?;
        for (name, text) in HEADERS.iter().chain(SOURCES) {
            write(&folder.join(name), text.as_bytes())?;
        }
        let main = folder.join("emulator.cc");
        let includes = SOURCES.iter().map(|(name, _)| format!("#include \"{name}\"\n"));
        write(&main, includes.collect::<String>().as_bytes())?;
        let library = folder.join(format!("libkernwright_emulator_{stamp}.so"));
        let mut kernel_flags = KERNEL_FLAGS.to_vec();
        kernel_flags.extend(if checks { CHECKED } else { &[] });
        kernel_flags.extend(if debug { DEBUGGED } else { FAST });
        let builder = Builder { compiler, folder, library, kernel_flags };
        // The first of several that start at once compiles; the others wait for it, and find it done.
        let lock = builder.folder.join("lock");
        let held = File::create(&lock).and_then(|held| held.lock().map(|()| held));
        let _held = held.map_err(|source| file(&lock, "locked", source))?;
        remove_stale(&builder.folder);
        if !is_whole(&builder.library) {
            let mut command = builder.command(LIBRARY_FLAGS);
            builder.compile("the emulator", command.arg(&main), &[], &builder.library)?;
        }
        Ok(builder)
    }

    /// Compiles a kernel, unless the folder has it.
    pub(super) fn build(&self, kernel: &str, text: &str) -> Result<Built, EmulatorError> {
        let is_word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
        if kernel.is_empty() || !kernel.chars().all(is_word) {
            return Err(EmulatorError::Name { name: kernel.to_owned() });
        }
        // A module names the library it belongs to, and its own text, by their whole paths: of two copies of the library
        // in one process it must find its own. A folder that was moved is compiled anew.
        let mut hash = Hash::new().field(&self.library.to_string_lossy()).field(kernel).field(text);
        for flag in &self.kernel_flags {
            hash = hash.field(flag);
        }
        // File names end at 255 bytes; the hash alone already tells entries apart.
        let start: String = kernel.chars().take(120).collect();
        let stem = format!("{start}-{:032x}", hash.finish());
        let (module, source) =
            (self.folder.join(format!("{stem}.so")), self.folder.join(format!("{stem}.cu")));
        if !is_whole(&module) || !source.exists() {
            let mut whole = format!("{text}\n#line 1 \"kernwright_call.h\"\nKERNWRIGHT_KERNEL({kernel})\n");
            if let Some(sizes) = cluster(text) {
                whole += &format!("KERNWRIGHT_CLUSTER({sizes})\n");
            }
            write(&source, whole.as_bytes())?;
            let mut command = self.command(&self.kernel_flags);
            command.arg("-I").arg(&self.folder).args(["-x", "c++"]).arg(&source);
            let library = self.library.to_string_lossy();
            self.compile(kernel, &mut command, &["-x", "none", &library, "-lm", "-lc"], &module)?;
        }
        Ok(Built { module, source })
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = self.compiler.command();
        // Refusals in one language.
        command.env("LC_ALL", "C").args(FLAGS).args(flags);
        command
    }

    fn compile(
        &self,
        kernel: &str,
        command: &mut Command,
        behind: &[&str],
        to: &Path,
    ) -> Result<(), EmulatorError> {
        let temporary = temporary(&self.folder);
        command.args(behind).arg("-o").arg(&temporary).stdin(Stdio::null());
        let failed = |source| EmulatorError::Compiler { program: self.compiler.program.clone(), source };
        let output = command.output().map_err(failed)?;
        let result = if output.status.success() {
            seal(&temporary)
                .and_then(|()| fs::rename(&temporary, to))
                .map_err(|source| file(to, "written", source))
        } else {
            let log = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
            Err(EmulatorError::Rejected { kernel: kernel.to_owned(), log })
        };
        if result.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        result
    }
}

/// What a kernel says of its cluster: the emulator's compiler does not look at it.
fn cluster(text: &str) -> Option<&str> {
    const WORD: &str = "__cluster_dims__(";
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let rest = lines.find_map(|line| line.find(WORD).map(|at| &line[at + WORD.len()..]))?;
    rest.split(')').next()
}

fn file(path: &Path, what: &'static str, source: io::Error) -> EmulatorError {
    EmulatorError::File { path: path.to_owned(), what, source }
}

fn temporary(folder: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    folder.join(format!("{TEMPORARY}{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
}

/// Removes what a crash left behind a day ago or earlier.
fn remove_stale(folder: &Path) {
    let now = SystemTime::now();
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|data| data.modified());
        let age = modified.ok().and_then(|time| now.duration_since(time).ok());
        if entry.file_name().to_string_lossy().starts_with(TEMPORARY) && age.is_some_and(|age| age > STALE) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Writes a small file whole, unless it is there already.
fn write(path: &Path, content: &[u8]) -> Result<(), EmulatorError> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let temporary = temporary(path.parent().unwrap_or(Path::new(".")));
    fs::write(&temporary, content)
        .and_then(|()| fs::rename(&temporary, path))
        .map_err(|source| file(path, "written", source))
}

/// Puts a checksum behind a file: loaders look at what its own head describes, and not beyond.
fn seal(path: &Path) -> io::Result<()> {
    let mut bytes = fs::read(path)?;
    bytes.extend(Hash::new().bytes(&bytes).finish().to_le_bytes());
    bytes.extend(MAGIC);
    fs::write(path, bytes)
}

fn is_whole(path: &Path) -> bool {
    let Ok(bytes) = fs::read(path) else { return false };
    let Some(length) = bytes.len().checked_sub(TAIL_BYTES) else { return false };
    let (content, tail) = bytes.split_at(length);
    let sum = Hash::new().bytes(content).finish().to_le_bytes();
    tail[..16] == sum && tail[16..] == *MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_compile::testing::Scratch;

    #[test]
    fn a_sealed_file_is_whole_until_a_byte_changes() {
        let scratch = Scratch::new("emulator-seal");
        let path = scratch.path().join("module.so");
        assert!(!is_whole(&path), "absent");
        fs::write(&path, b"some code").unwrap();
        assert!(!is_whole(&path), "not sealed");
        seal(&path).unwrap();
        assert!(is_whole(&path));
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            fs::write(&path, &whole[..at]).unwrap();
            assert!(!is_whole(&path), "cut to {at} bytes");
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            fs::write(&path, flipped).unwrap();
            assert!(!is_whole(&path), "byte {at} flipped");
        }
    }

    #[test]
    fn a_cluster_is_what_the_kernel_says_and_no_comment() {
        let text = "// `__cluster_dims__(n, 1, 1)` says\nextern \"C\" __global__ void __cluster_dims__(BLOCKS, 1, 1) k() {}";
        assert_eq!(cluster(text), Some("BLOCKS, 1, 1"));
        assert_eq!(cluster("// __cluster_dims__(2, 1, 1)\nvoid k();"), None);
    }

    #[test]
    fn every_source_of_the_emulator_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/emulator/device");
        let mut found: Vec<_> = folder.read_dir().unwrap().flatten().map(|entry| entry.file_name()).collect();
        found.sort();
        let mut listed: Vec<_> = HEADERS.iter().chain(SOURCES).map(|(name, _)| *name).collect();
        listed.sort_unstable();
        assert_eq!(found, listed);
    }
}
