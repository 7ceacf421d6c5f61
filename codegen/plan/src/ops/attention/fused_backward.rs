//! Launches of the fused backward, in one pass over keys or in one over keys and one over queries.

use super::fused::{NO_ROOM, fields, obstacle};
use super::{Attention, AttentionBackward, BackwardForm, hopper_backward, hopper_wide_backward, strides};
use crate::arch::Arch;
use crate::launch::{Argument, Launch, Lowered};
use crate::ops::rowwise::{
    BLOCK, MISSING, TOO_LARGE, UNEVEN, WARP, WIDTH, accumulate, aligned, count, elements, kernel, launches,
    pointer,
};
use crate::plan::Io;
use crate::spec::{KernelSpec, SpecField, SpecValue, field};
use crate::tile::Tile;
use crate::tile::attention_backward::{KeyBlock, QueryBlock};
use crate::tile::attention_backward_hopper::{WarpgroupBlock, is_in_one_pass};
use crate::tile::attention_backward_wide::WideBlocks;
use std::ops::Range;

/// Slots of the scratch for shares of the gradients of keys and values, where blocks own the keys of one query head. Their
/// following sum has one order.
pub const SHARES: [&str; 2] = ["d_k_shares", "d_v_shares"];

/// Rows of a fragment, of which `d_q_sum` holds whole ones.
const FRAGMENT_ROWS: usize = 16;

/// Queries that at least one count of turns is for.
const TURN_QUERIES: usize = 64;

/// Shape of the scratch into which blocks add the gradient of queries: whole fragments of each sequence and head, and where
/// they take turns, in whole rows, a 32-bit count for each of their tiles of queries.
#[must_use]
pub fn d_q_sum_shape(op: &Attention, sequences: usize, in_turns: bool) -> Vec<usize> {
    let turns = if in_turns { sequences * op.heads * op.length.div_ceil(TURN_QUERIES) } else { 0 };
    vec![d_q_sum_len(op, sequences) / op.head_dim + turns.div_ceil(op.head_dim), op.head_dim]
}

/// Sums in it.
pub(super) fn d_q_sum_len(op: &Attention, sequences: usize) -> usize {
    sequences * op.heads * op.length.next_multiple_of(FRAGMENT_ROWS) * op.head_dim
}

/// Shape of each scratch for shares: the columns of a query head hold what it contributes to the head of its keys.
#[must_use]
pub fn shares_shape(op: &Attention, sequences: usize) -> Vec<usize> {
    vec![sequences * op.key_length, op.heads * op.head_dim]
}

/// Bytes that sums which blocks share move through memory: shares are written and read, and the sum of d_q is set to
/// zero, read and written where it is added to, and read.
#[allow(clippy::cast_precision_loss)]
pub(super) fn sum_bytes(io: &Io) -> f64 {
    let passes = SHARES.map(|slot| (slot, 2.0)).into_iter().chain([("d_q_sum", 4.0)]);
    let bytes =
        passes.filter_map(|(slot, passes)| Some(passes * io.plan.buffer(io.id(slot)?).bytes() as f64));
    bytes.sum()
}

