//! Where NVIDIA's libraries may lie on this machine, in the order in which the folders are searched.
//!
//! Variables come in as data, folders come out. Order: `KERNWRIGHT_CUDA_PATH`, `LD_LIBRARY_PATH`, pip wheels of
//! the active virtual environment, conda, pip wheels of the `python3` on `PATH`, `CUDA_HOME` and `CUDA_PATH`,
//! `/usr/local/cuda*`, the system's library folders. What a file name means is not known here.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command;

/// The parts of the environment that say where libraries and programs lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// `KERNWRIGHT_CUDA_PATH`: a folder that goes before everything else.
    pub kernwright_cuda_path: Option<PathBuf>,
    /// The entries of `LD_LIBRARY_PATH`.
    pub ld_library_path: Vec<PathBuf>,
    /// `VIRTUAL_ENV`: the root of the active virtual environment.
    pub virtual_env: Option<PathBuf>,
    /// `CONDA_PREFIX`: the root of the active conda environment.
    pub conda_prefix: Option<PathBuf>,
    /// `CUDA_HOME`.
    pub cuda_home: Option<PathBuf>,
    /// `CUDA_PATH`.
    pub cuda_path: Option<PathBuf>,
    /// The entries of `PATH`, to find `python3` and the host C++ compiler.
    pub path: Vec<PathBuf>,
    /// `HOME`: pip's `--user` wheels lie below it.
    pub home: Option<PathBuf>,
    /// `CXX`: the host C++ compiler, possibly with arguments.
    pub cxx: Option<String>,
    /// The root of the file system. Anything but `/` (tests) also keeps the loader's own search out.
    pub root: PathBuf,
}

/// Why a folder is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `KERNWRIGHT_CUDA_PATH`.
    Explicit,
    /// `LD_LIBRARY_PATH`.
    LoaderPath,
    /// A wheel in the active virtual environment.
    VirtualEnv,
    /// The active conda environment.
    Conda,
    /// A wheel that the `python3` on `PATH` can import.
    Python,
    /// `CUDA_HOME` or `CUDA_PATH`.
    CudaHome,
    /// `/usr/local/cuda*` or the system's library folders.
    System,
    /// The dynamic loader's own search, by bare name.
    Loader,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Explicit => "KERNWRIGHT_CUDA_PATH",
            Origin::LoaderPath => "LD_LIBRARY_PATH",
            Origin::VirtualEnv => "VIRTUAL_ENV",
            Origin::Conda => "CONDA_PREFIX",
            Origin::Python => "python3 on PATH",
            Origin::CudaHome => "CUDA_HOME or CUDA_PATH",
            Origin::System => "system",
            Origin::Loader => "dynamic loader",
        })
    }
}

/// One folder that is searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Why.
    pub origin: Origin,
    /// Which; it may not exist.
    pub folder: PathBuf,
}

/// The architecture part of CUDA's and Debian's folder names.
#[cfg(target_arch = "aarch64")]
const ARCH_FOLDERS: (&str, &str) = ("targets/sbsa-linux/lib", "usr/lib/aarch64-linux-gnu");
#[cfg(not(target_arch = "aarch64"))]
const ARCH_FOLDERS: (&str, &str) = ("targets/x86_64-linux/lib", "usr/lib/x86_64-linux-gnu");

/// A cold interpreter on a network file system is slow; a broken one never answers.
const PYTHON_LIMIT: Duration = Duration::from_secs(10);

impl Places {
    /// Picks the variables that matter; pass `std::env::vars_os()`.
    pub fn from_variables<K, V>(variables: impl IntoIterator<Item = (K, V)>) -> Places
    where
        K: Into<OsString>,
        V: Into<OsString>,
    {
        let mut places = Places {
            kernwright_cuda_path: None,
            ld_library_path: Vec::new(),
            virtual_env: None,
            conda_prefix: None,
            cuda_home: None,
            cuda_path: None,
            path: Vec::new(),
            home: None,
            cxx: None,
            root: PathBuf::from("/"),
        };
        for (key, value) in variables {
            let (key, value) = (key.into(), value.into());
            // An empty variable means the same as an absent one; an empty entry of a list would mean `.`.
            let one = || Some(PathBuf::from(&value)).filter(|path| !path.as_os_str().is_empty());
            let list = || std::env::split_paths(&value).filter(|path| path.is_absolute()).collect();
            match key.to_str() {
                Some("KERNWRIGHT_CUDA_PATH") => places.kernwright_cuda_path = one(),
                Some("LD_LIBRARY_PATH") => places.ld_library_path = list(),
                Some("VIRTUAL_ENV") => places.virtual_env = one(),
                Some("CONDA_PREFIX") => places.conda_prefix = one(),
                Some("CUDA_HOME") => places.cuda_home = one(),
                Some("CUDA_PATH") => places.cuda_path = one(),
                Some("PATH") => places.path = list(),
                Some("HOME") => places.home = one(),
                Some("CXX") => places.cxx = value.into_string().ok().filter(|text| !text.trim().is_empty()),
                _ => {}
            }
        }
        places
    }

