//! The facts behind `kernwright doctor`: driver, GPUs, compiler, libraries, host C++ compiler.
//!
//! [`Places`] and [`Libraries`] come in, plain data goes out, with advice for whatever is missing. Right on a
//! machine that has none of them. The driver is bound by hand, so that nothing here can panic.
// Calls into C libraries.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::host::{self, HostCompiler};
use crate::libraries::{Libraries, Library, Loaded, NEWEST_MAJOR, Version};
use crate::nvrtc::Compiler;
use crate::places::{Place, Places};

/// One thing that was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What it is.
    pub name: &'static str,
    /// Whether it can be used.
    pub present: bool,
    /// Its version, `None` when it is absent or does not say.
    pub version: Option<String>,
    /// The file.
    pub path: Option<PathBuf>,
    /// Why it cannot be used.
    pub problem: Option<String>,
    /// What to do; empty when all is well.
    pub advice: String,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its number, as `CUDA_VISIBLE_DEVICES` leaves it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its compute capability: `(9, 0)`.
    pub compute_capability: (u32, u32),
    /// Its memory.
    pub memory_bytes: u64,
    /// Its multiprocessors.
    pub n_multiprocessors: u32,
    /// The most dynamic shared memory a block may ask for.
    pub shared_memory_bytes: u32,
}

/// All facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The driver; its version is that of the CUDA it offers, such as `13.0`.
    pub driver: Fact,
    /// The GPUs it shows.
    pub gpus: Vec<Gpu>,
    /// The run-time compiler.
    pub nvrtc: Fact,
    /// Matrix products on the GPU.
    pub cublas_lt: Fact,
    /// Communication between GPUs.
    pub nccl: Fact,
    /// The host C++ compiler, for the emulator.
    pub host_compiler: Fact,
    /// The folders searched for libraries, in order.
    pub searched: Vec<Place>,
}

/// Looks at everything.
pub fn probe(libraries: &Libraries, places: &Places) -> Probe {
    let (driver, gpus) = driver(libraries);
    let mut nvrtc = nvrtc(libraries);
    let major =
        |fact: &Fact| fact.version.as_ref().and_then(|text| text.split('.').next()?.parse::<u32>().ok());
    if let (Some(of_driver), Some(of_nvrtc)) = (major(&driver), major(&nvrtc))
        && of_nvrtc > of_driver
    {
        nvrtc.advice = format!(
            "cubins of CUDA {of_nvrtc} do not load on a driver of CUDA {of_driver}: update the driver or install an \
             NVRTC of CUDA {of_driver}"
        );
    }
    Probe {
        driver,
        gpus,
        nvrtc,
        cublas_lt: cublas_lt(libraries),
        nccl: nccl(libraries),
        host_compiler: host_compiler(places),
        searched: libraries.searched.clone(),
    }
}

/// The libraries to work with. Where there is a driver, what it can run comes first: cubins of CUDA 13 do not load on a
/// driver of CUDA 12.
pub fn usable_libraries(places: &Places) -> Libraries {
    let mut libraries = Libraries::find(places);
    if let Some(version) = driver_version(&libraries) {
        libraries.rank(version.major().min(NEWEST_MAJOR));
    }
    libraries
}

/// The version of CUDA that the driver offers, `None` without a driver. Hand its major to [`Libraries::rank`].
pub fn driver_version(libraries: &Libraries) -> Option<Version> {
    Driver::bind(libraries).ok()?.version()
}

/// The version of CUDA that the driver offers, and the GPUs it shows.
///
/// # Errors
/// When there is no driver, or it shows none: why, and what helps.
pub fn gpus(libraries: &Libraries) -> Result<(Version, Vec<Gpu>), Error> {
    let driver = Driver::bind(libraries)?;
    let gpus = driver.gpus().map_err(|status| {
        let (problem, advice) = failure(status);
        Error::NoGpu { problem, advice }
    })?;
    Ok((driver.version().unwrap_or_default(), gpus))
}

impl Fact {
    fn present(name: &'static str, version: Option<String>, path: &Path) -> Fact {
        let path = Some(path.to_path_buf());
        Fact { name, present: true, version, path, problem: None, advice: String::new() }
    }

