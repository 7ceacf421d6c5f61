//! Which of NVIDIA's libraries this machine has, and loading the chosen one.
//!
//! [`Places`] come in; every file found, ranked, and every folder searched come out. Rule of choice:
//! `KERNWRIGHT_CUDA_PATH` first, then the newest major version up to [`NEWEST_MAJOR`], then the order of the
//! places; the first that loads is used. So a wheel pinned in the environment wins over a system toolkit of the
//! same major version, and a stale toolkit of an older one does not get in the way.
// Loading a foreign library runs its initialisers and trusts its functions' signatures.
#![allow(unsafe_code)]

use std::cmp::Reverse;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::places::{Origin, Place, Places};

/// The newest major version of CUDA that is known to work; newer ones are the last resort.
pub const NEWEST_MAJOR: u32 = 13;

/// One of NVIDIA's libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// The driver, `libcuda`.
    Driver,
    /// The run-time compiler.
    Nvrtc,
    /// What the run-time compiler loads by itself.
    NvrtcBuiltins,
    /// Matrix products.
    CublasLt,
    /// Communication between GPUs.
    Nccl,
    /// The GPU's own records of what ran when.
    Cupti,
}

impl Library {
    /// All of them.
    pub const ALL: [Library; 6] = [
        Library::Driver,
        Library::Nvrtc,
        Library::NvrtcBuiltins,
        Library::CublasLt,
        Library::Nccl,
        Library::Cupti,
    ];

    /// The file name without its version.
    pub fn file_name(self) -> &'static str {
        match self {
            Library::Driver => "libcuda.so",
            Library::Nvrtc => "libnvrtc.so",
            Library::NvrtcBuiltins => "libnvrtc-builtins.so",
            Library::CublasLt => "libcublasLt.so",
            Library::Nccl => "libnccl.so",
            Library::Cupti => "libcupti.so",
        }
    }

    /// What to do when it is missing.
    pub fn advice(self) -> &'static str {
        match self {
            Library::Driver => "install NVIDIA's driver (580 or later for CUDA 13); compiling needs none",
            Library::Nvrtc | Library::NvrtcBuiltins => {
                "run `pip install nvidia-cuda-nvrtc==13.0.88`, or set `KERNWRIGHT_CUDA_PATH` to a folder that holds it"
            }
            Library::CublasLt => {
                "run `pip install nvidia-cublas`, or set `KERNWRIGHT_CUDA_PATH` to a CUDA toolkit"
            }
            Library::Nccl => "run `pip install nvidia-nccl-cu13`; needed only for several GPUs",
            Library::Cupti => "run `pip install nvidia-cuda-cupti`; `profile` does without it, less exactly",
        }
    }

    /// The names to ask the dynamic loader for, in order.
    fn loader_names(self) -> &'static [&'static str] {
        match self {
            Library::Driver => &["libcuda.so.1"],
            Library::Nvrtc => &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
            Library::NvrtcBuiltins => &[],
            Library::CublasLt => &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"],
            Library::Nccl => &["libnccl.so.2", "libnccl.so"],
            Library::Cupti => &["libcupti.so.13", "libcupti.so.12", "libcupti.so"],
        }
    }
}

/// A version as far as file names tell it: `13`, `13.0`, `13.0.88`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub Vec<u32>);

impl Version {
    /// The first number, 0 when nothing is known.
    pub fn major(&self) -> u32 {
        self.0.first().copied().unwrap_or(0)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(if parts.is_empty() { "of unknown version".to_owned() } else { parts.join(".") }.as_str())
    }
}

/// One file found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which library.
    pub library: Library,
    /// Its path; a bare name when the loader found it and would not say where.
    pub path: PathBuf,
    /// Its version as its file name tells it.
    pub version: Version,
    /// Why its folder was searched.
    pub origin: Origin,
}

/// All that was found, best first for each library, and where it was looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Libraries {
    /// The files.
    pub found: Vec<Found>,
    /// The folders, in order, whether they exist or not.
    pub searched: Vec<Place>,
}

