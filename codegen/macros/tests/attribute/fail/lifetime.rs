#[derive(Transformer)]
#[model(vocab = 256, d_model = 32, layers = 1)]
#[attention(heads = 2)]
#[feed_forward(gelu, d_ff = 64)]
#[target(sm_80)]
struct Borrowed<'a>(&'a u8);

mod constant {
    #[derive(kernwright::Transformer)]
    #[model(vocab = 256, d_model = 32, layers = 1)]
    #[attention(heads = 2)]
    #[feed_forward(gelu, d_ff = 64)]
    #[target(sm_80)]
    pub struct Sized<const N: usize = 3>;
}

fn main() {
    // Nothing more is said of their use.
    let _ = (Borrowed::<'static>::NAME, <constant::Sized>::NAME);
}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