    fn absent(name: &'static str, problem: String, advice: &str) -> Fact {
        Fact {
            name,
            present: false,
            version: None,
            path: None,
            problem: Some(problem),
            advice: advice.to_owned(),
        }
    }

    fn library(name: &'static str, library: Library, error: &Error) -> Fact {
        Fact::absent(name, error.problem(), library.advice())
    }
}

type Status = c_int;

/// CUDA_ERROR_NO_DEVICE.
const NO_DEVICE: Status = 100;
type Number = unsafe extern "C" fn(*mut c_int) -> Status;

/// The functions of libcuda that tell what there is.
struct Driver {
    path: PathBuf,
    init: unsafe extern "C" fn(u32) -> Status,
    version: Number,
    n_devices: Number,
    device: unsafe extern "C" fn(*mut c_int, c_int) -> Status,
    name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Status,
    memory: unsafe extern "C" fn(*mut usize, c_int) -> Status,
    attribute_of: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Status,
}

impl Driver {
    fn bind(libraries: &Libraries) -> Result<Driver, Error> {
        let loaded = libraries.load(Library::Driver)?;
        // SAFETY: the field types are the signatures in cuda.h, the same since CUDA 3.2.
        unsafe {
            Ok(Driver {
                init: loaded.symbol("cuInit")?,
                version: loaded.symbol("cuDriverGetVersion")?,
                n_devices: loaded.symbol("cuDeviceGetCount")?,
                device: loaded.symbol("cuDeviceGet")?,
                name: loaded.symbol("cuDeviceGetName")?,
                memory: loaded.symbol("cuDeviceTotalMem_v2")?,
                attribute_of: loaded.symbol("cuDeviceGetAttribute")?,
                path: loaded.path,
            })
        }
    }

    /// Needs no `cuInit`.
    fn version(&self) -> Option<Version> {
        number(self.version).ok().map(|version| Version(vec![version / 1000, version % 1000 / 10]))
    }

    fn gpus(&self) -> Result<Vec<Gpu>, Status> {
        // SAFETY: takes flags, which must be 0.
        checked(unsafe { (self.init)(0) })?;
        match number(self.n_devices)? {
            0 => Err(NO_DEVICE),
            n_devices => (0..n_devices).map(|index| self.gpu(index)).collect(),
        }
    }

    fn gpu(&self, index: u32) -> Result<Gpu, Status> {
        let mut device = 0;
        // SAFETY: the pointer outlives the call.
        checked(unsafe { (self.device)(&mut device, index as c_int) })?;
        let mut name = [0_u8; 256];
        // SAFETY: the buffer has the length that is passed.
        checked(unsafe { (self.name)(name.as_mut_ptr().cast(), name.len() as c_int, device) })?;
        let mut memory_bytes = 0;
        // SAFETY: the pointer outlives the call.
        checked(unsafe { (self.memory)(&mut memory_bytes, device) })?;
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(Gpu {
            index,
            name: String::from_utf8_lossy(name).into_owned(),
            // The numbers of CUdevice_attribute.
            compute_capability: (self.attribute(75, device)?, self.attribute(76, device)?),
            memory_bytes: memory_bytes as u64,
            n_multiprocessors: self.attribute(16, device)?,
            shared_memory_bytes: self.attribute(97, device)?,
        })
    }

