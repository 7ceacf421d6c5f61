#[derive(Transformer)]
#[model(vocab = "many", d_model = 64.0, layers, tied = 3, norm = rms(eps = small))]
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
