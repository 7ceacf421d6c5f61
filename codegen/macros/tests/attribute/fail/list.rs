#[derive(Transformer)]
#[model(
    vocab = [256],
    d_model = 32,
    layers = 1,
    norm = [rms,, layer],
    positions = [none learned],
    precision = [bf16(fast)],
)]
#[attention(heads = [[2]], kv_heads = [2 * 1])]
#[feed_forward(gelu = [], d_ff = 64)]
#[target(sm_80)]
struct Brain;

fn main() {}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
