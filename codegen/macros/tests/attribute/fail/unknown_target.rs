#[derive(Transformer)]
#[model(vocab = 512, d_model = 64, layers = 2)]
#[attention(heads = 4, kv_heads = 2)]
#[feed_forward(swiglu, d_ff = 176)]
#[target(sm_86, sm_75, sm_90, hopper)]
struct Brain;

fn main() {}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
