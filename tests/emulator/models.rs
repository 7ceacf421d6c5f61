//! Whole plans of small odd models: every kind of norm, bias, position, activation, mask and head ratio occurs.

use crate::work::{Run, Work, narrow_types};
use kernwright_model::random::Random;
use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::case::Content;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::ops::head_loss::IGNORED;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::plan::{Phase, Plan};
use kernwright_plan::shape::{Shape, parse_text};
use kernwright_plan::{Options, forward_step, train_step};

pub(crate) const MODELS: &[(&str, &str)] = &[
    (
        "rms, swiglu, rope, grouped, tied",
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
        "qk_norm, one kv head, full, gelu, narrow residual stream",
        "model.vocab = 19\nmodel.context = 90\nmodel.d_model = 24\nmodel.layers = 1\nmodel.norm.eps = 1e-3\n\
         model.biases = qkv\nmodel.residual = bf16\nattention.heads = 3\nattention.kv_heads = 1\n\
         attention.head_dim = 24\nattention.rope\nattention.rope.theta = 500.0\nattention.full\n\
         attention.qk_norm\nfeed_forward.gelu\nfeed_forward.d_ff = 40\n",
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
];

/// The Shape of some fields.
pub(crate) fn shape(fields: &str) -> Shape {
    parse_text(fields).unwrap_or_else(|problems| panic!("{problems:?}"))
}

/// Values of every parameter and moment, as after some steps.
pub(crate) fn weights(shape: &Shape, plan: &Plan) -> Vec<(BufferId, Content)> {
    let normal = |name: &str, n: usize, centre: f32, deviation: f64| -> Vec<f32> {
        let mut values = vec![0.0; n];
        Random::stream(11, name).normals_at(0, deviation, &mut values);
        values.into_iter().map(|value| centre + value).collect()
    };
    let mut content = Vec::new();
    for parameter in shape.parameters() {
        let (centre, deviation) = match (parameter.decays(), parameter.name.ends_with("norm.weight")) {
            (true, _) => (0.0, 0.25),
            (false, true) => (1.0, 0.2),
            (false, false) => (0.0, 0.1),
        };
        let values = normal(&parameter.name, parameter.shape.iter().product(), centre, deviation);
        let values = parameter.pad(&values).into_owned();
        content.extend(plan.find(&parameter.name).map(|id| (id, Content::Float(values))));
    }
    for (index, buffer) in plan.buffers.iter().enumerate().filter(|(_, b)| b.role == Role::Moment) {
        let mut values = normal(&buffer.name, buffer.len(), 0.0, 0.01);
        if buffer.name.starts_with("v.") {
            // Second moments are squares.
            values.iter_mut().for_each(|value| *value = *value * *value + 1e-5);
        }
        content.push((BufferId(index), Content::Float(values)));
    }
    let scalars = [("learning_rate", Content::Float(vec![0.01])), ("step", Content::Int(vec![3]))];
    content.extend(scalars.into_iter().filter_map(|(name, value)| Some((plan.find(name)?, value))));
    content
}

/// A batch: a third of its tokens are one, so that runs are long; every seventh target does not count.
pub(crate) fn batch(plan: &Plan, vocab: usize, seed: u64) -> Vec<(BufferId, Content)> {
    let Some(id) = plan.find("tokens") else { return Vec::new() };
    let n = plan.buffer(id).len();
    let mut random = Random::new(seed);
    let mut token = || random.below(vocab as u64) as i32;
    let tokens: Vec<i32> = (0..n).map(|at| if at % 3 == 1 { 1 } else { token() }).collect();
    let targets: Vec<i32> = (0..n).map(|at| if at % 7 == 2 { IGNORED } else { token() }).collect();
    let mut order: Vec<i32> = (0..n as i32).collect();
    order.sort_by_key(|position| tokens[*position as usize]);
    let inverse = 1.0 / (2 * targets.iter().filter(|target| **target != IGNORED).count()) as f32;
    let lists = [
        ("tokens", Content::Int(tokens)),
        ("targets", Content::Int(targets)),
        ("token_order", Content::Int(order)),
        ("inverse_count", Content::Float(vec![inverse])),
        ("positions", Content::Int(vec![n as i32 - 1, 0])),
    ];
    lists.into_iter().filter_map(|(name, list)| Some((plan.find(name)?, list))).collect()
}

/// A training step of two micro-batches, and logits, of every model in every type.
pub(crate) fn all() -> Vec<Work> {
    let mut works = Vec::new();
    for (index, (label, fields)) in MODELS.iter().enumerate() {
        let shape = shape(fields);
        for precision in narrow_types().chain([Dtype::Fp32]) {
            let clip = (index != 2).then_some(1.0);
            // Some accumulate gradients of the precision.
            let gradient = if index % 2 == 1 { precision } else { Dtype::Fp32 };
            let options = Options {
                precision: Some(precision),
                gradient,
                head_chunk: Some(50),
                clip,
                ..Options::default()
            };
            let label = format!("{label}, {}", precision.name());
            let plan = train_step(&shape, &options, 2, 37);
            let forward_and_backward = plan.phase(Phase::Forward).start..plan.phase(Phase::Backward).end;
            let run = |content, steps, micro| Run { content, steps, micro };
            let runs = vec![
                run(weights(&shape, &plan), plan.phase(Phase::Prepare), MicroStep::First),
                run(batch(&plan, shape.vocab, 1), forward_and_backward.clone(), MicroStep::First),
                run(batch(&plan, shape.vocab, 2), forward_and_backward, MicroStep::Later),
                run(Vec::new(), plan.phase(Phase::Update), MicroStep::First),
            ];
            works.push(Work { label: format!("training, {label}"), plan, runs });
            let plan = forward_step(&shape, &options, 1, 21, Head::Logits(2));
            let content = [weights(&shape, &plan), batch(&plan, shape.vocab, 3)].concat();
            let runs = vec![run(content, 0..plan.steps.len(), MicroStep::First)];
            works.push(Work { label: format!("logits, {label}"), plan, runs });
        }
    }
    works
}
