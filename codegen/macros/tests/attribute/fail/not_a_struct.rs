#[derive(Transformer)]
#[model(vocab = 512, d_model = 64, layers = 2)]
#[attention(heads = 4)]
#[feed_forward(swiglu, d_ff = 176)]
enum Choice {
    One,
}

#[derive(Transformer)]
#[model(vocab = 512, d_model = 64, layers = 2)]
#[attention(heads = 4)]
#[feed_forward(swiglu, d_ff = 176)]
union Either {
    one: u8,
}

fn main() {}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
