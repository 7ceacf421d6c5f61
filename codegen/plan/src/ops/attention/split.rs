//! Launches of attention with its scores in memory: products by the vendor's library and a softmax between them.
//!
//! Sequences are worked on in chunks, so that the scores of a chunk are all that exist. Row `query` of head `head` of the
//! chunk's sequence s is row `(s heads + head) length + query` of them. Products are over all pairs of query and key: the
//! softmax writes zeros where the mask says no. Padding of rows is not read.

use super::super::rowwise::{
    BLOCK, MISSING, TOO_LARGE, UNEVEN, WARP, aligned, count, elements, kernel, launches, pointer,
};
use super::{Attention, mask_and_scale};
use crate::buffer::BufferId;
use crate::dtype::Dtype;
use crate::launch::{Argument, Batch, Epilogue, Gemm, Launch, Lowered, Operand};
use crate::plan::{Io, Mode};
use crate::spec::{KernelSpec, SpecField, SpecValue, field};

/// Most chunks in a step: each is several launches.
const CHUNKS: usize = 1 << 16;

/// What `lower` says of operands that no one product takes.
const MIXED: Lowered =
    Lowered::NoKernel("queries, keys, values and the gradient of `out` must be of one type");

/// What it says of heads that do not lie in the rows of tokens.
const BY_HEAD: Lowered =
    Lowered::NoKernel("scores in memory are computed only where the heads of a token are one row");

pub(super) fn lower(op: &Attention, sequences: usize, io: &Io) -> Lowered {
    if ["q", "k", "v", "out", "lse", "scores"].into_iter().any(|slot| !io.has(slot)) {
        return MISSING;
    }
    in_chunks(op, sequences, io, &["q", "k", "v"], |chunk| {
        let scores = chunk.scores("scores")?;
        let p = chunk.scores(narrow(io, "probabilities", "scores"))?;
        let (q, k, v) = (chunk.of_queries("q")?, chunk.of_keys("k")?, chunk.of_keys("v")?);
        let (queries, keys, head_dim) = (op.length, op.key_length, op.head_dim);
        Some(vec![
            Some(chunk.product(q, k.turned(), scores, None, (queries, keys, head_dim))),
            chunk.softmax(),
            Some(chunk.product(p, v, chunk.of_queries("out")?, None, (queries, head_dim, keys))),
        ])
    })
}

pub(super) fn lower_backward(op: &Attention, sequences: usize, io: &Io) -> Lowered {
    let slots = ["q", "k", "v", "out", "lse", "d_out", "d_q", "d_k", "d_v", "scores", "d_scores"].into_iter();
    if slots.clone().any(|slot| !io.has(slot)) {
        return MISSING;
    }
    in_chunks(op, sequences, io, &["q", "k", "v", "d_out"], |chunk| {
        let (scores, d_scores) = (chunk.scores("scores")?, chunk.scores("d_scores")?);
        let p = chunk.scores(narrow(io, "probabilities", "scores"))?;
        let d_s = chunk.scores(narrow(io, "d_scores_narrow", "d_scores"))?;
        let (q, d_out, d_q) = (chunk.of_queries("q")?, chunk.of_queries("d_out")?, chunk.of_queries("d_q")?);
        let (k, v) = (chunk.of_keys("k")?, chunk.of_keys("v")?);
        let (queries, keys, head_dim) = (op.length, op.key_length, op.head_dim);
        let adds = |slot| io.mode(slot) != Some(Mode::Overwrite);
        let mut all = vec![
            Some(chunk.product(q, k.turned(), scores, None, (queries, keys, head_dim))),
            Some(chunk.product(d_out, v.turned(), d_scores, None, (queries, keys, head_dim))),
            chunk.softmax_backward(),
        ];
        // The heads of a group share keys and values: the first one's gradient is written, the others' are added.
        for member in 0..chunk.group() {
            for (slot, left, right) in [("d_v", p, d_out), ("d_k", d_s, q)] {
                let to = chunk.of_keys(slot)?;
                let c = (member > 0 || adds(slot)).then_some(to.first.buffer);
                let (left, right) = (left.of_member(member), right.of_member(member));
                all.push(Some(chunk.product(left.turned(), right, to, c, (keys, head_dim, queries))));
            }
        }
        let c = adds("d_q").then_some(d_q.first.buffer);
        all.push(Some(chunk.product(d_s, k, d_q, c, (queries, head_dim, keys))));
        Some(all)
    })
}