impl Libraries {
    /// Searches. Python is run only when the compiler or cuBLASLt did not turn up before it.
    pub fn find(places: &Places) -> Libraries {
        let mut libraries = Libraries::default();
        libraries.scan(places.before_python());
        if [Library::Nvrtc, Library::CublasLt].iter().any(|&library| libraries.best(library).is_none()) {
            libraries.scan(places.of_python());
        }
        libraries.scan(places.of_system());
        if places.root == Path::new("/") {
            for library in Library::ALL {
                if libraries.best(library).is_none() {
                    libraries.found.extend(ask_loader(library));
                }
            }
        }
        libraries.rank(NEWEST_MAJOR);
        libraries
    }

    /// Searches for the driver alone, which costs little: Python is not run.
    pub fn find_driver(places: &Places) -> Libraries {
        let mut libraries = Libraries::default();
        libraries.scan(places.before_python());
        libraries.scan(places.of_system());
        if places.root == Path::new("/") && libraries.best(Library::Driver).is_none() {
            libraries.found.extend(ask_loader(Library::Driver));
        }
        libraries.rank(NEWEST_MAJOR);
        libraries
    }

    /// Orders the candidates again for a newest major version, such as the driver's own: cubins of CUDA 13 do not
    /// load on a driver of CUDA 12.
    pub fn rank(&mut self, newest_major: u32) {
        // The sort is stable, so places keep their order among equals.
        self.found.sort_by_key(|found| {
            let major = found.version.major();
            (found.origin != Origin::Explicit, major > newest_major, Reverse(major))
        });
    }

    /// The files of one library, best first.
    pub fn candidates(&self, library: Library) -> impl Iterator<Item = &Found> {
        self.found.iter().filter(move |found| found.library == library)
    }

    /// The file that is tried first.
    pub fn best(&self, library: Library) -> Option<&Found> {
        self.candidates(library).next()
    }

    /// Loads the first candidate that can be loaded, for the rest of the process. Whoever later asks the loader
    /// for the same versioned name (`libcublasLt.so.13`) gets this file.
    pub fn load(&self, library: Library) -> Result<Loaded, Error> {
        let mut reasons = Vec::new();
        for found in self.candidates(library) {
            // NVRTC 13.0 has no run path: it finds its builtins only if they are loaded already. cuBLASLt compiles some
            // kernels with NVRTC, which it asks the loader for.
            let needed: &[Library] = match library {
                Library::Nvrtc => &[Library::NvrtcBuiltins],
                Library::CublasLt => &[Library::NvrtcBuiltins, Library::Nvrtc],
                _ => &[],
            };
            for path in needed.iter().flat_map(|&needed| beside(found, needed)) {
                let _ = open(&path);
            }
            match open(&found.path) {
                Ok(library) => return Ok(Loaded { path: found.path.clone(), library }),
                Err(reason) => reasons.push(format!("`{}`: {reason}", found.path.display())),
            }
        }
        let (library, advice) = (library.file_name().to_owned(), library.advice().to_owned());
        Err(if reasons.is_empty() {
            Error::Missing { library, n_places: self.searched.len(), advice }
        } else {
            Error::Unusable { library, reasons: reasons.join("; "), advice }
        })
    }

    fn scan(&mut self, places: Vec<Place>) {
        for place in places {
            // `/usr/local/cuda` usually is a link to one of its neighbours.
            let real = place.folder.canonicalize().unwrap_or_else(|_| place.folder.clone());
            if self.searched.iter().any(|old| old.folder.canonicalize().is_ok_and(|old| old == real)) {
                continue;
            }
            for library in Library::ALL {
                self.found.extend(files(library, &place));
            }
            self.searched.push(place);
        }
    }
}

