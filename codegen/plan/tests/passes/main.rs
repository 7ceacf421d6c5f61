//! Whole plans: sound for every preset, placed tightly, and unchanged in their meaning by fusion, padding, micro-batches
//! and narrow types.

use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::plan::Phase;
use kernwright_plan::reference::Rounding;
use kernwright_plan::shape::Shape;
use kernwright_plan::{Options, train_step};
use small::{Batch, Loaded};

mod attention;
mod gelu;
mod gradient_type;
mod meaning;
mod precision;
mod products;
mod scaling;
#[path = "../small/mod.rs"]
mod small;
mod soundness;
mod switches;
mod update;

pub(crate) fn options(precision: Dtype) -> Options {
    Options { precision: Some(precision), head_chunk: Some(3), ..Options::default() }
}

/// Loss and all gradients after one micro-batch, at full precision.
pub(crate) fn loss_and_gradients(
    name: &str,
    shape: &Shape,
    options: &Options,
    rounding: Rounding,
) -> Vec<(String, Vec<f64>)> {
    let data = Batch::new(shape, 14);
    let mut loaded = Loaded::<f64>::new(name, shape, train_step(shape, options, 2, 7), rounding);
    loaded.feed(&data, data.counted());
    loaded.run(&[Phase::Prepare, Phase::Forward, Phase::Backward], MicroStep::First);
    read(&loaded, shape)
}

pub(crate) fn read(loaded: &Loaded<f64>, shape: &Shape) -> Vec<(String, Vec<f64>)> {
    let gradients = shape.parameters().into_iter().map(|parameter| format!("d_{}", parameter.name));
    let names = std::iter::once("loss".to_owned()).chain(gradients);
    names.map(|name| (name.clone(), loaded.get(&name))).collect()
}

/// Root mean squares of the difference and of what is expected.
pub(crate) fn distance(found: &[f64], expected: &[f64]) -> (f64, f64) {
    let norm = |squares: f64| (squares / expected.len() as f64).sqrt();
    let difference = found.iter().zip(expected).map(|(a, b)| (a - b) * (a - b)).sum();
    (norm(difference), norm(expected.iter().map(|b| b * b).sum()))
}
