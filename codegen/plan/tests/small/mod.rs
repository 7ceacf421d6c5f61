//! Small models for tests of whole plans: shapes, content for parameters and batches, and running them.

use kernwright_plan::executor::{Executor, MicroStep, PlanId, Values};
use kernwright_plan::float::Float;
use kernwright_plan::ops::head_loss::IGNORED;
use kernwright_plan::plan::{Phase, Plan};
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_plan::shape::{Initial, Parameter, Shape, parse_text};

const SHAPES: &[(&str, &str)] = &[
    (
        "grouped, tied, rope",
        "model.vocab = 13\nmodel.d_model = 16\nmodel.layers = 1\nmodel.tied\nmodel.norm.eps = 1e-3\n\
         attention.heads = 2\nattention.kv_heads = 1\nattention.head_dim = 8\nattention.rope\n\
         attention.rope.theta = 90.0\nfeed_forward.swiglu\nfeed_forward.d_ff = 24\n",
    ),
    (
        "learned positions, layer norm, biases",
        "model.vocab = 11\nmodel.context = 9\nmodel.d_model = 24\nmodel.layers = 1\nmodel.tied\n\
         model.norm = layer\nmodel.norm.eps = 1e-3\nmodel.positions = learned\nmodel.biases = all\n\
         attention.heads = 3\nfeed_forward.gelu_tanh\nfeed_forward.d_ff = 40\n",
    ),
    (
        "qk_norm, own head, full mask",
        "model.vocab = 7\nmodel.d_model = 16\nmodel.layers = 1\nmodel.norm.eps = 1e-4\n\
         model.biases = qkv\nattention.heads = 2\nattention.kv_heads = 1\nattention.head_dim = 16\n\
         attention.rope\nattention.full\nattention.qk_norm\nfeed_forward.gelu\nfeed_forward.d_ff = 24\n",
    ),
    (
        "local and global layers, norms on both sides, softcaps, 1 + w",
        "model.vocab = 17\nmodel.d_model = 16\nmodel.layers = 2\nmodel.tied\nmodel.norm.eps = 1e-3\n\
         model.pattern = [local, global]\nmodel.norm.weight = one_plus_w\nmodel.norm.placement = both\n\
         model.norm.embedding\nmodel.embedding_scale = 4.0\nmodel.softcap = 12.0\nmodel.logits_scale = 0.7\n\
         model.biases = head\nattention.heads = 2\nattention.kv_heads = 1\nattention.head_dim = 8\n\
         attention.softcap = 2.0\nattention.scale = 0.5\nattention.rope\nattention.rope.theta = 70.0\n\
         attention.local.window = 2\nattention.global.no_rope\nfeed_forward.geglu_tanh\nfeed_forward.d_ff = 24\n",
    ),
    (
        "parallel, two norms, part of a head rotates, every bias",
        "model.vocab = 12\nmodel.d_model = 16\nmodel.layers = 2\nmodel.norm = layer\nmodel.norm.eps = 1e-3\n\
         model.biases = [all, head]\nmodel.parallel\nattention.heads = 2\nattention.head_dim = 16\n\
         attention.rope\nattention.rope.fraction = 0.25\nattention.rope.theta = 50.0\nfeed_forward.gelu\n\
         feed_forward.d_ff = 24\n",
    ),
    (
        "parallel, one norm, no weights in norms, scaled residual, relu2",
        "model.vocab = 9\nmodel.d_model = 16\nmodel.layers = 2\nmodel.norm = layer\nmodel.norm.eps = 1e-3\n\
         model.norm.weight = none\nmodel.parallel\nmodel.parallel.shared_norm\nmodel.residual_scale = 0.6\n\
         attention.heads = 2\nattention.window = 3\nattention.qk_norm = whole\nattention.qk_norm.order = after\n\
         attention.rope\nfeed_forward.relu2\nfeed_forward.d_ff = 24\n",
    ),
    (
        "odd dimensions, norms after, yarn",
        "model.vocab = 21\nmodel.d_model = 16\nmodel.layers = 2\nmodel.norm.eps = 1e-3\n\
         model.norm.placement = post\nmodel.biases = all\nattention.heads = 3\nattention.kv_heads = 1\n\
         attention.head_dim = 10\nattention.qk_norm\nattention.rope\nattention.rope.fraction = 0.6\n\
         attention.rope.theta = 40.0\nattention.rope.scaling = yarn\nattention.rope.scaling.factor = 3.0\n\
         attention.rope.scaling.original_context = 16\nfeed_forward.geglu\nfeed_forward.d_ff = 13\n",
    ),
];

/// Small shapes that between them use every op and every way gradients meet.
pub(crate) fn shapes() -> impl Iterator<Item = (&'static str, Shape)> {
    SHAPES.iter().map(|(name, text)| (*name, parse_text(text).unwrap_or_else(|e| panic!("{name}: {e}"))))
}

