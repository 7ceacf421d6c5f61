//! The plan of attention and its gradient that tests of both run.

use kernwright_plan::Options;
use kernwright_plan::buffer::Role;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::ops::attention::{Attention, AttentionBackward, BackwardForm};
use kernwright_plan::passes::{attention, memory, split_heads};
use kernwright_plan::plan::{Phase, Plan, Step};
use kernwright_plan::tape::{read, write};

/// The gradients.
pub(crate) const GRADIENTS: [&str; 3] = ["d_q", "d_k", "d_v"];

/// Options with which blocks of the gradient own the keys of one query head, wherever there are groups, or nowhere.
pub(crate) fn heads(split: bool) -> Options {
    let [always, never] = split_heads::both(&Options::default());
    if split { always } else { never }
}

/// Attention and its gradient over `batch` sequences. Inputs are `d_out` and `qkv`, queries, keys and values side by side as in
/// a model; where there are other numbers of them, `queries` and `keys`. Gradients, of type `gradient`, lie likewise.
pub(crate) fn plan(op: &Attention, batch: usize, [dtype, gradient]: [Dtype; 2], options: &Options) -> Plan {
    let (q, kv, rows) = (op.heads * op.head_dim, op.kv_heads * op.head_dim, batch * op.length);
    let mut plan = Plan::default();
    let d_out = plan.add("d_out", vec![rows, q], dtype, Role::Input);
    let pair = |plan: &mut Plan, name: &str, shape: [usize; 2]| {
        let to = plan.add(format!("d_{name}"), shape.to_vec(), gradient, Role::Output);
        (plan.add(name, shape.to_vec(), dtype, Role::Input), to)
    };
    let views = if op.length == op.key_length {
        let qkv = pair(&mut plan, "qkv", [rows, q + 2 * kv]);
        [(qkv, 0..q), (qkv, q..q + kv), (qkv, q + kv..q + 2 * kv)]
    } else {
        let queries = pair(&mut plan, "queries", [rows, q]);
        let keys = pair(&mut plan, "keys", [batch * op.key_length, 2 * kv]);
        [(queries, 0..q), (keys, 0..kv), (keys, kv..2 * kv)]
    };
    let (mut reads, mut gradients) = (Vec::new(), Vec::new());
    for ((slot, gradient), ((from, to), columns)) in ["q", "k", "v"].into_iter().zip(GRADIENTS).zip(views) {
        reads.push(read(slot, plan.add_view(slot, from, columns.clone())));
        gradients.push(write(gradient, plan.add_view(gradient, to, columns)));
    }
    let out = plan.add("out", vec![rows, q], dtype, Role::Activation);
    let lse = plan.add("lse", vec![batch, op.heads, op.length], Dtype::Fp32, Role::Activation);
    plan.steps.push(Step {
        op: op.clone().into(),
        reads: reads.clone(),
        writes: vec![write("out", out), write("lse", lse)],
        phase: Phase::Forward,
    });
    reads.extend([read("out", out), read("lse", lse), read("d_out", d_out)]);
    plan.steps.push(Step {
        op: AttentionBackward { attention: op.clone(), form: BackwardForm::Ordered }.into(),
        reads,
        writes: gradients,
        phase: Phase::Backward,
    });
    memory::place(attention::choose(plan, options))
}
