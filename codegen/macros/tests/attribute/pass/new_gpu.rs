//! A GPU that Kernwright has no row for: its kernels are generated, and its limits travel with the model.

#[derive(Transformer)]
#[model(vocab = 256, d_model = 64, layers = 1)]
#[attention(heads = 2)]
#[feed_forward(swiglu, d_ff = 64)]
#[target(sm_86, sm_130(like = sm_120a, shared_memory = 232_448, threads_multiprocessor = 2048))]
struct Brain;

fn main() {
    let arches: std::collections::BTreeSet<_> = Brain::SOURCES.iter().map(|source| source.arch).collect();
    assert!(arches.iter().eq(&["sm_130", "sm_86"]), "{arches:?}");
    let kernels = |arch| Brain::SOURCES.iter().filter(move |source| source.arch == arch).map(|source| source.kernel);
    assert!(kernels("sm_86").eq(kernels("sm_130")));
    assert!(!Brain::SHAPE.contains("sm_"), "{}", Brain::SHAPE);
    for line in [
        "target.sm_86 = true",
        "target.sm_130.like = sm_120a",
        "target.sm_130.shared_memory = 232448",
        "target.sm_130.shared_memory_multiprocessor = 233472",
        "target.sm_130.threads_multiprocessor = 2048",
    ] {
        assert!(Brain::TARGETS.lines().any(|found| found == line), "{line} is in {}", Brain::TARGETS);
    }
}

extern crate self as kernwright;
#[path = "../support/facade.rs"]
mod facade;
#[allow(unused_imports)]
pub use facade::{Cubin, Model, Source, Transformer};
