//! The whole language, in models as they are published: alternating layers, scaled rope, a parallel block.

/// As Gemma 2, smaller.
#[derive(Transformer)]
#[model(
    vocab = 509, context = 512, d_model = 96, layers = 5, pattern = [local, global], tied,
    norm = rms(eps = 1e-6, weight = one_plus_w, placement = both), precision = bf16, residual = bf16,
    embedding_scale = 9.797958971132712, softcap = 30.0,
)]
#[attention(
    heads = 4, kv_heads = 2, head_dim = 32, softcap = 50.0, scale = 0.0625, rope(theta = 10_000.0),
    local(window = 64, rope(theta = 1e4)),
)]
#[feed_forward(geglu_tanh, d_ff = 190)]
#[target(sm_86, sm_130(like = sm_120a, shared_memory = 65536))]
struct Alternating;

/// As Llama 3.2.
#[derive(Transformer)]
#[model(vocab = 512, d_model = 64, layers = 2, tied, norm = rms(eps = 1e-5), residual_scale = 0.5, logits_scale = 0.25)]
#[attention(heads = 2, rope(theta = 5e5, scaling = llama3(factor = 32.0, original_context = 8192)))]
#[feed_forward(swiglu, d_ff = 128)]
#[target(sm_86)]
struct Scaled;

/// As Pythia.
#[derive(Transformer)]
#[model(vocab = 512, d_model = 64, layers = 2, norm = layer, biases = all, parallel)]
#[attention(heads = 2, rope(fraction = 0.25), qk_norm = whole(order = after))]
#[feed_forward(gelu, d_ff = 256)]
#[target(sm_86)]
struct Parallel;

/// What is left.
#[derive(Transformer)]
#[model(
    vocab = 512, d_model = 64, layers = 4, pattern = [local, local, global], norm = layer(weight = none, embedding),
    biases = [all, head], parallel(shared_norm),
)]
#[attention(
    heads = 2, full, window(left = 31, right = 4), qk_norm,
    local(rope(scaling = yarn(factor = 4, original_context = 2048, beta_fast = 16.0))), global(no_rope),
)]
#[feed_forward(relu2, d_ff = 250)]
#[target(sm_86)]
struct Rest;

fn has<M: Model>(lines: &[&str]) {
    for line in lines {
        assert!(M::SHAPE.lines().any(|found| found == *line), "{line} is in {}", M::SHAPE);
    }
    assert!(!M::SOURCES.is_empty());
}

fn main() {
    has::<Alternating>(&[
        "model.pattern = [local, global]",
        "model.norm.weight = one_plus_w",
        "model.norm.placement = both",
        "attention.local.window = 64",
        "feed_forward.d_ff = 190",
    ]);
    assert!(Alternating::SOURCES.iter().any(|source| source.arch == "sm_130"));
    has::<Scaled>(&["attention.rope.scaling = llama3", "attention.rope.scaling.factor = 32.0"]);
    has::<Parallel>(&["model.parallel = true", "attention.rope.fraction = 0.25"]);
    has::<Rest>(&[
        "model.biases = [all, head]",
        "model.pattern = [local, local, global]",
        "attention.global.window.left = 31",
        "attention.local.window.right = 4",
    ]);
}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