/// A plan with content in its parameters.
pub(crate) struct Loaded<F> {
    /// For messages.
    pub(crate) name: String,
    /// What holds it.
    pub(crate) executor: Reference<F>,
    /// Which one.
    pub(crate) plan: PlanId,
    /// Those of its model; none for a case.
    pub(crate) parameters: Vec<Parameter>,
}

/// Tokens and targets.
#[derive(Clone)]
pub(crate) struct Batch {
    pub(crate) tokens: Vec<i32>,
    pub(crate) targets: Vec<i32>,
}

impl Batch {
    /// Some tokens, some targets, some of them ignored.
    pub(crate) fn new(shape: &Shape, rows: usize) -> Self {
        let (rows, vocab) = (rows as i32, shape.vocab as i32);
        let target = |i: i32| if i % 4 == 1 { IGNORED } else { (3 * i + 1) % vocab };
        Self { tokens: (0..rows).map(|i| i * i % vocab).collect(), targets: (0..rows).map(target).collect() }
    }

    /// Targets that count.
    pub(crate) fn counted(&self) -> usize {
        self.targets.iter().filter(|target| **target != IGNORED).count()
    }
}

impl<F: Float> Loaded<F> {
    pub(crate) fn new(name: &str, shape: &Shape, plan: Plan, rounding: Rounding) -> Self {
        let mut executor = Reference::new(rounding);
        let plan = executor.load(plan).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut loaded = Self { name: name.to_owned(), executor, plan, parameters: shape.parameters() };
        for (index, parameter) in shape.parameters().iter().enumerate() {
            let n = parameter.shape.iter().product();
            let is_norm = parameter.name.ends_with("norm.weight") && parameter.initial == Initial::Ones;
            let values = content(index, n, is_norm);
            let buffer = loaded.executor.plan(plan).find(&parameter.name);
            let is_padded = buffer.is_some_and(|id| loaded.executor.plan(plan).buffer(id).len() != n);
            let padded = parameter.pad(&values);
            loaded.put(&parameter.name, Values::Float(if is_padded { &padded } else { &values }));
        }
        loaded
    }

    pub(crate) fn put(&mut self, buffer: &str, values: Values<'_>) {
        let id = self.executor.plan(self.plan).find(buffer);
        let id = id.unwrap_or_else(|| panic!("{}: the plan has no `{buffer}`", self.name));
        self.executor.write(self.plan, id, values).unwrap_or_else(|e| panic!("{}: {e}", self.name));
    }

    /// Sets a batch; the loss is the mean over `counted` targets, which may be those of several batches.
    pub(crate) fn feed(&mut self, batch: &Batch, counted: usize) {
        let mut order: Vec<i32> = (0..batch.tokens.len() as i32).collect();
        order.sort_by_key(|position| batch.tokens[*position as usize]);
        self.put("tokens", Values::Int(&batch.tokens));
        self.put("token_order", Values::Int(&order));
        self.put("targets", Values::Int(&batch.targets));
        let inverse = if counted == 0 { 0.0 } else { 1.0 / counted as f32 };
        self.put("inverse_count", Values::Float(&[inverse]));
    }

    pub(crate) fn run(&mut self, phases: &[Phase], micro: MicroStep) {
        for phase in phases {
            let result = self.executor.run_phase(self.plan, *phase, micro);
            result.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        }
    }

    /// The content of a buffer.
    pub(crate) fn get_padded(&self, buffer: &str) -> Vec<f64> {
        let id = self.executor.plan(self.plan).find(buffer);
        let id = id.unwrap_or_else(|| panic!("{}: the plan has no `{buffer}`", self.name));
        self.executor.values(self.plan, id).into_iter().map(Float::f64).collect()
    }

    /// The content of a buffer; that of a parameter, its gradient or moments without padding, which must be 0.
    pub(crate) fn get(&self, buffer: &str) -> Vec<f64> {
        let values = self.get_padded(buffer);
        let name = buffer.strip_suffix(".bf16").unwrap_or(buffer);
        let name = ["d_", "m.", "v."].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        match self.parameters.iter().find(|parameter| parameter.name == name) {
            Some(parameter) if parameter.shape.iter().product::<usize>() != values.len() => {
                let unpadded = parameter.unpad(values.clone());
                let stays_zero = parameter.pad(&unpadded) == values;
                assert!(stays_zero, "{}: the padding of `{buffer}` is not 0", self.name);
                unpadded
            }
            _ => values,
        }
    }
}

/// Values around 0 without a pattern that the model shares, or around 1 for the weights of norms.
fn content(parameter: usize, n: usize, is_norm: bool) -> Vec<f32> {
    let wave = |i: usize| ((i * i + 7 * i + 131 * parameter) as f64 * 0.754_877_666).sin();
    (0..n).map(|i| (0.4 * wave(i) + f64::from(u8::from(is_norm))) as f32).collect()
}