    /// The folders that cost nothing to name: those before Python is asked.
    pub(crate) fn before_python(&self) -> Vec<Place> {
        let mut out = Vec::new();
        if let Some(folder) = &self.kernwright_cuda_path {
            add(&mut out, Origin::Explicit, [folder.clone()]);
            add(&mut out, Origin::Explicit, toolkit(folder));
        }
        // `stubs` holds link-time dummies whose functions all fail.
        let real = self.ld_library_path.iter().filter(|folder| !folder.ends_with("stubs"));
        add(&mut out, Origin::LoaderPath, real.cloned());
        if let Some(root) = &self.virtual_env {
            for site in sites_below(root) {
                add(&mut out, Origin::VirtualEnv, wheels(&site));
            }
        }
        if let Some(root) = &self.conda_prefix {
            add(&mut out, Origin::Conda, toolkit(root));
            for site in sites_below(root) {
                add(&mut out, Origin::Conda, wheels(&site));
            }
        }
        out
    }

    /// The wheels that the first `python3` on `PATH` can import. Runs it once.
    pub(crate) fn of_python(&self) -> Vec<Place> {
        let mut out = Vec::new();
        let Some(python) = command::which("python3", &self.path) else { return out };
        let sites = match command::output(
            &python,
            &["-c", "import sys; print('\\n'.join(sys.path))"],
            PYTHON_LIMIT,
        ) {
            Ok(text) => text.lines().map(PathBuf::from).filter(|path| path.is_absolute()).collect(),
            // Without an answer the usual layouts remain: beside the interpreter, and pip's --user folder.
            Err(_) => {
                let prefix = python.parent().and_then(Path::parent);
                let user = self.home.as_ref().map(|home| home.join(".local"));
                prefix.into_iter().chain(user.as_deref()).flat_map(sites_below).collect::<Vec<_>>()
            }
        };
        for site in sites {
            add(&mut out, Origin::Python, wheels(&site));
        }
        out
    }

    /// Toolkits installed for the whole machine and the system's library folders.
    pub(crate) fn of_system(&self) -> Vec<Place> {
        let mut out = Vec::new();
        for folder in self.cuda_home.iter().chain(&self.cuda_path) {
            add(&mut out, Origin::CudaHome, toolkit(folder));
        }
        // The plain name first: it is the administrator's choice among those with a version.
        let local = self.root.join("usr/local");
        for folder in [local.join("cuda")].into_iter().chain(children(&local, "cuda-")) {
            add(&mut out, Origin::System, toolkit(&folder));
        }
        // The last two: the driver under WSL and on NixOS.
        let folders = [ARCH_FOLDERS.1, "usr/lib64", "usr/lib", "usr/lib/wsl/lib", "run/opengl-driver/lib"];
        add(&mut out, Origin::System, folders.map(|folder| self.root.join(folder)));
        out
    }
}

fn add(out: &mut Vec<Place>, origin: Origin, folders: impl IntoIterator<Item = PathBuf>) {
    out.extend(folders.into_iter().map(|folder| Place { origin, folder }));
}

/// The library folders of a CUDA toolkit or any prefix laid out like one.
fn toolkit(root: &Path) -> [PathBuf; 3] {
    [root.join("lib64"), root.join("lib"), root.join(ARCH_FOLDERS.0)]
}

/// `lib/python3.*/{site,dist}-packages` below a prefix.
fn sites_below(prefix: &Path) -> Vec<PathBuf> {
    let versions = children(&prefix.join("lib"), "python3");
    versions.iter().flat_map(|lib| [lib.join("site-packages"), lib.join("dist-packages")]).collect()
}

/// The library folders of NVIDIA's wheels: `nvidia/cu13/lib` since CUDA 13, `nvidia/<library>/lib` before.
fn wheels(site: &Path) -> Vec<PathBuf> {
    children(&site.join("nvidia"), "")
        .into_iter()
        .map(|wheel| wheel.join("lib"))
        .filter(|lib| lib.is_dir())
        .collect()
}

/// The entries of a folder whose names begin so, newest name first; none when there is no such folder.
fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut out: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|e| e.path())
        .collect();
    out.sort_by(|a, b| b.cmp(a));
    out
}
