//! The launch of the fused backward's pass over keys by warpgroups.

use super::fused::fields;
use super::fused_backward::{SHARES, d_q_sum_len, has_shares, int, of_type};
use super::{Attention, strides};
use crate::launch::Launch;
use crate::ops::rowwise::{accumulate, count, elements, kernel, pointer};
use crate::plan::Io;
use crate::spec::{KernelSpec, SpecValue, field};
use crate::tile::attention_backward_hopper::WarpgroupBlock;

/// Bytes that blocks which run at a time should share: a large part of a Hopper's L2 cache.
pub(super) const SECTION: usize = 32 << 20;

/// Adds up d_q beside the gradients of keys and values; with `in_turns` in one order.
pub(super) fn of_keys(op: &Attention, io: &Io, block: WarpgroupBlock, in_turns: bool) -> Option<Launch> {
    let split_heads = has_shares(io);
    let [d_k, d_v] = if split_heads { SHARES } else { ["d_k", "d_v"] };
    let mut fields = fields(op, io);
    fields.extend([
        of_type(io, "d_k_type", d_k),
        of_type(io, "d_v_type", d_v),
        field("split_heads", "hs", SpecValue::Bool(split_heads)),
        field("ordered", "ordered", SpecValue::Bool(in_turns)),
        int("keys", "k", block.keys),
        int("queries", "q", block.queries),
        int("stages", "st", block.stages),
        int("score_stages", "ss", block.score_stages),
        field("early", "early", SpecValue::Bool(block.is_early)),
        int("registers", "r", block.working_registers(op.head_dim)),
        field("wgmma_widths", "", SpecValue::List(block.product_widths(op.head_dim))),
    ]);
    let map = |slot, rows| strides::tensor_map(op, io, slot, rows);
    let mut arguments = vec![
        map("q", block.queries)?,
        map("k", block.keys)?,
        map("v", block.keys)?,
        map("d_out", block.queries)?,
    ];
    arguments.extend([d_k, d_v, "d_q_sum", "lse", "delta"].map(|slot| pointer(io, slot)));
    arguments.push(elements(d_q_sum_len(op, op.sequences(io))));
    arguments.push(count(section(op, io, if split_heads { 1 } else { op.heads / op.kv_heads })));
    arguments.extend([op.heads, op.kv_heads, op.length, op.key_length].map(count));
    arguments.extend(strides::arguments(op, io, [d_k, d_v]));
    arguments.extend([d_k, d_v].map(|slot| accumulate(io, slot)));
    let owners = if split_heads { op.heads } else { op.kv_heads };
    let blocks = op.sequences(io) * owners * op.key_length.div_ceil(block.keys);
    let spec = KernelSpec {
        template: "attention/backward",
        block: block.threads() as u32,
        shared_memory: block.shared_memory(op.head_dim) as u32,
        fields,
    };
    kernel(spec, [blocks, 1, 1], arguments)
}

/// How many heads, of so many query heads each, L2 holds with q, d_out and the sums of d_q.
fn section(op: &Attention, io: &Io, group: usize) -> usize {
    let row = op.head_dim * (2 * io.dtype("q").bytes() + 4);
    (SECTION / (group * op.length * row)).max(1)
}
