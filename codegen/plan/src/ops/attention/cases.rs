//! The cases that attention's sweeps run: small, of odd sizes, and no setting at its default everywhere.

use super::{Attention, Form, Window};
use crate::buffer::{BufferId, Role};
use crate::case::{Case, Fill, copy, finish, input};
use crate::dtype::Dtype;
use crate::plan::{Phase, Plan, Step};
use crate::tape::{read, write};

/// Queries, keys and values are views of one buffer, as in a model; where there are other numbers of them, queries have one of
/// their own.
fn one(batch: usize, op: Attention, deviation: f64) -> Case {
    let (mut plan, mut fills) = (Plan::default(), Vec::new());
    let (q, kv) = (op.heads * op.head_dim, op.kv_heads * op.head_dim);
    let rows = batch * op.length;
    let mut given = |plan: &mut Plan, name: [&str; 2], shape: [usize; 2]| -> BufferId {
        let given = input(plan, &mut fills, name[0], &shape, &Fill::Normal(deviation));
        copy(plan, given, name[1], Role::Activation)
    };
    let views = if op.length == op.key_length {
        let qkv = given(&mut plan, ["x", "qkv"], [rows, q + 2 * kv]);
        [("q", qkv, 0..q), ("k", qkv, q..q + kv), ("v", qkv, q + kv..q + 2 * kv)]
    } else {
        let queries = given(&mut plan, ["x", "queries"], [rows, q]);
        let keys = given(&mut plan, ["y", "keys"], [batch * op.key_length, 2 * kv]);
        [("q", queries, 0..q), ("k", keys, 0..kv), ("v", keys, kv..2 * kv)]
    };
    let reads = views.map(|(slot, of, columns)| read(slot, plan.add_view(slot, of, columns))).to_vec();
    let out = plan.add("out", vec![rows, q], Dtype::Fp32, Role::Output);
    let lse = plan.add("lse", vec![batch, op.heads, op.length], Dtype::Fp32, Role::Activation);
    let label = format!(
        "{batch}x{}:{} {}/{}x{} {} softcap={:?} scale={}",
        op.length, op.key_length, op.heads, op.kv_heads, op.head_dim, op.window, op.softcap, op.scale
    );
    let writes = vec![write("out", out), write("lse", lse)];
    plan.steps.push(Step { op: op.into(), reads, writes, phase: Phase::Forward });
    finish(&label, plan, fills, out)
}

pub(super) fn all() -> Vec<Case> {
    let op = |heads: usize, kv_heads: usize, head_dim: usize, length: usize, causal: bool| Attention {
        heads,
        kv_heads,
        head_dim,
        length,
        key_length: length,
        window: if causal { Window::CAUSAL } else { Window::FULL },
        softcap: None,
        scale: (head_dim as f64).sqrt().recip(),
        form: Form::Fused,
    };
    let window = |left: Option<usize>, right: Option<usize>, op: Attention| Attention {
        window: Window { left, right },
        ..op
    };
    let keys = |key_length: usize, op: Attention| Attention { key_length, ..op };
    let capped = |cap: f64, scale: f64, op: Attention| Attention { softcap: Some(cap), scale, ..op };
    vec![
        one(2, op(4, 2, 8, 7, true), 1.5),
        one(1, op(3, 1, 24, 5, false), 1.0),
        one(1, op(6, 3, 40, 13, true), 3.0),
        one(1, op(2, 1, 8, 131, true), 1.0),
        one(3, window(Some(2), Some(0), op(4, 2, 8, 11, true)), 1.5),
        one(2, capped(2.5, 0.7, op(2, 1, 16, 13, true)), 2.0),
        one(1, window(Some(49), Some(0), capped(5.0, 0.2, op(4, 2, 24, 70, true))), 2.0),
        // More keys than queries, then fewer: the first queries see nothing.
        one(2, keys(13, op(4, 2, 8, 5, true)), 1.5),
        one(3, keys(9, op(2, 1, 16, 1, true)), 1.0),
        one(2, keys(5, op(3, 1, 8, 12, true)), 1.0),
        // Keys that no query sees, bounds on one side, and of different sizes.
        one(2, window(Some(3), None, keys(40, op(2, 1, 8, 7, false))), 1.0),
        one(1, window(None, Some(2), op(2, 2, 8, 9, false)), 1.0),
        one(1, window(Some(2), Some(4), keys(6, capped(2.0, 0.5, op(4, 2, 16, 17, false)))), 2.0),
    ]
}
