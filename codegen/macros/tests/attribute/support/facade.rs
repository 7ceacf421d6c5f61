//! What the facade gives a user's crate, and nothing else: so that these tests build neither runtime nor program.
//! `src/model.rs` has the same items; `examples/brain` proves that the derive fits them.

pub use kernwright_macros::Transformer;

#[allow(dead_code)]
pub trait Model {
    const NAME: &'static str;
    const SHAPE: &'static str;
    const TARGETS: &'static str;
    const SOURCES: &'static [Source];
    const CUBINS: &'static [Cubin];
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