/// The slot that holds scores as an operand: its own where operands are narrow, else that of the fp32 ones.
fn narrow(io: &Io, slot: &'static str, wide: &'static str) -> &'static str {
    if io.dtype("q") == Dtype::Fp32 { wide } else { slot }
}

/// The launches of all chunks; `operands` are the slots that products read.
fn in_chunks(
    op: &Attention,
    sequences: usize,
    io: &Io,
    operands: &[&str],
    one: impl Fn(&Chunk) -> Option<Vec<Option<Launch>>>,
) -> Lowered {
    if !aligned(io, &["q", "k", "v", "out", "d_out", "d_q", "d_k", "d_v", "scores"]) {
        return UNEVEN;
    }
    if operands.iter().any(|slot| io.dtype(slot) != io.dtype("q")) {
        return MIXED;
    }
    if op.heads > 1 && op.is_by_head(io.columns("q")) {
        return BY_HEAD;
    }
    let (total, sequences) = (op.sequences(io), sequences.max(1));
    if total.div_ceil(sequences) > CHUNKS {
        return TOO_LARGE;
    }
    let mut every = Vec::new();
    for first in (0..total).step_by(sequences) {
        let Some(of_chunk) = one(&Chunk { op, io, first, n: sequences.min(total - first) }) else {
            return MISSING;
        };
        every.extend(of_chunk);
    }
    launches(every)
}

/// Neighbouring sequences.
struct Chunk<'a> {
    op: &'a Attention,
    io: &'a Io<'a>,
    /// The first one.
    first: usize,
    /// How many.
    n: usize,
}

/// A matrix for each sequence of a chunk and each head: where the first is, and how far it is from one to the next of
/// the sequences, of the kv heads, and of the query heads in a kv head's group, in elements.
#[derive(Clone, Copy)]
struct Matrices {
    first: Operand,
    steps: [usize; 3],
    /// From a query head to the next one of its group, in rows and columns.
    member: (usize, usize),
    /// How many there are along each of the steps.
    counts: [usize; 3],
}

impl Matrices {
    fn turned(self) -> Self {
        Self { first: Operand { transposed: true, ..self.first }, ..self }
    }

    /// Those of the same member of each group, in place of the first one's.
    fn of_member(self, member: usize) -> Self {
        let (row, column) = (self.first.row + member * self.member.0, member * self.member.1);
        Self { first: Operand { row, column, ..self.first }, ..self }
    }
}

