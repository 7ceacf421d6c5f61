//! The launches of the fused backward by warpgroups in two passes, for heads too wide for one.

use super::fused::fields;
use super::fused_backward::{SHARES, has_shares, int, of_type};
use super::hopper_backward::SECTION;
use super::{Attention, strides};
use crate::launch::{Argument, Launch};
use crate::ops::rowwise::{accumulate, count, kernel, pointer};
use crate::plan::Io;
use crate::spec::{KernelSpec, SpecValue, field};
use crate::tile::attention_backward_wide::WideBlocks;

/// The pass over keys, for their gradient and that of values, and the one over queries.
pub(super) fn passes(op: &Attention, io: &Io, blocks: WideBlocks) -> [Option<Launch>; 2] {
    [of_keys(op, io, blocks), of_queries(op, io, blocks)]
}

fn of_keys(op: &Attention, io: &Io, blocks: WideBlocks) -> Option<Launch> {
    let split_heads = has_shares(io);
    let [d_k, d_v] = if split_heads { SHARES } else { ["d_k", "d_v"] };
    let mut fields = fields(op, io);
    fields.extend([
        of_type(io, "d_k_type", d_k),
        of_type(io, "d_v_type", d_v),
        field("split_heads", "hs", SpecValue::Bool(split_heads)),
        int("keys", "k", WideBlocks::OWN_KEYS),
        int("queries", "q", blocks.queries),
        int("stages", "st", blocks.query_stages),
        widths(blocks.queries, op),
    ]);
    let (owners, group) = if split_heads { (op.heads, 1) } else { (op.kv_heads, op.heads / op.kv_heads) };
    let mut arguments = maps(op, io, blocks.queries, WideBlocks::OWN_KEYS)?.to_vec();
    arguments.extend([d_k, d_v, "lse", "delta"].map(|slot| pointer(io, slot)));
    let section = at_once(op, io, group * op.length);
    arguments.extend([section, op.heads, op.kv_heads, op.length, op.key_length].map(count));
    arguments.extend(strides::arguments(op, io, [d_k, d_v]));
    arguments.extend([d_k, d_v].map(|slot| accumulate(io, slot)));
    let spec = KernelSpec {
        template: "attention/backward_wide_keys",
        block: WideBlocks::THREADS as u32,
        shared_memory: blocks.keys_memory(op.head_dim) as u32,
        fields,
    };
    let grid = op.sequences(io) * owners * op.key_length.div_ceil(WideBlocks::OWN_KEYS);
    kernel(spec, [grid, 1, 1], arguments)
}

fn of_queries(op: &Attention, io: &Io, blocks: WideBlocks) -> Option<Launch> {
    let mut fields = fields(op, io);
    fields.extend([
        of_type(io, "d_q_type", "d_q"),
        int("queries", "q", WideBlocks::OWN_QUERIES),
        int("keys", "k", blocks.keys),
        int("k_stages", "ks", blocks.k_stages),
        int("v_stages", "vs", blocks.v_stages),
        widths(blocks.keys, op),
    ]);
    // Heads that share keys are neighbours, and worked on at a time.
    let group = op.heads / op.kv_heads;
    let section = (at_once(op, io, op.key_length) * group).min(op.heads * op.sequences(io));
    let mut arguments = vec![pointer(io, "d_q")];
    arguments.extend(maps(op, io, WideBlocks::OWN_QUERIES, blocks.keys)?);
    arguments.extend(["lse", "delta"].map(|slot| pointer(io, slot)));
    let sizes = [section, op.heads, op.kv_heads, op.length, op.key_length, op.sequences(io)];
    arguments.extend(sizes.map(count));
    arguments.extend(strides::arguments(op, io, ["d_q"]));
    arguments.push(accumulate(io, "d_q"));
    let spec = KernelSpec {
        template: "attention/backward_wide_queries",
        block: WideBlocks::THREADS as u32,
        shared_memory: blocks.queries_memory(op.head_dim) as u32,
        fields,
    };
    let grid = op.sequences(io) * op.heads * op.length.div_ceil(WideBlocks::OWN_QUERIES);
    kernel(spec, [grid, 1, 1], arguments)
}

/// q, k, v and d_out, with boxes of so many queries and keys.
fn maps(op: &Attention, io: &Io, queries: usize, keys: usize) -> Option<[Argument; 4]> {
    let map = |slot, rows| strides::tensor_map(op, io, slot, rows);
    Some([map("q", queries)?, map("k", keys)?, map("v", keys)?, map("d_out", queries)?])
}

/// How many heads L2 holds two operands of so many rows of: q and d_out of the heads of a group, or k and v.
fn at_once(op: &Attention, io: &Io, rows: usize) -> usize {
    let row = 2 * io.dtype("q").bytes() * op.head_dim;
    (SECTION / (rows * row)).max(1)
}

fn widths(step: usize, op: &Attention) -> crate::spec::SpecField {
    field("wgmma_widths", "", SpecValue::List(WideBlocks::product_widths(step, op.head_dim)))
}
