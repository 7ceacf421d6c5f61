//! Element types of buffers in Rust's own words.

use bytemuck::Pod;
use half::{bf16, f16};
use kernwright_plan::dtype::Dtype;

/// What a [`super::DeviceBuffer`] may hold.
pub trait Element: Pod + std::fmt::Debug {
    /// The same type in a plan.
    const DTYPE: Dtype;
}

impl Element for bf16 {
    const DTYPE: Dtype = Dtype::Bf16;
}

impl Element for f16 {
    const DTYPE: Dtype = Dtype::Fp16;
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::Fp32;
}
