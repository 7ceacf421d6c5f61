//! Tensor maps as NVIDIA's driver makes them.
// Calls into the driver.
#![allow(unsafe_code)]

use super::{Fault, checked};
use crate::tensor_map::{TensorNumbers, WORDS};
use cudarc::driver::sys;

/// The 128 bytes that a kernel takes for a tensor.
pub(in crate::gpu) fn tensor_map(numbers: &TensorNumbers) -> Result<[u64; WORDS], Fault> {
    // Elements are moved as they are, so that only their size matters.
    let of_type = match numbers.element_bytes {
        2 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        _ => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
    };
    let swizzle = match numbers.swizzle {
        32 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        64 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        128 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        _ => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
    };
    let mut map = sys::CUtensorMap { opaque: [0; WORDS] };
    let every_element = [1; 5];
    // SAFETY: the arrays have an entry for each of at most 5 dimensions, of strides one less; the driver writes the map,
    // and only takes note of the address.
    checked("cuTensorMapEncodeTiled", unsafe {
        sys::cuTensorMapEncodeTiled(
            &raw mut map,
            of_type,
            numbers.rank as u32,
            numbers.address as *mut _,
            numbers.sizes.as_ptr(),
            numbers.strides.as_ptr(),
            numbers.extents.as_ptr(),
            every_element.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    })?;
    Ok(map.opaque)
}
