//! Small models and their content.

use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::case::Content;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::ops::head_loss::IGNORED;
use kernwright_plan::options::Options;
use kernwright_plan::plan::Plan;
use kernwright_plan::shape::{Shape, parse_text};

/// Fields of small odd models: every kind of norm, bias, position, activation, mask and head ratio occurs.
pub(crate) const MODELS: &[(&str, &str)] = &[
    (
        "rms, swiglu, rope, grouped",
        "model.vocab = 37\nmodel.context = 80\nmodel.d_model = 40\nmodel.layers = 2\nmodel.tied\n\
         attention.heads = 4\nattention.kv_heads = 2\nattention.head_dim = 8\nattention.rope\n\
         feed_forward.swiglu\nfeed_forward.d_ff = 56\n",
    ),
    (
        "layer, gelu_tanh, learned, biases",
        "model.vocab = 41\nmodel.context = 75\nmodel.d_model = 48\nmodel.layers = 1\nmodel.norm = layer\n\
         model.positions = learned\nmodel.biases = all\nattention.heads = 2\nattention.head_dim = 24\n\
         feed_forward.gelu_tanh\nfeed_forward.d_ff = 72\n",
    ),
    (
        "rms, gelu, qk_norm, one kv head, full",
        "model.vocab = 19\nmodel.context = 90\nmodel.d_model = 24\nmodel.layers = 2\nmodel.norm.eps = 1e-3\n\
         model.biases = qkv\nattention.heads = 3\nattention.kv_heads = 1\nattention.head_dim = 24\n\
         attention.rope\nattention.rope.theta = 500.0\nattention.full\nattention.qk_norm\n\
         feed_forward.gelu\nfeed_forward.d_ff = 40\n",
    ),
    (
        "layer, swiglu, qk_norm, tied, biases",
        "model.vocab = 23\nmodel.context = 70\nmodel.d_model = 32\nmodel.layers = 1\nmodel.tied\n\
         model.norm = layer\nmodel.positions = learned\nmodel.biases = all\nattention.heads = 4\n\
         attention.kv_heads = 1\nattention.head_dim = 16\nattention.rope\nattention.qk_norm\n\
         feed_forward.swiglu\nfeed_forward.d_ff = 48\n",
    ),
    (
        "local and global, softcaps, scales, norms on both sides, odd widths",
        "model.vocab = 33\nmodel.context = 100\nmodel.d_model = 24\nmodel.layers = 2\nmodel.tied\n\
         model.pattern = [local, global]\nmodel.norm.weight = one_plus_w\nmodel.norm.placement = both\n\
         model.embedding_scale = 4.5\nmodel.residual_scale = 0.7\nmodel.logits_scale = 1.3\n\
         model.softcap = 3.0\nattention.heads = 4\nattention.kv_heads = 2\nattention.head_dim = 10\n\
         attention.softcap = 2.5\nattention.scale = 0.4\nattention.rope\nattention.rope.fraction = 0.6\n\
         attention.local.window = 21\nfeed_forward.geglu_tanh\nfeed_forward.d_ff = 51\n",
    ),
    (
        "parallel, head bias, layer norm without weight, relu2, full window",
        "model.vocab = 29\nmodel.context = 80\nmodel.d_model = 40\nmodel.layers = 1\nmodel.norm = layer\n\
         model.norm.weight = none\nmodel.norm.embedding\nmodel.parallel\nmodel.biases = [qkv, head]\n\
         attention.heads = 2\nattention.head_dim = 20\nattention.full\nattention.window = 30\n\
         attention.rope\nattention.rope.scaling = llama3\nattention.rope.scaling.factor = 4.0\n\
         attention.rope.scaling.original_context = 40\nfeed_forward.relu2\nfeed_forward.d_ff = 64\n",
    ),
];

