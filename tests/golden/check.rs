//! An executor against the golden files: logits, loss and every gradient of small models that PyTorch computed.
//!
//! In: an executor without plans. Out: the worst errors, or a panic that names model, tensor and element. Tests of
//! several crates include this file by path; it knows `Executor` and no kind of it. `make.py` writes the files.
//!
//! Agreement within `share` means, for a tensor found and one expected, `max|found - expected| <= share max|expected|`
//! and `rms(found - expected) <= share rms(expected)`.

use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, MicroStep, PlanId, Values};
use kernwright_plan::ops::head_loss::IGNORED;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::plan::Phase;
use kernwright_plan::shape::{Shape, parse_text};
use kernwright_plan::{Options, forward_step, train_step};
use safetensors::SafeTensors;
use std::collections::HashMap;

/// Every golden file.
const FILES: [(&str, &[u8]); 20] = [
    ("llama", include_bytes!("llama.safetensors")),
    ("gpt2", include_bytes!("gpt2.safetensors")),
    ("qwen", include_bytes!("qwen.safetensors")),
    ("full", include_bytes!("full.safetensors")),
    ("gemma2", include_bytes!("gemma2.safetensors")),
    ("gemma3", include_bytes!("gemma3.safetensors")),
    ("qwen3", include_bytes!("qwen3.safetensors")),
    ("llama3", include_bytes!("llama3.safetensors")),
    ("yarn", include_bytes!("yarn.safetensors")),
    ("pythia", include_bytes!("pythia.safetensors")),
    ("phi", include_bytes!("phi.safetensors")),
    ("nemotron", include_bytes!("nemotron.safetensors")),
    ("olmo", include_bytes!("olmo.safetensors")),
    ("olmo2", include_bytes!("olmo2.safetensors")),
    ("granite", include_bytes!("granite.safetensors")),
    ("smollm3", include_bytes!("smollm3.safetensors")),
    ("hunyuan", include_bytes!("hunyuan.safetensors")),
    ("odd", include_bytes!("odd.safetensors")),
    ("odd_post", include_bytes!("odd_post.safetensors")),
    ("odd_both", include_bytes!("odd_both.safetensors")),
];

/// A golden file.
pub(crate) struct Golden {
    /// Its name, for messages.
    pub(crate) name: &'static str,
    /// The model's shape.
    pub(crate) shape: Shape,
    /// Sequences.
    pub(crate) batch: usize,
    /// Tokens per sequence.
    pub(crate) length: usize,
    /// `batch * length` tokens.
    pub(crate) tokens: Vec<i32>,
    /// As many targets, some of them ignored.
    pub(crate) targets: Vec<i32>,
    /// Parameters, `logits`, `loss`, and gradients as `d_` and the parameter's name.
    pub(crate) tensors: HashMap<String, Vec<f32>>,
}

/// Share of the tolerance that the worst tensor of a kind used up, as errors relative to the tensor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Errors {
    /// Greatest `max|found - expected| / max|expected|`.
    pub(crate) max: f64,
    /// Greatest `rms(found - expected) / rms(expected)`.
    pub(crate) rms: f64,
}

/// Reads all files.
pub(crate) fn all() -> Vec<Golden> {
    FILES.into_iter().map(|(name, bytes)| read(name, bytes)).collect()
}

fn read(name: &'static str, bytes: &[u8]) -> Golden {
    let (_, header) = SafeTensors::read_metadata(bytes).expect("the header is sound");
    let text = header.metadata().as_ref().and_then(|m| m.get("shape")).expect("the shape is in the metadata");
    let file = SafeTensors::deserialize(bytes).expect("the file is sound");
    let (mut tensors, mut integers) = (HashMap::new(), HashMap::new());
    for (tensor, view) in file.tensors() {
        let words = view.data().chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]);
        if view.dtype() == safetensors::Dtype::I32 {
            integers.insert(tensor, words.map(i32::from_le_bytes).collect::<Vec<_>>());
        } else {
            assert_eq!(view.dtype(), safetensors::Dtype::F32, "{name}: {tensor}");
            tensors.insert(tensor, words.map(f32::from_le_bytes).collect::<Vec<_>>());
        }
    }
    let size = file.tensor("tokens").expect("there are tokens").shape().to_vec();
    let mut take = |tensor: &str| integers.remove(tensor).expect("a tensor of whole numbers");
    let shape = parse_text(text).unwrap_or_else(|problems| panic!("{name}: {problems}"));
    Golden {
        name,
        shape,
        batch: size[0],
        length: size[1],
        tokens: take("tokens"),
        targets: take("targets"),
        tensors,
    }
}

