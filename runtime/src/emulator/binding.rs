//! The border to what the host compiler made: the emulator's library and the modules of kernels.
//!
//! In: files to load, a launch as plain data. Out: a [`Report`] where a check found something. The layouts mirror
//! `device/model.h`. All of the emulator's unsafe code is here.
#![allow(unsafe_code)]

use super::EmulatorError;
use crate::tensor_map::WORDS;
use libloading::Library;
use std::ffi::{CStr, c_char, c_void};
use std::path::Path;

pub(super) const MOST_THREADS: usize = 1024;
const MOST_FRAMES: usize = 16;

/// What one thread waited for when all were stuck.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Waiting {
    pub(super) site: u64,
    pub(super) operation: u32,
    pub(super) detail: u32,
    pub(super) has_returned: u32,
    pub(super) bytes: u32,
}

/// The facts of a fault, as `device/model.h` tells them.
#[repr(C)]
pub(super) struct Report {
    pub(super) fault: u32,
    pub(super) access: u32,
    pub(super) operation: u32,
    pub(super) bytes: u32,
    pub(super) block_number: u64,
    pub(super) block: [u32; 3],
    pub(super) thread: [u32; 3],
    pub(super) address: u64,
    pub(super) detail: u64,
    pub(super) other_detail: u64,
    pub(super) other_thread: [u32; 3],
    pub(super) other_access: u32,
    pub(super) other_site: u64,
    pub(super) other_operation: u32,
    pub(super) n_frames: u32,
    pub(super) frames: [u64; MOST_FRAMES],
    pub(super) n_waiting: u32,
    /// Of which other block of the cluster the shared memory below is, plus one; 0 for the thread's own.
    pub(super) other_block: u32,
    pub(super) waiting: [Waiting; MOST_THREADS],
    /// Where the block's shared memory lay, and its size.
    pub(super) shared: [u64; 2],
}

impl Report {
    fn new() -> Box<Report> {
        Box::new(Report {
            fault: 0,
            access: 0,
            operation: 0,
            bytes: 0,
            block_number: 0,
            block: [0; 3],
            thread: [0; 3],
            address: 0,
            detail: 0,
            other_detail: 0,
            other_thread: [0; 3],
            other_access: 0,
            other_site: 0,
            other_operation: 0,
            n_frames: 0,
            frames: [0; MOST_FRAMES],
            n_waiting: 0,
            other_block: 0,
            waiting: [Waiting::default(); MOST_THREADS],
            shared: [0; 2],
        })
    }
}

/// An allocation that kernels may touch.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Range {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) written: *mut u8,
    pub(super) constant: u64,
}

/// The counts of one place; see `device/model.h`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct CounterRow {
    pub(super) site: u64,
    pub(super) what: u32,
    unused: u32,
    pub(super) requests: u64,
    pub(super) units: u64,
    pub(super) least: u64,
}

#[repr(C)]
struct RawCounters {
    rows: *mut CounterRow,
    capacity: u64,
    n_rows: u64,
}

/// Places of a kernel that are counted; those beyond are not.
const MOST_ROWS: usize = 4096;

type SamePlace = extern "C" fn(*const c_void, u64, u64) -> u32;
type Call = unsafe extern "C" fn(*const *const c_void);

#[repr(C)]
struct RawLaunch {
    call: Call,
    arguments: *const *const c_void,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u64,
    module_base: u64,
    module_bytes: u64,
    allocations: *const Range,
    n_allocations: u64,
    checks: u32,
    workers: u32,
    cluster: u32,
    unused: u32,
    counters: *mut RawCounters,
    same_place: SamePlace,
    context: *const c_void,
}

/// An argument of a kernel, in its low bytes: room for the largest, aligned as that.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub(super) struct Parameter(pub(super) [u64; WORDS]);

impl Parameter {
    /// One that fills a word at most.
    pub(super) fn word(word: u64) -> Self {
        let mut words = [0; WORDS];
        words[0] = word;
        Self(words)
    }
}

/// A grid to run.
pub(super) struct Launch<'a> {
    pub(super) grid: [u32; 3],
    pub(super) block: u32,
    pub(super) shared_bytes: u64,
    pub(super) arguments: &'a [Parameter],
    /// Sorted by address.
    pub(super) ranges: Vec<Range>,
    pub(super) checks: bool,
    pub(super) workers: u32,
    /// Where to add what is counted, if it is.
    pub(super) counters: Option<&'a mut Vec<CounterRow>>,
    /// Whether two places of the module, counted from its beginning, are the same line inlined the same way.
    pub(super) same_place: &'a (dyn Fn(u64, u64) -> bool + Sync),
}

/// How a launch ended.
pub(super) enum Ended {
    Whole,
    Fault(Box<Report>),
}

/// The loaded library and its workers.
pub(super) struct Device {
    pool: *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    launch: unsafe extern "C" fn(*mut c_void, *const RawLaunch, *mut Report) -> u32,
    extent: unsafe extern "C" fn(*const c_void, *mut u64, *mut u64),
    // Last: everything above points into it.
    _library: Library,
}

// SAFETY: the pool is used through `&mut self` only, and its threads end with each launch.
unsafe impl Send for Device {}