/// A model with several blocks of every kind of work, none of them whole, and the batch and length for it.
pub(crate) const LARGE: (&str, usize, usize) = (
    "model.vocab = 603\nmodel.context = 140\nmodel.d_model = 104\nmodel.layers = 1\nmodel.norm = layer\n\
     model.biases = all\nattention.heads = 6\nattention.kv_heads = 3\nattention.head_dim = 24\n\
     attention.rope\nfeed_forward.swiglu\nfeed_forward.d_ff = 152\n",
    5,
    131,
);

pub(crate) fn shape(fields: &str) -> Shape {
    match parse_text(fields) {
        Ok(shape) => shape,
        Err(problems) => panic!("{problems:?}"),
    }
}

/// Options of a plan for this executor.
pub(crate) fn options() -> Options {
    Options { precision: Some(Dtype::Fp32), head_chunk: Some(50), ..Options::default() }
}

/// Numbers that look random.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }

    /// Around 0 with a deviation of about 1.
    pub(crate) fn normal(&mut self) -> f32 {
        let sum: f64 = (0..6).map(|_| self.below(1 << 20) as f64 / f64::from(1 << 20)).sum();
        ((sum - 3.0) * std::f64::consts::SQRT_2) as f32
    }
}

/// Parameters and what stays the same over the micro-batches of a step.
pub(crate) fn parameters(shape: &Shape, plan: &Plan, n_counted: usize) -> Vec<(BufferId, Content)> {
    let mut random = Random(11);
    let mut content = Vec::new();
    for parameter in shape.parameters() {
        let n: usize = parameter.shape.iter().product();
        let (centre, deviation) = match (parameter.decays(), parameter.name.ends_with("norm.weight")) {
            (true, _) => (0.0, 0.25),
            (false, true) => (1.0, 0.2),
            (false, false) => (0.0, 0.1),
        };
        let values: Vec<f32> = (0..n).map(|_| centre + deviation * random.normal()).collect();
        let values = parameter.pad(&values).into_owned();
        content.extend(plan.find(&parameter.name).map(|id| (id, Content::Float(values))));
    }
    let inverse = 1.0 / n_counted as f32;
    let scalars = [
        ("inverse_count", Content::Float(vec![inverse])),
        ("learning_rate", Content::Float(vec![0.01])),
        ("step", Content::Int(vec![3])),
    ];
    content.extend(scalars.into_iter().filter_map(|(name, value)| Some((plan.find(name)?, value))));
    // Moments as after some steps: the second ones must not be negative.
    for (index, buffer) in plan.buffers.iter().enumerate().filter(|(_, b)| b.role == Role::Moment) {
        let square = buffer.name.starts_with("v.");
        let value = |random: &mut Random| {
            let value = 0.01 * random.normal();
            if square { value * value + 1e-5 } else { value }
        };
        let values = (0..buffer.len()).map(|_| value(&mut random)).collect();
        content.push((BufferId(index), Content::Float(values)));
    }
    content
}

/// Tokens and targets of sequences `first` to `first + batch`; every seventh target does not count.
pub(crate) fn tokens(plan: &Plan, vocab: usize, length: usize, first: usize) -> Vec<(BufferId, Content)> {
    let Some(tokens_id) = plan.find("tokens") else { return Vec::new() };
    let n = plan.buffer(tokens_id).len();
    let token = |at: usize, salt: usize| ((at * 31 + at * at * 7 + salt) % vocab) as i32;
    let at = |i: usize| first * length + i;
    let tokens: Vec<i32> = (0..n).map(|i| token(at(i), 3)).collect();
    let targets = (0..n).map(|i| if at(i) % 7 == 2 { IGNORED } else { token(at(i), 5) }).collect();
    let mut order: Vec<i32> = (0..n as i32).collect();
    order.sort_by_key(|position| tokens[*position as usize]);
    let lists = [("tokens", tokens), ("targets", targets), ("token_order", order)];
    lists.into_iter().filter_map(|(name, list)| Some((plan.find(name)?, Content::Int(list)))).collect()
}

/// How many targets of the first `sequences` count.
pub(crate) fn n_counted(sequences: usize, length: usize) -> usize {
    (0..sequences * length).filter(|at| at % 7 != 2).count()
}
