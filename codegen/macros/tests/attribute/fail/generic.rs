#[derive(Transformer)]
#[model(vocab = 512, d_model = 64, layers = LAYERS)]
#[attention(heads = 4)]
#[feed_forward(swiglu, d_ff = 176)]
struct Brain<T: Copy, const LAYERS: usize> {
    #[target(sm_86)]
    inner: T,
}

fn main() {
    // Nothing more is said of its use.
    let _ = Brain::<u8, 2>::SHAPE;
}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
