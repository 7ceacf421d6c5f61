//! What the facade gives a user's crate, and nothing else: so that these tests build neither runtime nor program.
//! `src/model.rs` and `src/attention` have the same items; `examples` proves that the derives fit them.

#[allow(unused_imports)]
pub use kernwright_macros::{Attention, Transformer};

#[allow(dead_code)]
pub trait Model {
    const NAME: &'static str;
    const SHAPE: &'static str;
    const TARGETS: &'static str;
    const SOURCES: &'static [Source];
    const CUBINS: &'static [Cubin];
}

#[allow(dead_code)]
pub trait Attention {
    type Element;
    type Tensors;
    const NAME: &'static str;
    const SHAPE: &'static str;
    const TARGETS: &'static str;
    const SOURCES: &'static [Source];
    const CUBINS: &'static [Cubin];
}

#[allow(dead_code)]
pub mod attention {
    pub enum Packed {}
    pub enum Separate {}
    #[allow(non_camel_case_types)]
    pub mod elements {
        pub struct bf16;
        pub struct fp16;
    }
}

#[allow(dead_code)]
pub struct Source {
    pub arch: &'static str,
    pub kernel: &'static str,
    pub text: &'static str,
}

#[allow(dead_code)]
pub struct Cubin {
    pub arch: &'static str,
    pub kernel: &'static str,
    pub log: &'static str,
    pub cubin: &'static [u8],
}
