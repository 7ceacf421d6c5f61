//! Every section, settings, fields in the struct, a struct in a module, sizes from a `macro_rules!` variable.


#[derive(Clone, Transformer)]
#[model(vocab = 512, context = 128, d_model = 64, layers = 2, tied, norm = rms(eps = 1e-6), precision = fp32)]
#[attention(heads = 4, kv_heads = 2, head_dim = 16, rope(theta = 500_000.0), causal, qk_norm)]
#[feed_forward(swiglu, d_ff = 176)]
#[target(sm_86, sm_90a)]
pub struct Brain;

mod inner {
    #[derive(kernwright::Transformer)]
    #[model(vocab = 256, d_model = 64, layers = 1, norm = layer, positions = learned, biases = all)]
    #[attention(heads = 1, full)]
    #[feed_forward(gelu_tanh, d_ff = 256)]
    #[target(sm_80)]
    pub struct WithFields {
        #[allow(dead_code)]
        pub anything: u8,
    }
}

macro_rules! sized {
    ($name:ident, $d_model:expr, $d_ff:literal) => {
        #[derive(Transformer)]
        #[model(vocab = 256, d_model = $d_model, layers = 1)]
        #[attention(heads = 2)]
        #[feed_forward(gelu, d_ff = $d_ff)]
        #[target(sm_89)]
        struct $name;
    };
}

sized!(Small, 32, 64);

fn main() {
    assert_eq!(Brain::NAME, "Brain");
    for line in ["model.vocab = 512", "model.norm.eps = 1e-6", "attention.rope.theta = 500000.0"] {
        assert!(Brain::SHAPE.lines().any(|found| found == line), "{line} is in {}", Brain::SHAPE);
    }
    let arches: std::collections::BTreeSet<_> = Brain::SOURCES.iter().map(|source| source.arch).collect();
    assert!(arches.iter().eq(&["sm_86", "sm_90a"]), "{arches:?}");
    for source in Brain::SOURCES {
        assert!(source.text.contains(source.kernel), "{} names itself", source.kernel);
    }
    assert!(inner::WithFields::SHAPE.contains("model.positions = learned"));
    assert!(Small::SHAPE.contains("feed_forward.d_ff = 64"));
}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
