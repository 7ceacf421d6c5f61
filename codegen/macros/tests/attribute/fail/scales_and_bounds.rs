#[derive(Transformer)]
#[model(
    vocab = 256,
    d_model = 64,
    layers = 1,
    embedding_scale = 0,
    residual_scale = -1.0,
    logits_scale = "1",
    softcap,
)]
#[attention(heads = 2, softcap = 0.0, scale = 1e7, window = 4096.0)]
#[feed_forward(relu, d_ff = 64)]
#[target(sm_80)]
struct Brain;

fn main() {}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