impl Chunk<'_> {
    /// Query heads per kv head.
    fn group(&self) -> usize {
        self.op.heads / self.op.kv_heads
    }

    /// Rows of scores.
    fn rows(&self) -> usize {
        self.n * self.op.heads * self.op.length
    }

    fn tokens(&self, slot: &str, length: usize, kv_step: usize, step: usize) -> Option<Matrices> {
        let first = Operand { row: self.first * length, ..Operand::plain(self.io.id(slot)?) };
        let steps = [length * self.io.row_stride(slot), kv_step, step];
        let counts = [self.n, self.op.kv_heads, if step == 0 { 1 } else { self.group() }];
        Some(Matrices { first, steps, member: (0, step), counts })
    }

    /// Rows of tokens with all query heads in each.
    fn of_queries(&self, slot: &str) -> Option<Matrices> {
        self.tokens(slot, self.op.length, self.group() * self.op.head_dim, self.op.head_dim)
    }

    /// Rows of tokens with all kv heads in each, which the query heads of a group share.
    fn of_keys(&self, slot: &str) -> Option<Matrices> {
        self.tokens(slot, self.op.key_length, self.op.head_dim, 0)
    }

    /// The scores of the chunk.
    fn scores(&self, slot: &str) -> Option<Matrices> {
        let (first, step) = (Operand::plain(self.io.id(slot)?), self.op.length * self.io.row_stride(slot));
        let steps = [self.op.heads * step, self.group() * step, step];
        let counts = [self.n, self.op.kv_heads, self.group()];
        Some(Matrices { first, steps, member: (self.op.length, 0), counts })
    }

    /// A product for each matrix of `d`.
    fn product(
        &self,
        a: Matrices,
        b: Matrices,
        d: Matrices,
        c: Option<BufferId>,
        (m, n, k): (usize, usize, usize),
    ) -> Launch {
        let steps = a.steps.into_iter().zip(b.steps).zip(d.steps);
        let batches = d.counts.into_iter().zip(steps).filter(|(count, _)| *count > 1);
        let batches = batches.map(|(count, ((a, b), d))| Batch { count, a, b, d }).collect();
        let (buffer, row) = (d.first.buffer, d.first.row);
        Launch::Gemm(Gemm {
            a: a.first,
            b: b.first,
            c,
            bias: None,
            d: buffer,
            epilogue: Epilogue::None,
            row,
            batches,
            m,
            n,
            k,
        })
    }

    /// From scores to probabilities, and their log-sum-exp.
    fn softmax(&self) -> Option<Launch> {
        let p = narrow(self.io, "probabilities", "scores");
        let mut fields = vec![field("p_type", "", SpecValue::Type(self.io.dtype(p)))];
        fields.extend(mask_and_scale(self.op));
        let mut arguments = [p, "lse", "scores"].map(|slot| pointer(self.io, slot)).to_vec();
        arguments.push(elements(self.first * self.op.heads * self.op.length));
        arguments.extend(self.sizes());
        self.of_rows("attention/softmax_forward", fields, arguments)
    }

    /// From scores and the gradient of the probabilities to probabilities and the gradient of the scores.
    fn softmax_backward(&self) -> Option<Launch> {
        let (io, op) = (self.io, self.op);
        let p = narrow(io, "probabilities", "scores");
        let d_s = narrow(io, "d_scores_narrow", "d_scores");
        let mut fields = vec![
            field("p_type", "", SpecValue::Type(io.dtype(p))),
            field("out_type", "", SpecValue::Type(io.dtype("out"))),
            field("heads", "h", SpecValue::Int(op.heads as i64)),
            field("head_dim", "d", SpecValue::Int(op.head_dim as i64)),
        ];
        fields.extend(mask_and_scale(op));
        let slots = [p, d_s, "scores", "d_scores", "lse", "out", "d_out"];
        let mut arguments = slots.map(|slot| pointer(io, slot)).to_vec();
        arguments.push(count(self.first));
        arguments.extend(self.sizes());
        arguments.extend(["out", "d_out"].map(|slot| elements(io.row_stride(slot))));
        self.of_rows("attention/softmax_backward", fields, arguments)
    }

    /// Rows of scores, queries of a sequence, keys in each row, and from one to the next.
    fn sizes(&self) -> [Argument; 4] {
        let Attention { length, key_length, .. } = *self.op;
        let stride = elements(self.io.row_stride("scores"));
        [count(self.rows()), count(length), count(key_length), stride]
    }

    /// A kernel that gives each row of scores to a warp.
    fn of_rows(
        &self,
        template: &'static str,
        fields: Vec<SpecField>,
        arguments: Vec<Argument>,
    ) -> Option<Launch> {
        let spec = KernelSpec { template, block: BLOCK, shared_memory: 0, fields };
        kernel(spec, [self.rows().div_ceil(BLOCK as usize / WARP), 1, 1], arguments)
    }
}
