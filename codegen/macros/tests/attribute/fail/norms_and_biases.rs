#[derive(Transformer)]
#[model(
    vocab = 256,
    d_model = 64,
    layers = 1,
    norm = rms(weight = two_plus_w, placement = [pre, post], embedding = 3),
    biases = [all, heads],
    parallel(shared),
    residual = fp8,
)]
#[attention(heads = 2, qk_norm = each(order = during))]
#[feed_forward(relu2, d_ff = 64)]
#[target(sm_80)]
struct Brain;

fn main() {}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
