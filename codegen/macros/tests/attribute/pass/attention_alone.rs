//! Attention alone: its text, its types, its kernels for each target, and for a renamed facade.

use facade::attention::{Packed, Separate, elements};
use std::any::TypeId;

#[derive(Attention)]
#[attention(heads = 4, head_dim = 64)]
#[target(sm_86)]
struct Plain;

#[derive(Clone, kernwright::Attention)]
#[attention(
    crate = ::kernwright, heads = 12, kv_heads = 4, head_dim = 40, full, window(left = 256, right = 3), softcap = 30, scale = 0.1,
    dtype = fp16, layout = packed, nondeterministic,
)]
#[target(sm_80, sm_90a)]
pub struct Every;

fn types<A: Attention>() -> [TypeId; 2]
where
    A::Element: 'static,
    A::Tensors: 'static,
{
    [TypeId::of::<A::Element>(), TypeId::of::<A::Tensors>()]
}

fn main() {
    assert_eq!((Plain::NAME, Every::NAME), ("Plain", "Every"));
    assert!(Plain::SHAPE.contains("attention.kv_heads = 4\n") && Plain::SHAPE.contains("attention.causal = true\n"));
    for line in ["attention.window.left = 256", "attention.softcap = 30.0", "attention.nondeterministic = true"] {
        assert!(Every::SHAPE.lines().any(|found| found == line), "{line} is in {}", Every::SHAPE);
    }
    assert_eq!(types::<Plain>(), [TypeId::of::<elements::bf16>(), TypeId::of::<Separate>()]);
    assert_eq!(types::<Every>(), [TypeId::of::<elements::fp16>(), TypeId::of::<Packed>()]);
    let arches: std::collections::BTreeSet<_> = Every::SOURCES.iter().map(|source| source.arch).collect();
    assert!(arches.iter().eq(&["sm_80", "sm_90a"]), "{arches:?}");
    for source in Every::SOURCES.iter().chain(Plain::SOURCES) {
        assert!(source.kernel.starts_with("attention_") && source.text.contains(source.kernel));
    }
}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Attention, Cubin, Source, attention};
