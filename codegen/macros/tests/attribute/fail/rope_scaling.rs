#[derive(Transformer)]
#[model(vocab = 256, d_model = 64, layers = 1)]
#[attention(heads = 2, rope(fraction = 1.5, scaling = llama4(factor = 32.0, original_context = 8192)))]
#[feed_forward(swiglu, d_ff = 64)]
#[target(sm_80)]
struct UnknownScaling;

#[derive(Transformer)]
#[model(vocab = 256, d_model = 64, layers = 1)]
#[attention(heads = 2, rope(scaling = llama3(factor = 0.5, beta_fast = 32.0)))]
#[feed_forward(swiglu, d_ff = 64)]
#[target(sm_80)]
struct WrongSettings;

#[derive(Transformer)]
#[model(vocab = 256, d_model = 64, layers = 1)]
#[attention(heads = 2, rope(theta = 1e4, scaling = [llama3], fraction = 0.3))]
#[feed_forward(swiglu, d_ff = 64)]
#[target(sm_80)]
struct ListedScaling;

fn main() {}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
