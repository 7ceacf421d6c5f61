//! A model and a run of it that are as small as they may be.

#![allow(dead_code, reason = "each test file uses a part of it")]

use kernwright_model::corpus::{BUILT_IN, Tokens};
use kernwright_model::schedule::Form;
use kernwright_model::split::Split;
use kernwright_model::trainer::TrainOptions;
use kernwright_plan::shape::{Shape, parse_text};
use std::sync::Arc;

/// Tokens that the model may see at once.
const CONTEXT: usize = 8;

/// Of so many layers, with a head of its own or that of the embedding: `model.tied` or nothing.
pub(crate) fn shape(layers: usize, tied: &str) -> Shape {
    parse_text(&format!(
        "model.vocab = 256\nmodel.context = {CONTEXT}\nmodel.d_model = 8\nmodel.layers = {layers}\n{tied}\n\
         attention.heads = 1\nattention.head_dim = 8\nattention.rope\nfeed_forward.swiglu\nfeed_forward.d_ff = 8\n"
    ))
    .unwrap()
}

/// At one rate from the first step on, without decay.
pub(crate) fn options(accumulate: usize, learning_rate: f64) -> TrainOptions {
    TrainOptions {
        batch: 2,
        length: CONTEXT,
        accumulate,
        steps: 40,
        learning_rate,
        warmup: 0,
        schedule: Form::Constant,
        final_rate: 0.1,
        decay_fraction: 0.1,
        weight_decay: 0.0,
        clip: 1.0,
        z_loss: 0.0,
        seed: 3,
        eval_batches: 2,
        history: Vec::new(),
    }
}

/// The beginning of the built-in text, in sequences of as many tokens as the model may see.
pub(crate) fn text() -> Split {
    let tokens = Tokens::embedded("text", &BUILT_IN[..4000], 256).unwrap();
    Split::last(Arc::new(tokens), Split::FRACTION, CONTEXT).unwrap()
}
