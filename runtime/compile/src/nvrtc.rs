//! NVRTC behind a safe face: text in, cubin and log out.
//!
//! The ten functions are bound here by hand instead of through cudarc, for three reasons: cudarc panics when a
//! symbol is missing, takes `libnvrtc.so` of any version on the loader's path before the file that was chosen, and
//! reads statuses into a Rust enum, which is undefined for a status of a newer library.
// Calls into a C library.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Instant;

use crate::error::Error;
use crate::libraries::{Libraries, Library, Loaded, Version};
use crate::resources::{self, Resources};

/// One kernel to compile.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The kernel's name; it is also what the log and debuggers call the file.
    pub name: &'a str,
    /// CUDA C++ that includes nothing.
    pub text: &'a str,
    /// The architecture with its suffix: `sm_86`, `sm_90a`.
    pub arch: &'a str,
    /// Options beyond the usual ones, such as `--use_fast_math`.
    pub options: &'a [&'a str],
}

/// What NVRTC made of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Compiled {
    /// An ELF image for `cuModuleLoadData`.
    pub cubin: Vec<u8>,
    /// The whole log.
    pub log: String,
    /// What each entry function takes.
    pub resources: Vec<Resources>,
    /// Warnings and remarks of the log.
    pub notes: Vec<String>,
    /// Time spent compiling.
    pub seconds: f64,
}

/// A loaded NVRTC. Threads may share it.
#[derive(Clone, Debug)]
pub struct Compiler {
    api: Api,
    path: PathBuf,
    version: Version,
    archs: Vec<u32>,
}

/// Given to every compilation. Line information costs no speed and lets profilers show the source.
const OPTIONS: [&str; 5] = [
    "--std=c++17",
    "--ptxas-options=-v",
    // Apart from -v: in one list NVRTC refuses it.
    "--ptxas-options=--warn-on-spills",
    "-lineinfo",
    "-default-device",
];

impl Compiler {
    /// Loads the best NVRTC that was found.
    pub fn open(libraries: &Libraries) -> Result<Compiler, Error> {
        let loaded = libraries.load(Library::Nvrtc)?;
        let api = Api::bind(&loaded)?;
        let (version, archs) = (api.version(), api.archs());
        Ok(Compiler { api, path: loaded.path, version, archs })
    }

    /// Its version, major and minor, as it says itself.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells compilers apart that may give different bytes: NVRTC does not say its patch level, so the length of
    /// its file stands in for it.
    pub fn identity(&self) -> String {
        let n_bytes = self.path.metadata().map_or(0, |data| data.len());
        format!("NVRTC {} of {n_bytes} bytes", self.version)
    }

    /// The architectures it compiles for, as numbers without suffix: 80, 86, 90.
    pub fn archs(&self) -> &[u32] {
        &self.archs
    }

    /// All options of a source's compilation, in order.
    pub fn options(&self, source: &Source<'_>) -> Vec<String> {
        let arch = format!("--gpu-architecture={}", source.arch);
        let usual = OPTIONS.iter().chain(source.options).map(|&option| option.to_owned());
        std::iter::once(arch).chain(usual).collect()
    }

