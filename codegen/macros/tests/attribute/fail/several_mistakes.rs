#[derive(Transformer)]
#[model(
    vocab = many,
    d_model = 100,
    layer = 2,
)]
#[attention(heads = 4, kv_heads = 3, head_dim = 300, rope(thetta = 1.0))]
#[feed_forward(swiglu, gelu)]
#[target(sm_91)]
struct Brain;

// The uses of a mistaken model are no mistakes of their own.
fn main() {
    println!("{} {}", Brain::NAME, Brain::SOURCES.len());
}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