/// A loaded kernel.
pub(super) struct Module {
    call: Call,
    /// The kinds of its parameters, a letter each; see `device/kernwright_emulator.h`.
    pub(super) kinds: String,
    /// Blocks that run together.
    pub(super) cluster: u32,
    /// Where it lies in memory.
    pub(super) base: u64,
    bytes: u64,
    _library: Library,
}

fn unloadable(path: &Path) -> impl Fn(libloading::Error) -> EmulatorError + '_ {
    |error| EmulatorError::Load { path: path.to_owned(), reason: error.to_string() }
}

impl Device {
    pub(super) fn load(path: &Path) -> Result<Device, EmulatorError> {
        let failed = unloadable(path);
        // SAFETY: the file is our own source, compiled; its initialisers only prepare the C++ library.
        let library = unsafe { Library::new(path) }.map_err(&failed)?;
        // SAFETY: the types are those of the functions' definitions in device/scheduler.cc, and the addresses are used
        // only while the library is loaded: `Device` keeps it.
        unsafe {
            let new: unsafe extern "C" fn() -> *mut c_void =
                *library.get(b"kernwright_pool_new\0").map_err(&failed)?;
            let free = *library.get(b"kernwright_pool_free\0").map_err(&failed)?;
            let launch = *library.get(b"kernwright_launch\0").map_err(&failed)?;
            let extent = *library.get(b"kernwright_module_extent\0").map_err(&failed)?;
            Ok(Device { pool: new(), free, launch, extent, _library: library })
        }
    }

    pub(super) fn load_module(&self, path: &Path) -> Result<Module, EmulatorError> {
        let failed = unloadable(path);
        // SAFETY: the file holds a kernel and nothing that runs when it is loaded.
        let library = unsafe { Library::new(path) }.map_err(&failed)?;
        // SAFETY: the types are those of KERNWRIGHT_KERNEL in device/kernwright_emulator.h; the text it returns is
        // constant and ends with a zero.
        let (call, kinds, cluster) = unsafe {
            let kinds: unsafe extern "C" fn() -> *const c_char =
                *library.get(b"kernwright_kinds\0").map_err(&failed)?;
            let call: Call = *library.get(b"kernwright_call\0").map_err(&failed)?;
            // Only kernels that say so have one.
            let cluster = library.get::<unsafe extern "C" fn() -> u32>(b"kernwright_cluster\0");
            let cluster = cluster.map_or(1, |cluster| cluster());
            (call, CStr::from_ptr(kinds()).to_string_lossy().into_owned(), cluster)
        };
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: the address is one of a loaded module, the results are two numbers of ours.
        unsafe { (self.extent)(call as *const c_void, &mut base, &mut bytes) };
        Ok(Module { call, kinds, cluster, base, bytes, _library: library })
    }

    /// Runs a grid to its end, or to the first fault.
    pub(super) fn launch(&mut self, module: &Module, launch: Launch<'_>) -> Result<Ended, EmulatorError> {
        extern "C" fn same_place(context: *const c_void, one: u64, other: u64) -> u32 {
            // SAFETY: the context is the reference below, which lives as long as the launch.
            let asked = unsafe { *context.cast::<&(dyn Fn(u64, u64) -> bool + Sync)>() };
            u32::from(asked(one, other))
        }
        let arguments: Vec<*const c_void> =
            launch.arguments.iter().map(|one| std::ptr::from_ref(one).cast()).collect();
        let mut ranges = launch.ranges;
        let constants =
            Range { address: module.base, bytes: module.bytes, written: std::ptr::null_mut(), constant: 1 };
        let at = ranges.partition_point(|range| range.address < module.base);
        ranges.insert(at, constants);
        let mut rows = match &launch.counters {
            Some(_) => vec![CounterRow::default(); MOST_ROWS],
            None => Vec::new(),
        };
        let mut counters = RawCounters { rows: rows.as_mut_ptr(), capacity: rows.len() as u64, n_rows: 0 };
        let raw = RawLaunch {
            call: module.call,
            arguments: arguments.as_ptr(),
            grid: launch.grid,
            block: [launch.block, 1, 1],
            shared_bytes: launch.shared_bytes,
            module_base: module.base,
            module_bytes: module.bytes,
            allocations: ranges.as_ptr(),
            n_allocations: ranges.len() as u64,
            checks: u32::from(launch.checks),
            workers: launch.workers,
            cluster: module.cluster,
            unused: 0,
            counters: if launch.counters.is_some() { &raw mut counters } else { std::ptr::null_mut() },
            same_place,
            context: std::ptr::from_ref(&launch.same_place).cast(),
        };
        let mut report = Report::new();
        // SAFETY: everything `raw` points to lives to the end of this call, which returns when all its threads ended.
        // The kinds of the arguments were compared with the module's. With checks the kernel touches nothing but the
        // ranges and its own stack; without them it is trusted as it would be on a GPU of this process.
        let ended = unsafe { (self.launch)(self.pool, &raw, &mut *report) };
        if let Some(to) = launch.counters {
            to.extend_from_slice(&rows[..counters.n_rows as usize]);
        }
        match ended {
            0 => Ok(Ended::Whole),
            1 => Ok(Ended::Fault(report)),
            _ => Err(EmulatorError::Stacks),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: made by the same library, and not used again.
        unsafe { (self.free)(self.pool) };
    }
}
