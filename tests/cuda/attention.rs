//! The fused kernels of attention: heads of any size, blocks of every kind, sums in every order.

use super::compile::compile;
use super::{Text, texts};
use kernwright_plan::Options;
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::buffer::Role;
use kernwright_plan::dtype::{self, Dtype};
use kernwright_plan::kernels::of_plan;
use kernwright_plan::ops::Op;
use kernwright_plan::ops::attention::{Attention, AttentionBackward, BackwardForm, Form, Window};
use kernwright_plan::passes::{attention, split_heads};
use kernwright_plan::plan::{Phase, Plan, Read, Step, Write};
use kernwright_plan::spec::KernelSpec;
use kernwright_plan::tape::{read, write};

/// The fused kernels of attention for heads of each of these sizes, alternately of each narrow type; with every GPU's tiles, and
/// with and without what else decides their text.
fn of_attention(arch: &Arch, head_dims: impl Iterator<Item = usize>) -> Vec<Text> {
    let narrow: Vec<Dtype> = dtype::ALL.iter().filter(|row| row.bytes == 2).map(|row| row.dtype).collect();
    let mut specs = Vec::new();
    for (index, head_dim) in head_dims.enumerate() {
        let dtype = narrow[index % narrow.len()];
        let is_plain = index % 4 < 2;
        let attention = Attention {
            heads: 3,
            kv_heads: 1,
            head_dim,
            length: 5,
            key_length: 5,
            window: if is_plain { Window::CAUSAL } else { Window { left: Some(2), right: Some(4) } },
            softcap: (!is_plain).then_some(30.0),
            scale: 0.3,
            form: Form::Fused,
        };
        for options in heads_and_orders() {
            specs.extend(of_plan(&attention_step(&attention, dtype, &options), arch));
        }
    }
    specs.sort_by_key(KernelSpec::name);
    specs.dedup_by_key(|spec| spec.name());
    texts(specs, arch)
}

/// Blocks of attention's gradient for a group of heads and for each of them, with sums in any order, and in one by either way.
pub(super) fn heads_and_orders() -> Vec<Options> {
    let orders = [(true, false), (true, true), (false, false)].map(|(deterministic, in_turns)| Options {
        deterministic,
        in_turns,
        ..Options::default()
    });
    orders.iter().flat_map(split_heads::both).collect()
}

/// Attention and its gradient, whose operands are of one type.
pub(super) fn attention_step(op: &Attention, dtype: Dtype, options: &Options) -> Plan {
    let (q, kv) = (op.heads * op.head_dim, op.kv_heads * op.head_dim);
    let mut plan = Plan::default();
    let mut add = |name: &str, columns: usize| plan.add(name, vec![op.length, columns], dtype, Role::Input);
    let operands = [("q", q), ("k", kv), ("v", kv), ("out", q), ("d_out", q)];
    let [q, k, v, out, d_out] = operands.map(|(name, columns)| add(name, columns));
    let [d_q, d_k, d_v] =
        [("d_q", operands[0].1), ("d_k", kv), ("d_v", kv)].map(|(name, columns)| add(name, columns));
    let lse = plan.add("lse", vec![1, op.heads, op.length], Dtype::Fp32, Role::Input);
    let backward = AttentionBackward { attention: op.clone(), form: BackwardForm::Ordered };
    let mut step = |op: Op, reads: Vec<Read>, writes: Vec<Write>, phase| {
        plan.steps.push(Step { op, reads, writes, phase })
    };
    step(
        op.clone().into(),
        vec![read("q", q), read("k", k), read("v", v)],
        vec![write("out", out), write("lse", lse)],
        Phase::Forward,
    );
    step(
        backward.into(),
        vec![
            read("q", q),
            read("k", k),
            read("v", v),
            read("out", out),
            read("lse", lse),
            read("d_out", d_out),
        ],
        vec![write("d_q", d_q), write("d_k", d_k), write("d_v", d_v)],
        Phase::Backward,
    );
    attention::choose(plan, options)
}

/// Heads of odd sizes, on a GPU with much shared memory and one with little, and wide ones on Hopper; presets have the usual
/// ones.
#[test]
fn attention_of_odd_heads_compiles_with_large_and_small_tiles() {
    let odd = [40, 80, 96, 192];
    for (name, head_dims) in [("sm_80", odd), ("sm_86", odd), ("sm_90a", [192, 200, 256, 128])] {
        let arch = arch::find(name).unwrap_or_else(|| panic!("no GPU `{name}`"));
        compile("attention", &of_attention(arch, head_dims.into_iter()));
    }
}

#[test]
#[ignore = "an hour"]
fn attention_of_every_head_compiles_for_every_gpu() {
    for arch in arch::ALL {
        compile("attention", &of_attention(arch, (8..=256).step_by(8)));
    }
}
