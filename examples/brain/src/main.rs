//! A whole program: a model, declared by its shape, and a command line that plans, trains and runs exactly it.
//!
//!     cargo run --release -p brain -- plan       # the training step as a table: ops, FLOPs, bytes, memory
//!     cargo run --release -p brain -- train      # on the CPU
//!     cargo run --release -p brain -- generate --checkpoint runs/Brain --prompt "The "
//!
//! Building it generates CUDA C++ for each kernel that the shape needs, with every size in it a constant. The text is
//! part of the program, and lies in target/kernwright/brain/Brain-<hash>/<GPU>/ to be read. Change a number below, and
//! it is generated anew; batch size and sequence length are chosen when the program runs, and change nothing.

use kernwright::Transformer;

/// About a million parameters, over bytes: small enough to train on a laptop.
#[derive(Transformer)]
#[model(vocab = 256, context = 256, d_model = 128, layers = 5, tied, norm = rms(eps = 1e-5), precision = bf16)]
#[attention(heads = 4, kv_heads = 2, head_dim = 32, rope(theta = 10_000.0), causal)]
#[feed_forward(swiglu, d_ff = 352)]
#[target(sm_86, sm_90a)]
pub struct Brain;

fn main() -> std::process::ExitCode {
    kernwright::cli::main::<Brain>()
}