pub(super) fn lower(backward: &AttentionBackward, io: &Io, arch: &Arch) -> Lowered {
    let op = &backward.attention;
    let gradients = ["d_q", "d_k", "d_v"];
    if gradients.iter().chain(&["delta", "lse"]).any(|slot| !io.has(slot)) {
        return MISSING;
    }
    if let Some(why) = obstacle(op, io, &["q", "k", "v", "out", "d_out"]) {
        return why;
    }
    if !aligned(io, &gradients) {
        return UNEVEN;
    }
    if !strides::fit(op, io, &gradients) || (has_shares(io) && !strides::fit(op, io, &SHARES)) {
        return TOO_LARGE;
    }
    let is_free = backward.form == BackwardForm::Free && io.has("d_q_sum");
    let for_tiles = op.for_tiles(io.dtype("q"), op.sequences(io), !is_free);
    let blocks = (KeyBlock::of(&for_tiles, arch), QueryBlock::of(&for_tiles, arch));
    let (Some(keys), Some(queries)) = blocks else { return NO_ROOM };
    if has_shares(io) && !SHARES.iter().all(|slot| io.has(slot)) {
        return MISSING;
    }
    if let Some(block) = WarpgroupBlock::of(&for_tiles, arch)
        && io.has("d_q_sum")
    {
        let keys = hopper_backward::of_keys(op, io, block, !is_free);
        // The first of a turn replaces the sums.
        let sums = d_q_sum_len(op, op.sequences(io));
        let zeros = if is_free { 0..sums } else { sums..io.buffer("d_q_sum").len() };
        return launches([delta(op, io, Some(zeros)), keys, round(op, io, true)]);
    }
    if let Some(blocks) = WideBlocks::of(&for_tiles, arch)
        && !is_in_one_pass(op.head_dim, op.softcap.is_some())
    {
        let [keys, queries] = hopper_wide_backward::passes(op, io, blocks);
        let mut all = vec![delta(op, io, None), keys];
        all.extend(has_shares(io).then(|| round(op, io, false)));
        all.push(queries);
        return launches(all);
    }
    let zeros = is_free.then(|| 0..io.buffer("d_q_sum").len());
    let mut all = vec![delta(op, io, zeros), of_keys(op, io, keys, is_free)];
    all.extend((is_free || has_shares(io)).then(|| round(op, io, is_free)));
    all.extend((!is_free).then(|| of_queries(op, io, queries)));
    launches(all)
}

/// Do blocks own the keys of one query head?
pub(super) fn has_shares(io: &Io) -> bool {
    SHARES.iter().any(|slot| io.has(slot))
}

pub(super) fn int(name: &'static str, label: &'static str, value: usize) -> SpecField {
    field(name, label, SpecValue::Int(value as i64))
}

pub(super) fn of_type(io: &Io, name: &'static str, slot: &str) -> SpecField {
    field(name, "", SpecValue::Type(io.dtype(slot)))
}

fn spec(template: &'static str, threads: usize, shared_memory: usize, fields: Vec<SpecField>) -> KernelSpec {
    KernelSpec { template, block: threads as u32, shared_memory: shared_memory as u32, fields }
}

/// Also sets so much of `d_q_sum` to zero.
fn delta(op: &Attention, io: &Io, zeros: Option<Range<usize>>) -> Option<Launch> {
    let lanes = (op.head_dim / WIDTH).next_power_of_two().min(WARP);
    let fields = vec![of_type(io, "type", "q"), int("head_dim", "d", op.head_dim), int("lanes", "l", lanes)];
    let n = op.sequences(io) * op.heads * op.length;
    let sums = zeros.as_ref().and_then(|_| io.id("d_q_sum"));
    let zeros = zeros.unwrap_or_default();
    let mut arguments = vec![
        pointer(io, "delta"),
        Argument::Buffer(sums),
        pointer(io, "out"),
        pointer(io, "d_out"),
        elements(n),
        elements(zeros.start),
        elements(zeros.end),
        count(op.heads),
        count(op.length),
    ];
    arguments.extend(strides::arguments(op, io, ["out", "d_out"]));
    let spec = spec("attention/backward_delta", BLOCK as usize, 0, fields);
    kernel(spec, [n.div_ceil(BLOCK as usize / lanes), 1, 1], arguments)
}

fn of_keys(op: &Attention, io: &Io, block: KeyBlock, with_d_q: bool) -> Option<Launch> {
    let split_heads = has_shares(io);
    let [d_k, d_v] = if split_heads { SHARES } else { ["d_k", "d_v"] };
    let mut fields = fields(op, io);
    fields.extend([
        of_type(io, "d_k_type", d_k),
        of_type(io, "d_v_type", d_v),
        field("with_d_q", "dq", SpecValue::Bool(with_d_q)),
        field("split_heads", "hs", SpecValue::Bool(split_heads)),
        int("keys", "k", block.keys),
        int("queries", "q", block.queries),
        int("key_warps", "kw", block.key_warps),
        int("query_warps", "qw", block.query_warps),
        int("column_warps", "cw", block.column_warps(op.head_dim)),
        int("stages", "st", block.stages),
        field("v_in_registers", "vr", SpecValue::Bool(block.v_in_registers)),
    ]);
    let d_q_sum = if with_d_q { io.id("d_q_sum") } else { None };
    let mut arguments = vec![pointer(io, d_k), pointer(io, d_v), Argument::Buffer(d_q_sum)];
    arguments.extend(["q", "k", "v", "d_out", "lse", "delta"].map(|slot| pointer(io, slot)));
    arguments.extend([op.heads, op.kv_heads, op.length, op.key_length].map(count));
    arguments.extend(strides::arguments(op, io, [d_k, d_v, "q", "k", "v", "d_out"]));
    arguments.extend([d_k, d_v].map(|slot| accumulate(io, slot)));
    let owners = if split_heads { op.heads } else { op.kv_heads };
    let blocks = op.sequences(io) * owners * op.key_length.div_ceil(block.keys);
    let shared_memory = block.shared_memory(op.head_dim, with_d_q);
    let spec = spec("attention/backward_keys", block.threads(), shared_memory, fields);
    kernel(spec, [blocks, 1, 1], arguments)
}

