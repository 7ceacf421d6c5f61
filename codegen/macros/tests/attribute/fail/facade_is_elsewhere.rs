// The dependency has another name, and nobody says so.
#[derive(kw::Transformer)]
#[model(vocab = 256, d_model = 32, layers = 1)]
#[attention(heads = 2)]
#[feed_forward(gelu, d_ff = 64)]
#[target(sm_80)]
struct Brain;

fn main() {
    let _ = <Brain as kw::Model>::SOURCES;
}

extern crate self as kw;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
