//! How a GPU computes products of matrices, and what a user sees while that is chosen.

use crate::cli::progress;
use crate::environment::Environment;
use crate::terminal::note;
use kernwright_runtime::gpu::products::{Message, Order, Settings, Tell};

/// Choices are remembered beside the kernels.
pub(super) fn settings(order: Order, environment: &Environment) -> Settings {
    let folder = environment.cache.as_ref().map(|folder| folder.join("products"));
    Settings { folder, order, ..Settings::default() }
}

/// A bar while shapes are measured, a line once they are, and a line for what should be known.
pub(super) fn tell(environment: &Environment) -> Tell {
    let environment = environment.clone();
    let mut shown = None;
    Box::new(move |message| match message {
        Message::Choosing { done, of, product } => {
            let new = || progress::bar(Some(of as u64), "how it is computed is chosen", &environment).0;
            let bar = shown.get_or_insert_with(new);
            bar.set_message(product);
            bar.set_position(done as u64);
        }
        Message::Chosen { shapes, seconds } => {
            if let Some(bar) = shown.take() {
                bar.finish_and_clear();
            }
            note(&format!("chose how {shapes} shapes of matrix products are computed, in {seconds:.1} s"));
        }
        Message::Note(text) => match &shown {
            Some(bar) => bar.suspend(|| note(&text)),
            None => note(&text),
        },
    })
}