fn of_queries(op: &Attention, io: &Io, block: QueryBlock) -> Option<Launch> {
    let mut fields = fields(op, io);
    fields.extend([
        of_type(io, "d_q_type", "d_q"),
        int("queries", "q", block.queries),
        int("keys", "k", block.keys),
    ]);
    let mut arguments: Vec<_> =
        ["d_q", "q", "k", "v", "d_out", "lse", "delta"].map(|slot| pointer(io, slot)).to_vec();
    arguments.extend([op.heads, op.kv_heads, op.length, op.key_length].map(count));
    arguments.extend(strides::arguments(op, io, ["d_q", "q", "k", "v", "d_out"]));
    arguments.push(accumulate(io, "d_q"));
    let blocks = op.sequences(io) * op.heads * op.length.div_ceil(block.queries);
    let spec = spec("attention/backward_queries", block.threads(), block.shared_memory(op.head_dim), fields);
    kernel(spec, [blocks, 1, 1], arguments)
}

/// Turns sums of d_q and shares of d_k and d_v, of what there is, into gradients.
fn round(op: &Attention, io: &Io, with_d_q: bool) -> Option<Launch> {
    let shares = if has_shares(io) { op.heads / op.kv_heads } else { 0 };
    // What a kernel does not write has the type of what it does.
    let of_type = |name, slot: &str, is_written: bool| {
        let first = if with_d_q { "d_q" } else { "d_k" };
        let unused = SpecValue::UnusedType(io.dtype(first));
        field(name, "", if is_written { SpecValue::Type(io.dtype(slot)) } else { unused })
    };
    let fields = vec![
        of_type("d_q_type", "d_q", with_d_q),
        of_type("d_k_type", "d_k", shares > 0),
        of_type("d_v_type", "d_v", shares > 0),
        int("head_dim", "d", op.head_dim),
        field("scale", "s", SpecValue::Float(op.scale)),
        field("with_d_q", "dq", SpecValue::Bool(with_d_q)),
        int("shares", "hs", shares),
    ];
    // A thread owns 8 columns of two rows of d_q, or of one of d_k or d_v.
    let n_sums = if with_d_q { d_q_sum_len(op, op.sequences(io)) / (2 * WIDTH) } else { 0 };
    let n_shares = if shares > 0 { io.buffer("d_k").len() / WIDTH } else { 0 };
    let mut arguments = ["d_q", "d_k", "d_v"].map(|slot| pointer(io, slot)).to_vec();
    arguments.push(Argument::Buffer(if with_d_q { io.id("d_q_sum") } else { None }));
    arguments.extend(SHARES.map(|slot| pointer(io, slot)));
    arguments.extend([n_sums, n_shares].map(elements));
    arguments.extend([op.heads, op.kv_heads, op.length, op.key_length, op.blind()].map(count));
    arguments.extend(strides::arguments(op, io, ["d_q", "d_k", "d_v"]));
    arguments.extend(["d_q", "d_k", "d_v"].map(|slot| accumulate(io, slot)));
    let spec = spec("attention/backward_round", BLOCK as usize, 0, fields);
    kernel(spec, [(n_sums + 2 * n_shares).div_ceil(BLOCK as usize), 1, 1], arguments)
}
