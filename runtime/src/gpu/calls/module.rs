//! Compiled kernels on the device, and launching them.
// Calls into the driver.
#![allow(unsafe_code)]

use super::{Fault, Stream, checked};
use cudarc::driver::sys;
use std::ffi::{CString, c_int, c_void};

/// A kernel, loaded whole: nothing of it is left for its first launch, which may be inside a capture.
#[derive(Debug)]
pub(in crate::gpu) struct Function {
    module: sys::CUmodule,
    function: sys::CUfunction,
    /// Bytes of each parameter.
    parameters: Vec<usize>,
}

/// Dynamic shared memory that a block may have without asking.
const UNASKED: u32 = 48 * 1024;

impl Function {
    /// Loads a cubin of one kernel of that name, whose blocks get so much dynamic shared memory, and which has at most so many
    /// parameters.
    pub(in crate::gpu) fn load(
        cubin: &[u8],
        name: &str,
        shared_memory: u32,
        most_parameters: usize,
    ) -> Result<Self, Fault> {
        let invalid = Fault { call: "cuModuleGetFunction", status: sys::CUresult::CUDA_ERROR_NOT_FOUND };
        let name = CString::new(name).map_err(|_| invalid)?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the image is an ELF file, which tells its own length; the driver copies it.
        checked("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast()) })?;
        let mut loaded = Self { module, function: std::ptr::null_mut(), parameters: Vec::new() };
        // SAFETY: the module is held by `loaded` from here on; pointers outlive the calls.
        unsafe {
            let function = &mut loaded.function;
            checked("cuModuleGetFunction", sys::cuModuleGetFunction(function, module, name.as_ptr()))?;
            checked("cuFuncLoad", sys::cuFuncLoad(*function))?;
            if shared_memory > UNASKED {
                let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                let bytes = c_int::try_from(shared_memory).unwrap_or(c_int::MAX);
                checked("cuFuncSetAttribute", sys::cuFuncSetAttribute(*function, most, bytes))?;
            }
        }
        loaded.parameters = loaded.read_parameters(most_parameters);
        Ok(loaded)
    }

    /// The driver tells of one after the other, and refuses the first number that is too large: it is not asked for more than
    /// there may be, so that a checker of calls finds none that fails.
    fn read_parameters(&self, most: usize) -> Vec<usize> {
        let mut all = Vec::new();
        while all.len() < most {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the function is loaded; the pointers outlive the call.
            let status =
                unsafe { sys::cuFuncGetParamInfo(self.function, all.len(), &mut offset, &mut bytes) };
            if status != sys::CUresult::CUDA_SUCCESS {
                break;
            }
            all.push(bytes);
        }
        all
    }

    /// Bytes of each parameter.
    pub(in crate::gpu) fn parameters(&self) -> &[usize] {
        &self.parameters
    }

    /// Asks for a launch. The words hold the arguments one after the other, each in the low bytes of as many words as its
    /// parameter fills.
    ///
    /// # Panics
    /// When there are not.
    pub(in crate::gpu) fn launch(
        &self,
        [x, y, z]: [u32; 3],
        block: u32,
        shared_memory: u32,
        words: &mut [u64],
        stream: &Stream,
    ) -> Result<(), Fault> {
        let mut rest = words;
        let mut pointers: Vec<*mut c_void> = Vec::with_capacity(self.parameters.len());
        for bytes in &self.parameters {
            let (own, further) = rest.split_at_mut(bytes.div_ceil(8));
            pointers.push(own.as_mut_ptr().cast());
            rest = further;
        }
        assert!(rest.is_empty(), "arguments and parameters of a kernel");
        // SAFETY: a pointer for each parameter, to at least as many bytes. The driver copies them before it returns.
        checked("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                self.function,
                x,
                y,
                z,
                block,
                1,
                1,
                shared_memory,
                stream.raw(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        })
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // SAFETY: it was loaded once. What the driver says of it changes nothing.
        let _ = unsafe { sys::cuModuleUnload(self.module) };
    }
}
