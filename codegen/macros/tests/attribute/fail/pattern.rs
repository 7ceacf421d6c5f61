// Kinds of layer: in the pattern, and in what is said of each.
#[derive(Transformer)]
#[model(vocab = 256, d_model = 64, layers = 6, pattern = [local, locl, global])]
#[attention(heads = 2, rope, local(window = 0, rope(thetta = 1e4)), global(no_rope, heads = 4))]
#[feed_forward(geglu, d_ff = 64)]
#[target(sm_80)]
struct Misspelt;

#[derive(Transformer)]
#[model(vocab = 256, d_model = 64, layers = 6, pattern = [])]
#[attention(heads = 2, local(rope(theta = 1e4), no_rope))]
#[feed_forward(geglu, d_ff = 64)]
#[target(sm_80)]
struct AtOdds;

fn main() {}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
