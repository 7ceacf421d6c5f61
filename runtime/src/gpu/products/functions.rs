//! The functions of cuBLASLt and of the driver that products are made of, as tables that are filled when the library is
//! loaded.
//!
//! In: libraries that were found. Out: tables, and what a status code means. They are bound by hand, so that a missing
//! function is an error and an unknown status is a number; types and constants are cudarc's.
// Binding trusts the functions' signatures.
#![allow(unsafe_code)]

use cudarc::driver::sys::{CUDA_MEMCPY2D, CUdeviceptr, CUevent, CUstream};
use kernwright_compile::{Error, Loaded};
use std::ffi::{c_char, c_int, c_void};

/// A status of either library; 0 is success.
pub(super) type Status = u32;

/// Anything of cuBLASLt's own: its handle, a descriptor.
pub(super) type Opaque = *mut c_void;

/// How to multiply, in cuBLASLt's own words.
pub(super) type Words = [u64; 8];

/// One algorithm that cuBLASLt offers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offer {
    pub(super) algorithm: Words,
    pub(super) workspace: usize,
    pub(super) state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

macro_rules! table {
    ($(#[$about:meta])* $table:ident { $($name:ident = $symbol:literal: ($($argument:ty),*) -> $result:ty;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $table {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $table {
            /// The functions of a library that was loaded.
            pub(super) fn bind(loaded: &Loaded) -> Result<Self, Error> {
                // SAFETY: these are the signatures of the headers of CUDA 12 and 13.
                Ok(unsafe { Self { $($name: loaded.symbol($symbol)?,)* } })
            }
        }
    };
}

table! {
    /// cuBLASLt.
    CublasLt {
        version = "cublasLtGetVersion": () -> usize;
        create = "cublasLtCreate": (*mut Opaque) -> Status;
        destroy = "cublasLtDestroy": (Opaque) -> Status;
        operation_create = "cublasLtMatmulDescCreate": (*mut Opaque, u32, u32) -> Status;
        operation_set = "cublasLtMatmulDescSetAttribute": (Opaque, u32, *const c_void, usize) -> Status;
        operation_destroy = "cublasLtMatmulDescDestroy": (Opaque) -> Status;
        layout_create = "cublasLtMatrixLayoutCreate": (*mut Opaque, u32, u64, u64, i64) -> Status;
        layout_set = "cublasLtMatrixLayoutSetAttribute": (Opaque, u32, *const c_void, usize) -> Status;
        layout_destroy = "cublasLtMatrixLayoutDestroy": (Opaque) -> Status;
        preference_create = "cublasLtMatmulPreferenceCreate": (*mut Opaque) -> Status;
        preference_set = "cublasLtMatmulPreferenceSetAttribute": (Opaque, u32, *const c_void, usize) -> Status;
        preference_destroy = "cublasLtMatmulPreferenceDestroy": (Opaque) -> Status;
        offers = "cublasLtMatmulAlgoGetHeuristic":
            (Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut Offer, *mut c_int) -> Status;
        check = "cublasLtMatmulAlgoCheck":
            (Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, *const Words, *mut Offer) -> Status;
        describe = "cublasLtMatmulAlgoConfigGetAttribute":
            (*const Words, u32, *mut c_void, usize, *mut usize) -> Status;
        multiply = "cublasLtMatmul":
            (
                Opaque, Opaque, *const c_void, *const c_void, Opaque, *const c_void, Opaque, *const c_void,
                *const c_void, Opaque, *mut c_void, Opaque, *const Words, *mut c_void, usize, CUstream
            ) -> Status;
    }
}

table! {
    /// The driver.
    Driver {
        allocate = "cuMemAlloc_v2": (*mut CUdeviceptr, usize) -> Status;
        free = "cuMemFree_v2": (CUdeviceptr) -> Status;
        fill = "cuMemsetD8Async": (CUdeviceptr, u8, usize, CUstream) -> Status;
        upload = "cuMemcpyHtoDAsync_v2": (CUdeviceptr, *const c_void, usize, CUstream) -> Status;
        copy = "cuMemcpyDtoDAsync_v2": (CUdeviceptr, CUdeviceptr, usize, CUstream) -> Status;
        copy_rows = "cuMemcpy2DAsync_v2": (*const CUDA_MEMCPY2D, CUstream) -> Status;
        wait = "cuStreamSynchronize": (CUstream) -> Status;
        event_create = "cuEventCreate": (*mut CUevent, u32) -> Status;
        event_record = "cuEventRecord": (CUevent, CUstream) -> Status;
        event_milliseconds = "cuEventElapsedTime": (*mut f32, CUevent, CUevent) -> Status;
        event_destroy = "cuEventDestroy_v2": (CUevent) -> Status;
        status_text = "cuGetErrorString": (Status, *mut *const c_char) -> Status;
    }
}

/// What a status of cuBLASLt means.
pub(super) fn in_words(status: Status) -> String {
    let known = match status {
        1 => "the library is not initialised: is there a GPU, and room in its memory?",
        3 => "no memory for the library's own needs",
        7 => "a value is not allowed, or two contradict each other",
        8 => "the GPU lacks what this needs",
        11 => "memory of the GPU cannot be reached",
        13 => "it failed on the GPU",
        14 => "the library failed inside",
        15 => "not supported on this GPU",
        16 => "a licence is missing",
        other => return format!("status {other}"),
    };
    format!("{known} (status {status})")
}
