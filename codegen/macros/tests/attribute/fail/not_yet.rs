// What has a name and no meaning yet says so.
#[derive(Transformer)]
#[model(vocab = 256, d_model = 64, layers = 1)]
#[attention(heads = 2)]
#[feed_forward(swiglu, d_ff = 64, experts = 8, active = 2)]
#[target(sm_80)]
struct Brain;

fn main() {}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
