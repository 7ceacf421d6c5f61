#[derive(Transformer)]
#[model(vocab = 256, d_model = 64, layers = 1)]
#[attention(heads = 2)]
#[feed_forward(swiglu, d_ff = 64)]
#[target(
    sm_90,
    sm_86(like = sm_80),
    sm_130(shared_memory = 65_536),
    sm_131(like = sm_12, shared_memory = 1_000, warps = 48),
    sm_132(like = sm_120a, shared_memory = 131_072, shared_memory_multiprocessor = 131_072),
    fast(like = sm_80)
)]
struct Brain;

fn main() {}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
