//! A layout in cuBLASLt's own terms, ready to be asked about and to be launched.
//!
//! In: a [`Layout`] and its [`Key`]. Out: [`Operation`], the algorithms that the library offers for it, and launches. What
//! was made is given back when dropped.
// Calls into cuBLASLt.
#![allow(unsafe_code)]

use super::choices::Traits;
use super::functions::{CublasLt, Offer, Opaque, Status, Words, in_words};
use super::layout::{Added, Key, Layout, Matrix};
use crate::driver::DriverError;
use crate::gpu::calls::between_captures;
use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtEpilogue_t as Postprocessing,
    cublasLtMatmulAlgoConfigAttributes_t as Trait, cublasLtMatmulDescAttributes_t as Setting,
    cublasLtMatmulPreferenceAttributes_t as Wish, cublasLtMatrixLayoutAttribute_t as Property,
    cublasLtReductionScheme_t as Reduction, cudaDataType_t as Kind,
};
use cudarc::driver::sys::CUstream;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::launch::Epilogue;
use std::ffi::{c_int, c_void};
use std::rc::Rc;

/// The library, opened on the GPU of the current context.
#[derive(Debug)]
pub(super) struct Handle {
    functions: CublasLt,
    raw: Opaque,
}

/// How fp32 operands are multiplied; narrow ones are always exact, and all sums are in fp32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fp32 {
    /// As they are.
    #[default]
    Exact,
    /// Rounded to 10 bits of mantissa, on tensor cores.
    Tf32,
}

/// Which algorithms are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wishes {
    /// Bytes of workspace that there are.
    pub(super) workspace: usize,
    /// Must they add in one order?
    pub(super) deterministic: bool,
    /// How many.
    pub(super) count: usize,
}

/// Addresses of what a description itself names, 0 where there is no such thing. The algorithms that are offered depend on
/// how they are aligned.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside {
    pub(super) bias: u64,
    /// What the epilogue reads or writes.
    pub(super) epilogue: u64,
}

/// Addresses of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) left: u64,
    pub(super) right: u64,
    pub(super) c: u64,
    pub(super) d: u64,
    pub(super) beside: Beside,
    pub(super) workspace: (u64, usize),
    pub(super) stream: CUstream,
}

impl Handle {
    /// Opens it.
    pub(super) fn open(functions: CublasLt) -> Result<Rc<Self>, DriverError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is written.
        let status = between_captures(|| unsafe { (functions.create)(&raw mut raw) });
        checked("open the library", status)?;
        Ok(Rc::new(Self { functions, raw }))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // It waits for the device. SAFETY: nobody else has it. A failure leaks it.
        let _ = between_captures(|| unsafe { (self.functions.destroy)(self.raw) });
    }
}

/// A number with three parts, as version 12 and later give it.
pub(super) fn version(functions: &CublasLt) -> (usize, String) {
    // SAFETY: takes nothing.
    let number = unsafe { (functions.version)() };
    (number / 10_000, format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100))
}

fn checked(what: &str, status: Status) -> Result<(), DriverError> {
    match status {
        0 => Ok(()),
        _ => Err(DriverError::Failed(format!("cuBLASLt failed to {what}: {}", in_words(status)))),
    }
}

/// What cuBLASLt calls an element type.
fn kind(dtype: Dtype) -> Result<Kind, DriverError> {
    match dtype {
        Dtype::Fp32 => Ok(Kind::CUDA_R_32F),
        Dtype::Bf16 => Ok(Kind::CUDA_R_16BF),
        Dtype::Fp16 => Ok(Kind::CUDA_R_16F),
        Dtype::I32 => Err(DriverError::Failed("cuBLASLt multiplies floats, found `i32`".to_owned())),
    }
}

