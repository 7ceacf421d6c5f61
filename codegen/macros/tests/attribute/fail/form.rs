#[derive(Transformer)]
#[model(vocab = , d_model: 64, layers = 2u32 tied, 7)]
#[attention(heads = 2 * 2)]
#[feed_forward = swiglu]
#[target[sm_86]]
struct Brain;

fn main() {}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
