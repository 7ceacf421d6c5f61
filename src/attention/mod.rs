//! Attention alone, for programs with a training loop of their own: declared on a struct, compiled for a device, called.
//!
//! In: what `#[derive(Attention)]` gave. Out: [`Compiled`], whose calls take buffers of a [`Device`]. What attention is, and
//! which kernels compute it, the plan knows. `docs/attention.md` describes the attribute.
//!
//! ```
//! use kernwright::{Attention, Device, DeviceKind, bf16};
//!
//! #[derive(Attention)]
//! #[attention(heads = 4, kv_heads = 2, head_dim = 16, causal, dtype = bf16)]
//! #[target(sm_86)]
//! struct Small;
//!
//! # fn main() -> Result<(), kernwright::Error> {
//! let device = Device::open(&DeviceKind::Cpu)?; // `Auto` takes a GPU where there is one.
//! let (batch, length) = (2, 10);
//! let attention = Small::compile(&device, batch, length)?;
//! let q = device.upload(&vec![bf16::from_f32(0.5); batch * length * 4 * 16])?;
//! let k = device.upload(&vec![bf16::from_f32(0.25); batch * length * 2 * 16])?;
//! let v = device.upload(&vec![bf16::from_f32(2.0); batch * length * 2 * 16])?;
//! let (out, lse) = attention.forward(&q, &k, &v)?;
//! let [d_q, _d_k, _d_v] = attention.backward(&q, &q, &k, &v, &out, &lse)?;
//! assert!(out.download()?.iter().all(|value| value.to_f32() == 2.0));
//! assert!(d_q.download()?.iter().all(|value| value.to_f32().abs() < 1e-3));
//! # Ok(())
//! # }
//! ```

/// The program of `docs/attention.md` is compiled and run as those above.
#[cfg(doctest)]
#[doc = include_str!("../../docs/attention.md")]
struct Documentation;

mod compiled;
mod packed;
mod separate;
mod statistics;
mod tensors;

pub use compiled::Compiled;
pub use statistics::{Figures, Statistics};
pub use tensors::{Packed, Separate, Tensors};

use crate::device::Device;
use crate::error::Error;
use crate::model::{Cubin, Source};
use kernwright_plan::arch::Arch;
use kernwright_plan::shape::{AttentionShape, parse_attention_text};
use kernwright_runtime::queue::Element;

/// Element types by their names in the attribute.
#[doc(hidden)]
pub mod elements {
    pub use half::bf16;
    pub use half::f16 as fp16;
}

/// A declared attention; `#[derive(Attention)]` implements it.
pub trait Attention {
    /// Element type of queries, keys, values, output and gradients.
    type Element: Element;
    /// How queries, keys and values are handed over: [`Separate`] or [`Packed`].
    type Tensors: Tensors;
    /// The struct's name.
    const NAME: &'static str;
    /// What was declared, in the flat text form.
    const SHAPE: &'static str;
    /// The GPUs it declares, in the same form; empty where it declares none.
    const TARGETS: &'static str;
    /// The CUDA of every kernel, for every target.
    const SOURCES: &'static [Source];
    /// The kernels that the package's build script compiled ahead of time; without one, none.
    const CUBINS: &'static [Cubin];

    /// What was declared.
    ///
    /// # Errors
    /// When the text is damaged, which the derive does not do.
    fn shape() -> Result<AttentionShape, Error> {
        parse_attention_text(&format!("{}{}", Self::SHAPE, Self::TARGETS)).map_err(Error::Declaration)
    }

    /// The declared GPUs, for [`Device::open_for`].
    ///
    /// # Errors
    /// As [`Attention::shape`].
    fn targets() -> Result<Vec<Arch>, Error> {
        Ok(Self::shape()?.targets)
    }

    /// Compiles its kernels for a device, unless they are, and plans calls over `batch` sequences of `length`. No buffer is
    /// allocated. Another batch or length is compiled in no time: the kernels are the same.
    ///
    /// # Errors
    /// When a size is out of bounds or a kernel cannot be compiled.
    fn compile(
        device: &Device,
        batch: usize,
        length: usize,
    ) -> Result<Compiled<Self::Element, Self::Tensors>, Error> {
        Self::compile_lengths(device, batch, length, length)
    }

    /// The same over sequences of so many queries, and of so many keys and values. They end together: the last query stands at
    /// the last key.
    ///
    /// # Errors
    /// When a size is out of bounds or a kernel cannot be compiled; with packed tensors, when the lengths differ.
    fn compile_lengths(
        device: &Device,
        batch: usize,
        query_length: usize,
        key_length: usize,
    ) -> Result<Compiled<Self::Element, Self::Tensors>, Error> {
        device.carried.add(Self::SOURCES, Self::CUBINS);
        Compiled::new(device, Self::shape()?, batch, [query_length, key_length])
    }
}