/// Runs the model of `golden` forward to logits, then forward and backward with a loss, both in fp32, and compares.
/// The head works in chunks of seven rows, which divide no golden batch.
///
/// # Panics
/// When a tensor differs by more than `share` (see above), is missing, or the executor fails.
pub(crate) fn check(executor: &mut dyn Executor, golden: &Golden, share: f64) -> Errors {
    let Golden { name, shape, batch, length, .. } = golden;
    let options = Options { precision: Some(Dtype::Fp32), head_chunk: Some(7), ..Options::default() };
    let rows = batch * length;
    let mut errors = Errors::default();

    let logits = forward_step(shape, &options, *batch, *length, Head::Logits(rows));
    let logits = executor.load(logits).unwrap_or_else(|error| panic!("{name}: {error}"));
    for parameter in shape.parameters() {
        let values = golden.tensors.get(&parameter.name);
        let values = values.unwrap_or_else(|| panic!("{name}: the file lacks `{}`", parameter.name));
        put(executor, logits, &parameter.name, Values::Float(&parameter.pad(values)));
    }
    put(executor, logits, "tokens", Values::Int(&golden.tokens));
    put(executor, logits, "token_order", Values::Int(&token_order(&golden.tokens)));
    put(executor, logits, "positions", Values::Int(&(0..rows as i32).collect::<Vec<_>>()));
    run(executor, logits, &[Phase::Prepare, Phase::Forward]);
    let found = get(executor, logits, name, "asked_logits");
    compare(golden, "logits", &found, share, &mut errors);

    // The parameters are those of the first plan: buffers that last are shared by name.
    let train = train_step(shape, &options, *batch, *length);
    let train = executor.load(train).unwrap_or_else(|error| panic!("{name}: {error}"));
    let counted = golden.targets.iter().filter(|target| **target != IGNORED).count();
    put(executor, train, "tokens", Values::Int(&golden.tokens));
    put(executor, train, "token_order", Values::Int(&token_order(&golden.tokens)));
    put(executor, train, "targets", Values::Int(&golden.targets));
    put(executor, train, "inverse_count", Values::Float(&[1.0 / counted as f32]));
    run(executor, train, &[Phase::Prepare, Phase::Forward, Phase::Backward]);
    compare(golden, "loss", &get(executor, train, name, "loss"), share, &mut errors);
    for parameter in shape.parameters() {
        let gradient = format!("d_{}", parameter.name);
        let found = parameter.unpad(get(executor, train, name, &gradient));
        compare(golden, &gradient, &found, share, &mut errors);
    }
    errors
}

/// Positions sorted by their token, as the loader prepares them.
pub(crate) fn token_order(tokens: &[i32]) -> Vec<i32> {
    let mut order: Vec<i32> = (0..tokens.len() as i32).collect();
    order.sort_by_key(|position| tokens[*position as usize]);
    order
}

fn put(executor: &mut dyn Executor, plan: PlanId, buffer: &str, values: Values<'_>) {
    let id = executor.plan(plan).find(buffer).unwrap_or_else(|| panic!("the plan has no `{buffer}`"));
    executor.write(plan, id, values).unwrap_or_else(|error| panic!("{error}"));
}

fn run(executor: &mut dyn Executor, plan: PlanId, phases: &[Phase]) {
    for phase in phases {
        executor.run_phase(plan, *phase, MicroStep::First).unwrap_or_else(|error| panic!("{error}"));
    }
}

fn get(executor: &dyn Executor, plan: PlanId, name: &str, buffer: &str) -> Vec<f32> {
    let id = executor.plan(plan).find(buffer);
    let id = id.unwrap_or_else(|| panic!("{name}: the plan has no `{buffer}`"));
    executor.read(plan, id).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn compare(golden: &Golden, tensor: &str, found: &[f32], share: f64, errors: &mut Errors) {
    let name = golden.name;
    let expected = golden.tensors.get(tensor).unwrap_or_else(|| panic!("{name}: the file lacks `{tensor}`"));
    assert_eq!(found.len(), expected.len(), "{name}: `{tensor}` has another number of elements");
    let difference = |i: usize| f64::from(found[i]) - f64::from(expected[i]);
    // A difference that is not a number must fail too, so it counts as infinite.
    let size = |i: usize| if difference(i).is_nan() { f64::INFINITY } else { difference(i).abs() };
    let at = (0..found.len()).max_by(|a, b| size(*a).total_cmp(&size(*b))).unwrap_or(0);
    let largest = expected.iter().fold(0.0, |max: f64, value| max.max(f64::from(value.abs())));
    let rms_expected = root_mean_square(expected.iter().map(|value| f64::from(*value)));
    let max = relative(size(at), largest);
    let rms = relative(root_mean_square((0..found.len()).map(size)), rms_expected);
    assert!(
        max <= share && rms <= share,
        "{name}: `{tensor}` differs most at {at}: found {}, expected {}; max error {max:.2e}, rms error {rms:.2e} \
         of the tensor, allowed {share:.2e}",
        found[at],
        expected[at],
    );
    *errors = Errors { max: errors.max.max(max), rms: errors.rms.max(rms) };
}

fn relative(error: f64, scale: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / scale }
}

fn root_mean_square(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len().max(1) as f64;
    (values.map(|value| value * value).sum::<f64>() / n).sqrt()
}
