#[derive(Transformer)]
#[attention(heads = 4, kv_heads = 2)]
#[feed_forward(swiglu, d_ff = 176)]
#[target(sm_86)]
struct Brain;

fn main() {}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