/// The files of a library in one folder, one for each real file, under the name that tells most of its version.
fn files(library: Library, place: &Place) -> Vec<Found> {
    let mut named: Vec<(Version, PathBuf)> = Vec::new();
    for entry in place.folder.read_dir().into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(version) = version_of(library, &path) else { continue };
        if path.is_file() {
            named.push((version, path));
        }
    }
    named.sort_by_key(|(version, path)| (Reverse(version.0.len()), Reverse(version.clone()), path.clone()));
    let mut seen = Vec::new();
    let mut out = Vec::new();
    for (version, path) in named {
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        if !seen.contains(&real) {
            // A link `libnvrtc.so.13` may point to `elsewhere/libnvrtc.so.13.0.88`.
            let full = version_of(library, &real).filter(|full| full.0.len() > version.0.len());
            seen.push(real);
            out.push(Found { library, path, version: full.unwrap_or(version), origin: place.origin });
        }
    }
    out
}

/// The version in a file name, `None` when the file is not of this library.
fn version_of(library: Library, path: &Path) -> Option<Version> {
    let rest = path.file_name()?.to_str()?.strip_prefix(library.file_name())?;
    if rest.is_empty() {
        return Some(Version::default());
    }
    let parts: Result<Vec<u32>, _> = rest.strip_prefix('.')?.split('.').map(str::parse).collect();
    parts.ok().map(Version)
}

/// The files of another library, of the same major version, in the folder of one that was found.
fn beside(found: &Found, other: Library) -> Vec<PathBuf> {
    let Some(folder) = found.path.parent().filter(|folder| folder.is_absolute()) else { return Vec::new() };
    let place = Place { origin: found.origin, folder: folder.to_path_buf() };
    let major = found.version.major();
    let fits = |file: &Found| major == 0 || [0, major].contains(&file.version.major());
    files(other, &place).into_iter().filter(fits).map(|file| file.path).collect()
}

/// What the loader finds by bare name. It stays loaded.
fn ask_loader(library: Library) -> Option<Found> {
    let name = library.loader_names().iter().find(|name| open(Path::new(name)).is_ok())?;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.find('/').map(|start| PathBuf::from(&line[start..])));
    let path =
        paths.into_iter().find(|path| version_of(library, path).is_some()).unwrap_or_else(|| name.into());
    let version = version_of(library, &path).unwrap_or_default();
    Some(Found { library, path, version, origin: Origin::Loader })
}

/// A library that stays loaded until the process ends.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The file.
    pub path: PathBuf,
    library: &'static libloading::Library,
}

impl Loaded {
    /// A function of the library, copied out.
    ///
    /// # Safety
    ///
    /// `T` must be the C function pointer type of that function.
    pub unsafe fn symbol<T: Copy>(&self, name: &str) -> Result<T, Error> {
        // SAFETY: the caller vouches for the type; the library is never unloaded, so a copy stays valid.
        let symbol = unsafe { self.library.get::<T>(name) };
        symbol
            .map(|symbol| *symbol)
            .map_err(|_| Error::Symbol { path: self.path.clone(), symbol: name.to_owned() })
    }
}

fn open(path: &Path) -> Result<&'static libloading::Library, String> {
    // SAFETY: runs the initialisers of one of NVIDIA's libraries, which need nothing from us. It is leaked on
    // purpose: these libraries do not survive being unloaded.
    let library = unsafe { libloading::Library::new(path) };
    // The loader's own words hold the reason; libloading's Display alone does not.
    let library = library.map_err(|error| match std::error::Error::source(&error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    })?;
    Ok(Box::leak(Box::new(library)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_file_names() {
        let version = |name: &str| version_of(Library::Nvrtc, Path::new(name)).map(|version| version.0);
        assert_eq!(version("/a/libnvrtc.so"), Some(vec![]));
        assert_eq!(version("/a/libnvrtc.so.13"), Some(vec![13]));
        assert_eq!(version("libnvrtc.so.12.9.86"), Some(vec![12, 9, 86]));
        for other in
            ["libnvrtc.alt.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc.so.old", "libnvrtc_static.a"]
        {
            assert_eq!(version(other), None, "{other}");
        }
    }

    #[test]
    fn a_version_is_shown_with_dots() {
        assert_eq!(Version(vec![13, 0, 88]).to_string(), "13.0.88");
        assert_eq!(Version::default().to_string(), "of unknown version");
    }
}
