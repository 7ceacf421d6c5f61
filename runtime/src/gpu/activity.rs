//! What ran on the device and when, by its own records: CUPTI, loaded where it is found.
//!
//! In: work that is asked for and waited for. Out: a [`Record`] for each kernel, copy and fill of it, in the order in which
//! they began. Called through pointers looked up by hand, of a few functions whose form has not changed since CUDA 7. Of a
//! record only its beginning is read, which later versions keep.
// Calls into CUPTI, and its records, which are C structures.
#![allow(unsafe_code)]

use crate::driver::DriverError;
use kernwright_compile::{Error, Libraries, Library};
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, c_char};
use std::sync::Mutex;

/// One thing that ran.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub(super) kind: Kind,
    /// Nanoseconds on the device's clock.
    pub(super) start: u64,
    pub(super) end: u64,
}

/// What a record is of.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A kernel of that name.
    Kernel(String),
    Copy,
    Fill,
}

/// `CUpti_ActivityKind` of what is recorded: memcpy, memset, concurrent kernel; a record may be of kernel as well.
const COPY: u32 = 1;
const FILL: u32 = 2;
const KERNEL: u32 = 3;
const CONCURRENT_KERNEL: u32 = 10;
const RECORDED: [u32; 3] = [COPY, FILL, CONCURRENT_KERNEL];
/// Where in a record of any of these kinds its times lie, and in one of a kernel its name.
const START: usize = 16;
const END: usize = 24;
const NAME: usize = 104;

/// Room that CUPTI fills at a time: some ten thousand records.
const ROOM: usize = 4 << 20;

type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = unsafe extern "C" fn(*mut std::ffi::c_void, u32, *mut u8, usize, usize);
type NextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32;

/// CUPTI.
pub(super) struct Activity {
    enable: unsafe extern "C" fn(u32) -> u32,
    disable: unsafe extern "C" fn(u32) -> u32,
    flush: unsafe extern "C" fn(u32) -> u32,
}

/// What CUPTI's thread has handed over. Its callbacks take no argument of ours, so this cannot belong to an `Activity`.
static RECORDS: Mutex<(Option<NextRecord>, Vec<Record>)> = Mutex::new((None, Vec::new()));

fn layout() -> Layout {
    Layout::from_size_align(ROOM, 8).unwrap_or(Layout::new::<u64>())
}

/// CUPTI asks for room.
unsafe extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    let layout = layout();
    // SAFETY: the layout is not empty; CUPTI hands in three pointers of its own. Null is an answer it takes.
    unsafe {
        *buffer = alloc(layout);
        *size = if (*buffer).is_null() { 0 } else { layout.size() };
        *most_records = 0;
    }
}

/// CUPTI gives it back, filled.
unsafe extern "C" fn complete(_: *mut std::ffi::c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    // Nothing may unwind into C: a poisoned lock is taken as it is.
    let mut held = RECORDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(next) = held.0 {
        let mut record = std::ptr::null_mut();
        // SAFETY: `valid` bytes of `buffer` are whole records, of which CUPTI finds one after the other.
        while valid > 0 && unsafe { next(buffer, valid, &mut record) } == 0 && !record.is_null() {
            // SAFETY: a record that CUPTI has just found.
            held.1.extend(unsafe { read(record) });
        }
    }
    // SAFETY: `request` allocated it with this layout, and CUPTI is done with it.
    unsafe { dealloc(buffer, layout()) };
}

/// What is known of a record; none for one of another kind.
///
/// # Safety
/// `record` must be a whole record of CUPTI.
unsafe fn read(record: *const u8) -> Option<Record> {
    // SAFETY: each record begins with its kind.
    let kind = unsafe { record.cast::<u32>().read_unaligned() };
    let kind = match kind {
        COPY => Kind::Copy,
        FILL => Kind::Fill,
        KERNEL | CONCURRENT_KERNEL => {
            // SAFETY: records of kernels have a name there, static and terminated, or null.
            let name = unsafe { record.add(NAME).cast::<*const c_char>().read_unaligned() };
            let text = |name| {
                // SAFETY: not null, as was just said.
                unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
            };
            Kind::Kernel(if name.is_null() { String::new() } else { text(name) })
        }
        _ => return None,
    };
    // SAFETY: records of these kinds have both times there.
    let [start, end] =
        [START, END].map(|offset| unsafe { record.add(offset).cast::<u64>().read_unaligned() });
    Some(Record { kind, start, end })
}

impl Activity {
    /// Finds and loads it.
    pub(super) fn open(libraries: &Libraries) -> Result<Self, Error> {
        let library = libraries.load(Library::Cupti)?;
        // SAFETY: the types are those of `cupti_activity.h`.
        let (activity, register, next) = unsafe {
            let activity = Self {
                enable: library.symbol("cuptiActivityEnable")?,
                disable: library.symbol("cuptiActivityDisable")?,
                flush: library.symbol("cuptiActivityFlushAll")?,
            };
            let register: unsafe extern "C" fn(Request, Complete) -> u32 =
                library.symbol("cuptiActivityRegisterCallbacks")?;
            (activity, register, library.symbol::<NextRecord>("cuptiActivityGetNextRecord")?)
        };
        RECORDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0 = Some(next);
        // SAFETY: both callbacks live as long as the process. What it answers shows when something is to be recorded.
        let _ = unsafe { register(request, complete) };
        Ok(activity)
    }

    /// Records what `work` asks for and waits for.
    pub(super) fn record(
        &self,
        work: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<Vec<Record>, DriverError> {
        let take = || {
            let mut held = RECORDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            std::mem::take(&mut held.1)
        };
        take();
        let mut enabled = Ok(());
        for kind in RECORDED {
            // SAFETY: a kind that CUPTI knows.
            enabled = enabled.and(checked("cuptiActivityEnable", unsafe { (self.enable)(kind) }));
        }
        let done = enabled.and_then(|()| work());
        // SAFETY: 1 asks for buffers that are not full as well.
        let flushed = checked("cuptiActivityFlushAll", unsafe { (self.flush)(1) });
        for kind in RECORDED {
            // SAFETY: as for enabling. One that was not enabled stays so.
            let _ = unsafe { (self.disable)(kind) };
        }
        done.and(flushed)?;
        let mut records = take();
        records.sort_by_key(|record| record.start);
        Ok(records)
    }
}

fn checked(call: &str, status: u32) -> Result<(), DriverError> {
    match status {
        0 => Ok(()),
        status => Err(DriverError::Failed(format!("`{call}` failed with CUptiResult {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_by_their_beginnings() {
        let mut bytes = [0_u8; 160];
        let name = c"norm_forward";
        bytes[..4].copy_from_slice(&CONCURRENT_KERNEL.to_le_bytes());
        bytes[START..START + 8].copy_from_slice(&70_u64.to_le_bytes());
        bytes[END..END + 8].copy_from_slice(&95_u64.to_le_bytes());
        bytes[NAME..NAME + 8].copy_from_slice(&(name.as_ptr() as u64).to_le_bytes());
        // SAFETY: as long as a record, and filled like one.
        let record = |bytes: &[u8; 160]| unsafe { read(bytes.as_ptr()) };
        let kernel = Record { kind: Kind::Kernel("norm_forward".to_owned()), start: 70, end: 95 };
        assert_eq!(record(&bytes), Some(kernel));
        bytes[..4].copy_from_slice(&FILL.to_le_bytes());
        assert_eq!(record(&bytes), Some(Record { kind: Kind::Fill, start: 70, end: 95 }));
        bytes[..4].copy_from_slice(&99_u32.to_le_bytes());
        assert_eq!(record(&bytes), None);
    }
}