/// Something that cuBLASLt made.
#[derive(Debug)]
struct Made {
    raw: Opaque,
    destroy: unsafe extern "C" fn(Opaque) -> Status,
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: nobody else has it. A failure leaks it.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

type Set = unsafe extern "C" fn(Opaque, u32, *const c_void, usize) -> Status;

fn set<T: Copy>(on: &Made, set: Set, which: u32, value: T) -> Result<(), DriverError> {
    // SAFETY: the value has the size that is told, and is copied.
    let status = unsafe { set(on.raw, which, (&raw const value).cast(), size_of::<T>()) };
    checked(&format!("take setting {which} of a product"), status)
}

/// A product, described.
#[derive(Debug)]
pub(super) struct Operation {
    handle: Rc<Handle>,
    operation: Made,
    left: Made,
    right: Made,
    c: Made,
    d: Made,
    beta: f32,
}

impl Operation {
    /// Describes it.
    pub(super) fn new(handle: &Rc<Handle>, layout: &Layout, fp32: Fp32) -> Result<Self, DriverError> {
        let functions = &handle.functions;
        let compute = match (layout.left.dtype, fp32) {
            (Dtype::Fp32, Fp32::Tf32) => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => Compute::CUBLAS_COMPUTE_32F,
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is written.
        let status =
            unsafe { (functions.operation_create)(&raw mut raw, compute as u32, Kind::CUDA_R_32F as u32) };
        checked("describe a product", status)?;
        let operation = Made { raw, destroy: functions.operation_destroy };
        let put = |which: Setting, value: i32| set(&operation, functions.operation_set, which as u32, value);
        put(Setting::CUBLASLT_MATMUL_DESC_TRANSA, layout.left.transposed.into())?;
        put(Setting::CUBLASLT_MATMUL_DESC_TRANSB, layout.right.transposed.into())?;
        put(Setting::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(layout) as i32)?;
        if let Some(bias) = layout.bias {
            put(Setting::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, kind(bias.dtype)? as i32)?;
        }
        // Its type is by default that of the result, which it must have.
        if let Some(matrix) = layout.epilogue.matrix() {
            let which = Setting::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD as u32;
            set(&operation, functions.operation_set, which, leading(matrix))?;
        }
        let matrix = |of: &Matrix| described(functions, of, layout.batches);
        Ok(Self {
            handle: Rc::clone(handle),
            left: matrix(&layout.left)?,
            right: matrix(&layout.right)?,
            c: matrix(layout.c.as_ref().unwrap_or(&layout.d))?,
            d: matrix(&layout.d)?,
            beta: if layout.c.is_some() { 1.0 } else { 0.0 },
            operation,
        })
    }

    /// Says where the bias lies, and what the epilogue reads or writes.
    fn put(&self, beside: Beside) -> Result<(), DriverError> {
        let Beside { bias, epilogue } = beside;
        for (which, address) in [
            (Setting::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias),
            (Setting::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, epilogue),
        ] {
            if address != 0 {
                set(&self.operation, self.handle.functions.operation_set, which as u32, address)?;
            }
        }
        Ok(())
    }

    /// The algorithms that the library offers, best first by its own estimate. `beside` is where things lie, or may lie.
    pub(super) fn offers(
        &self,
        key: &Key,
        wishes: Wishes,
        beside: Beside,
    ) -> Result<Vec<Offer>, DriverError> {
        let functions = &self.handle.functions;
        self.put(beside)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is written.
        checked("make a preference", unsafe { (functions.preference_create)(&raw mut raw) })?;
        let preference = Made { raw, destroy: functions.preference_destroy };
        let put = |which: Wish, value: u32| set(&preference, functions.preference_set, which as u32, value);
        let workspace = wishes.workspace as u64;
        let which = Wish::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES as u32;
        set(&preference, functions.preference_set, which, workspace)?;
        put(Wish::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions(key.d.dtype, wishes.deterministic))?;
        put(Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.left.alignment)?;
        put(Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.right.alignment)?;
        let of_c = if let Added::Apart(c) = &key.added { c.alignment } else { key.d.alignment };
        put(Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_c)?;
        put(Wish::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.d.alignment)?;
        let mut offers = vec![Offer::default(); wishes.count.max(1)];
        let mut n_offers: c_int = 0;
        // SAFETY: everything described lives; as many offers are written as there is room for, and counted.
        let status = unsafe {
            (functions.offers)(
                self.handle.raw,
                self.operation.raw,
                self.left.raw,
                self.right.raw,
                self.c.raw,
                self.d.raw,
                preference.raw,
                c_int::try_from(offers.len()).unwrap_or(c_int::MAX),
                offers.as_mut_ptr(),
                &raw mut n_offers,
            )
        };
        checked("offer an algorithm", status)?;
        offers.truncate(usize::try_from(n_offers).unwrap_or(0));
        offers.retain(|offer| offer.state == 0 && offer.workspace <= wishes.workspace);
        Ok(offers)
    }

    /// Does this library take this algorithm for the product? If so, the workspace that it needs.
    pub(super) fn accepts(&self, algorithm: &Words, beside: Beside) -> Result<usize, DriverError> {
        self.put(beside)?;
        let mut offer = Offer::default();
        // SAFETY: everything described lives; the algorithm is as many words as the library reads; the offer is written.
        let status = unsafe {
            (self.handle.functions.check)(
                self.handle.raw,
                self.operation.raw,
                self.left.raw,
                self.right.raw,
                self.c.raw,
                self.d.raw,
                algorithm,
                &raw mut offer,
            )
        };
        checked("take an algorithm", status)?;
        Ok(offer.workspace)
    }

    /// What an algorithm is, as far as the library tells.
    pub(super) fn traits(&self, algorithm: &Words) -> Traits {
        let ask = |which: Trait, bytes: usize| {
            let (mut value, mut n_written) = (0_u32, 0);
            let to = (&raw mut value).cast();
            // SAFETY: at most `bytes` of the four there are are written.
            let status = unsafe {
                (self.handle.functions.describe)(algorithm, which as u32, to, bytes, &raw mut n_written)
            };
            if status == 0 { value } else { 0 }
        };
        Traits {
            id: ask(Trait::CUBLASLT_ALGO_CONFIG_ID, 4),
            tile: ask(Trait::CUBLASLT_ALGO_CONFIG_TILE_ID, 4),
            stages: ask(Trait::CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
            split_k: ask(Trait::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4),
            reduction: ask(Trait::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4),
            swizzle: ask(Trait::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4),
            option: ask(Trait::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4),
            inner_shape: ask(Trait::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
            cluster: ask(Trait::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2),
        }
    }

    /// Asks the stream for one call. It may be capturing.
    pub(super) fn launch(&self, algorithm: &Words, call: Call) -> Result<(), DriverError> {
        self.put(call.beside)?;
        let alpha = 1.0_f32;
        let place = |address: u64| address as *const c_void;
        // SAFETY: everything described lives; alpha and beta are read before the call returns; places are the GPU's, which
        // the GPU itself checks.
        let status = unsafe {
            (self.handle.functions.multiply)(
                self.handle.raw,
                self.operation.raw,
                (&raw const alpha).cast(),
                place(call.left),
                self.left.raw,
                place(call.right),
                self.right.raw,
                (&raw const self.beta).cast(),
                place(call.c),
                self.c.raw,
                call.d as *mut c_void,
                self.d.raw,
                algorithm,
                call.workspace.0 as *mut c_void,
                call.workspace.1,
                call.stream,
            )
        };
        checked("multiply", status)
    }
}

fn described(functions: &CublasLt, of: &Matrix, batches: usize) -> Result<Made, DriverError> {
    let mut raw = std::ptr::null_mut();
    let dtype = kind(of.dtype)? as u32;
    let (rows, columns) = (of.rows as u64, of.columns as u64);
    // SAFETY: the pointer is written.
    let status = unsafe { (functions.layout_create)(&raw mut raw, dtype, rows, columns, leading(of)) };
    checked("describe a matrix", status)?;
    let made = Made { raw, destroy: functions.layout_destroy };
    if batches > 1 {
        let count = i32::try_from(batches).unwrap_or(i32::MAX);
        let stride = i64::try_from(of.batch_stride).unwrap_or(i64::MAX);
        let put = functions.layout_set;
        set(&made, put, Property::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT as u32, count)?;
        set(&made, put, Property::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET as u32, stride)?;
    }
    Ok(made)
}

/// From one column to the next. A single one may say less than it has rows.
fn leading(of: &Matrix) -> i64 {
    i64::try_from(of.leading.max(of.rows)).unwrap_or(i64::MAX)
}

/// What the library calls what becomes of a sum; its gelu is that of the tanh form.
fn epilogue(layout: &Layout) -> Postprocessing {
    match (layout.epilogue, layout.bias) {
        (Epilogue::None, None) => Postprocessing::CUBLASLT_EPILOGUE_DEFAULT,
        (Epilogue::None, Some(_)) => Postprocessing::CUBLASLT_EPILOGUE_BIAS,
        (Epilogue::Gelu(None), None) => Postprocessing::CUBLASLT_EPILOGUE_GELU,
        (Epilogue::Gelu(None), Some(_)) => Postprocessing::CUBLASLT_EPILOGUE_GELU_BIAS,
        (Epilogue::Gelu(Some(_)), None) => Postprocessing::CUBLASLT_EPILOGUE_GELU_AUX,
        (Epilogue::Gelu(Some(_)), Some(_)) => Postprocessing::CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        (Epilogue::GeluSlope(_), _) => Postprocessing::CUBLASLT_EPILOGUE_DGELU,
    }
}

/// How the parts of a split sum may be added. Partial sums are never rounded to less than fp32, and in place, where the
/// order may be that in which blocks finish, they are added only if the order is free.
fn reductions(of: Dtype, deterministic: bool) -> u32 {
    let mut allowed = Reduction::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
    if of == Dtype::Fp32 {
        allowed |= Reduction::CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE as u32;
        if !deterministic {
            allowed |= Reduction::CUBLASLT_REDUCTION_SCHEME_INPLACE as u32;
        }
    }
    allowed
}