    fn attribute(&self, which: c_int, device: c_int) -> Result<u32, Status> {
        let mut value = 0;
        // SAFETY: the pointer outlives the call; unknown attributes are refused with a status.
        checked(unsafe { (self.attribute_of)(&mut value, which, device) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
}

fn checked(status: Status) -> Result<(), Status> {
    if status == 0 { Ok(()) } else { Err(status) }
}

fn number(function: Number) -> Result<u32, Status> {
    let mut value = 0;
    // SAFETY: `Number` is a function that writes one integer; the pointer outlives the call.
    checked(unsafe { function(&mut value) })?;
    Ok(u32::try_from(value).unwrap_or(0))
}

fn driver(libraries: &Libraries) -> (Fact, Vec<Gpu>) {
    const NAME: &str = "NVIDIA driver";
    let driver = match Driver::bind(libraries) {
        Ok(driver) => driver,
        Err(error) => return (Fact::library(NAME, Library::Driver, &error), Vec::new()),
    };
    let version = driver.version();
    let mut fact = Fact::present(NAME, version.as_ref().map(Version::to_string), &driver.path);
    if version.is_some_and(|version| version.major() < NEWEST_MAJOR) {
        fact.advice =
            format!("update the driver to 580 or later, or use an NVRTC older than CUDA {NEWEST_MAJOR}");
    }
    match driver.gpus() {
        Ok(gpus) => (fact, gpus),
        Err(status) => {
            let (problem, advice) = failure(status);
            (Fact { problem: Some(problem.to_owned()), advice, ..fact }, Vec::new())
        }
    }
}

/// What a driver that shows no GPU means, and what helps. The numbers of CUresult.
fn failure(status: Status) -> (&'static str, String) {
    let (problem, advice) = match status {
        34 => ("the driver is a stub for linking", "take the `stubs` folder out of `LD_LIBRARY_PATH`"),
        NO_DEVICE => {
            ("the driver shows no GPU", "check `CUDA_VISIBLE_DEVICES` and, in a container, `--gpus all`")
        }
        802 => ("the GPUs are not ready", "start `nvidia-fabricmanager`"),
        803 | 804 => {
            ("the driver's library and kernel module differ", "restart the machine or reinstall the driver")
        }
        999 => ("the driver failed without a reason", "look into `dmesg`, reload `nvidia_uvm`"),
        _ => return ("the driver shows no GPU", format!("look up CUresult `{status}` and try `nvidia-smi`")),
    };
    (problem, advice.to_owned())
}

fn nvrtc(libraries: &Libraries) -> Fact {
    const NAME: &str = "NVRTC";
    match Compiler::open(libraries) {
        Ok(compiler) => {
            // The file's name often tells the patch level, which NVRTC itself does not.
            let own = compiler.version();
            let of_file = libraries.candidates(Library::Nvrtc).find(|found| found.path == compiler.path());
            let full = of_file.map(|found| &found.version).filter(|full| full.0.starts_with(&own.0));
            Fact::present(NAME, Some(full.unwrap_or(own).to_string()), compiler.path())
        }
        Err(error) => Fact::library(NAME, Library::Nvrtc, &error),
    }
}

fn cublas_lt(libraries: &Libraries) -> Fact {
    const NAME: &str = "cuBLASLt";
    let version = |loaded: &Loaded| {
        // SAFETY: `size_t cublasLtGetVersion(void)` since the first cuBLASLt.
        let function: unsafe extern "C" fn() -> usize = unsafe { loaded.symbol("cublasLtGetVersion") }?;
        // SAFETY: takes nothing and keeps nothing.
        Ok(unsafe { function() } as u32)
    };
    match libraries.load(Library::CublasLt).and_then(|loaded| Ok((version(&loaded)?, loaded.path))) {
        Ok((number, path)) => Fact::present(NAME, Some(decimal(number)), &path),
        Err(error) => Fact::library(NAME, Library::CublasLt, &error),
    }
}

fn nccl(libraries: &Libraries) -> Fact {
    const NAME: &str = "NCCL";
    let version = |loaded: &Loaded| {
        // SAFETY: `ncclResult_t ncclGetVersion(int*)`.
        let function: Number = unsafe { loaded.symbol("ncclGetVersion") }?;
        Ok(number(function).ok())
    };
    match libraries.load(Library::Nccl).and_then(|loaded| Ok((version(&loaded)?, loaded.path))) {
        Ok((number, path)) => Fact::present(NAME, number.map(decimal), &path),
        Err(error) => Fact::library(NAME, Library::Nccl, &error),
    }
}

/// `130002` is 13.0.2, and so with NCCL's `22803`: 2.28.3.
fn decimal(number: u32) -> String {
    Version(vec![number / 10_000, number / 100 % 100, number % 100]).to_string()
}

fn host_compiler(places: &Places) -> Fact {
    const NAME: &str = "host C++ compiler";
    match HostCompiler::find(places) {
        Ok(found) => Fact::present(NAME, Some(found.version).filter(|text| !text.is_empty()), &found.program),
        Err(error) => Fact::absent(NAME, error.problem(), host::ADVICE),
    }
}