    /// Compiles one source. The log, resources and notes come with success; with failure the log is in the error.
    pub fn compile(&self, source: &Source<'_>) -> Result<Compiled, Error> {
        self.check_arch(source)?;
        let start = Instant::now();
        let c_string =
            |text: &str| CString::new(text).map_err(|_| Error::Nul { kernel: source.name.to_owned() });
        let options =
            self.options(source).iter().map(|option| c_string(option)).collect::<Result<Vec<_>, _>>()?;
        let program =
            Program::new(&self.api, &c_string(source.text)?, &c_string(&format!("{}.cu", source.name))?)
                .map_err(|status| self.failure(source, "nvrtcCreateProgram", status, String::new()))?;
        let status = program.compile(&options);
        let log = program.log();
        if status == REJECTED {
            let (kernel, arch) = (source.name.to_owned(), source.arch.to_owned());
            return Err(Error::Rejected { kernel, arch, log });
        }
        if status != 0 {
            return Err(self.failure(source, "nvrtcCompileProgram", status, log));
        }
        let cubin =
            program.cubin().map_err(|status| self.failure(source, "nvrtcGetCUBIN", status, log.clone()))?;
        Ok(Compiled {
            cubin,
            resources: resources::resources(&log),
            notes: resources::notes(&log),
            log,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    fn check_arch(&self, source: &Source<'_>) -> Result<(), Error> {
        let number = source.arch.strip_prefix("sm_").map(|rest| rest.trim_end_matches(['a', 'f']));
        let number = number.and_then(|text| text.parse().ok());
        let known = number.is_some_and(|number| self.archs.contains(&number));
        // An NVRTC that lists nothing decides by itself.
        if known || self.archs.is_empty() {
            return Ok(());
        }
        let allowed: Vec<String> = self.archs.iter().map(|arch| format!("`sm_{arch}`")).collect();
        Err(Error::Arch {
            kernel: source.name.to_owned(),
            arch: source.arch.to_owned(),
            version: self.version.to_string(),
            age: match number {
                Some(number) if Some(&number) > self.archs.iter().max() => "a newer",
                Some(number) if Some(&number) < self.archs.iter().min() => "an older",
                _ => "another",
            },
            allowed: allowed.join(", "),
        })
    }

    fn failure(&self, source: &Source<'_>, call: &str, status: Status, log: String) -> Error {
        Error::Nvrtc {
            kernel: source.name.to_owned(),
            arch: source.arch.to_owned(),
            call: call.to_owned(),
            status: self.api.status_text(status),
            log: if log.trim().is_empty() { String::new() } else { format!(":\n{log}") },
        }
    }
}

type Status = c_int;
/// An opaque `nvrtcProgram`.
type Handle = *mut c_void;
/// `NVRTC_ERROR_COMPILATION`.
const REJECTED: Status = 6;

type Size = unsafe extern "C" fn(Handle, *mut usize) -> Status;
type Fetch = unsafe extern "C" fn(Handle, *mut c_char) -> Status;

/// NVRTC's functions. The library is never unloaded, so they may be copied and shared.
#[derive(Clone, Copy, Debug)]
struct Api {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    n_archs: unsafe extern "C" fn(*mut c_int) -> Status,
    archs: unsafe extern "C" fn(*mut c_int) -> Status,
    status_text: unsafe extern "C" fn(Status) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    compile: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> Status,
    destroy: unsafe extern "C" fn(*mut Handle) -> Status,
    log_size: Size,
    log: Fetch,
    cubin_size: Size,
    cubin: Fetch,
}

impl Api {
    fn bind(nvrtc: &Loaded) -> Result<Api, Error> {
        // SAFETY: the field types above are the signatures in nvrtc.h, unchanged since CUDA 11.2.
        unsafe {
            Ok(Api {
                version: nvrtc.symbol("nvrtcVersion")?,
                n_archs: nvrtc.symbol("nvrtcGetNumSupportedArchs")?,
                archs: nvrtc.symbol("nvrtcGetSupportedArchs")?,
                status_text: nvrtc.symbol("nvrtcGetErrorString")?,
                create: nvrtc.symbol("nvrtcCreateProgram")?,
                compile: nvrtc.symbol("nvrtcCompileProgram")?,
                destroy: nvrtc.symbol("nvrtcDestroyProgram")?,
                log_size: nvrtc.symbol("nvrtcGetProgramLogSize")?,
                log: nvrtc.symbol("nvrtcGetProgramLog")?,
                cubin_size: nvrtc.symbol("nvrtcGetCUBINSize")?,
                cubin: nvrtc.symbol("nvrtcGetCUBIN")?,
            })
        }
    }

    fn version(&self) -> Version {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both point to integers that outlive the call.
        let status = unsafe { (self.version)(&mut major, &mut minor) };
        let part = |number: c_int| u32::try_from(number).unwrap_or(0);
        if status == 0 { Version(vec![part(major), part(minor)]) } else { Version::default() }
    }

    fn archs(&self) -> Vec<u32> {
        let mut n_archs = 0;
        // SAFETY: points to an integer that outlives the call.
        let status = unsafe { (self.n_archs)(&mut n_archs) };
        let mut archs = vec![0; usize::try_from(n_archs).unwrap_or(0)];
        if status != 0 || archs.is_empty() {
            return Vec::new();
        }
        // SAFETY: the buffer has the length the library has just asked for.
        let status = unsafe { (self.archs)(archs.as_mut_ptr()) };
        let archs = archs.into_iter().filter_map(|arch| u32::try_from(arch).ok());
        if status == 0 { archs.collect() } else { Vec::new() }
    }

    fn status_text(&self, status: Status) -> String {
        // SAFETY: takes any number; returns a static string, null at worst.
        let text = unsafe { (self.status_text)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: not null, static and terminated.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// An `nvrtcProgram`, destroyed when dropped.
struct Program<'a> {
    api: &'a Api,
    handle: Handle,
}

impl<'a> Program<'a> {
    fn new(api: &'a Api, text: &CStr, name: &CStr) -> Result<Program<'a>, Status> {
        let mut handle = ptr::null_mut();
        // SAFETY: the strings are terminated and copied by the library; no headers are passed.
        let status =
            unsafe { (api.create)(&mut handle, text.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null()) };
        if status == 0 { Ok(Program { api, handle }) } else { Err(status) }
    }

    fn compile(&self, options: &[CString]) -> Status {
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the handle is live; the pointers and their strings outlive the call.
        unsafe { (self.api.compile)(self.handle, pointers.len() as c_int, pointers.as_ptr()) }
    }

    /// The log, empty when it cannot be had.
    fn log(&self) -> String {
        let bytes = self.fetch(self.api.log_size, self.api.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text.trim_end_matches('\0').trim_end().to_owned()
    }

    fn cubin(&self) -> Result<Vec<u8>, Status> {
        self.fetch(self.api.cubin_size, self.api.cubin)
    }

    fn fetch(&self, size: Size, fetch: Fetch) -> Result<Vec<u8>, Status> {
        let mut n_bytes = 0;
        // SAFETY: the handle is live and the pointer outlives the call.
        let status = unsafe { size(self.handle, &mut n_bytes) };
        if status != 0 {
            return Err(status);
        }
        let mut bytes = vec![0_u8; n_bytes];
        // SAFETY: the handle is live and the buffer has the length the library has just asked for.
        let status = unsafe { fetch(self.handle, bytes.as_mut_ptr().cast()) };
        if status == 0 { Ok(bytes) } else { Err(status) }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle is live and not used again.
        unsafe { (self.api.destroy)(&mut self.handle) };
    }
}
