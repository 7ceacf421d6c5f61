#[derive(Attention)]
#[attention(heads = 4, head_dim = 300)]
#[target(sm_86)]
struct Wide;

#[derive(Attention)]
#[attention(heads = 12, kv_heads = 5, head_dim = 64, layout = bshd, layout = bhsd, dtype = "bf16")]
#[target(sm_86)]
struct AtOdds;

#[derive(Attention)]
#[attention(heads = 4, head_dim = 64, causal, full, windw = 3, rope(theta = 10_000.0))]
#[target(sm_86)]
struct Unknown;

#[derive(Attention)]
#[attention(head_dim = 64, window = 0, softcap = -1.0)]
#[target(sm_85)]
struct OutOfRange;

#[derive(Attention)]
struct Missing;

#[derive(Attention)]
#[attention(heads = 4, head_dim = 64)]
#[target(sm_86)]
enum Kind {
    One,
}

#[derive(Attention)]
#[attention(heads = N, head_dim = 64)]
#[target(sm_86)]
struct Generic<const N: usize>;

fn main() {}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Attention, Cubin, Source, attention};
