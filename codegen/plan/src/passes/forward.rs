//! Shape -> the forward steps, all in fp32 and unfused: what is computed, not how.

use crate::buffer::{BufferId, Role};
use crate::dtype::Dtype;
use crate::ops::Op;
use crate::ops::activation::Activation;
use crate::ops::add::Add;
use crate::ops::attention::{Attention, Form};
use crate::ops::embedding::Embedding;
use crate::ops::head::{Head as HeadOp, Logits};
use crate::ops::head_loss::{HOST_CHUNK, HeadLoss, chunk};
use crate::ops::linear::Linear;
use crate::ops::norm::{Norm, NormKind};
use crate::ops::positions::Positions;
use crate::ops::rope::Rope;
use crate::ops::scale::Scale;
use crate::options::{Options, RunsOn};
use crate::plan::{Mode, Phase, Plan, Read, Step, Write};
use crate::shape::{LayerKind, Parallel, QkNorm, QkNormOrder, Shape};
use crate::tape::{read, write};
use std::collections::HashMap;

/// What stands at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The loss over all counted targets.
    Loss,
    /// Logits of this many positions.
    Logits(usize),
}

/// The forward pass of `batch` sequences of `length` tokens.
#[must_use]
pub fn build(shape: &Shape, options: &Options, batch: usize, length: usize, head: Head) -> Plan {
    let padded = if options.padded { shape.padded() } else { shape.clone() };
    let mut forward = Forward {
        shape,
        padded: &padded,
        plan: Plan::default(),
        parameters: HashMap::new(),
        rows: batch * length,
        length,
    };
    for parameter in shape.parameters() {
        let dims = if options.padded { parameter.padded } else { parameter.shape };
        let id = forward.plan.add(&parameter.name, dims, Dtype::Fp32, Role::Parameter);
        forward.parameters.insert(parameter.name, id);
    }
    let mut x = forward.embed();
    for layer in 0..shape.layers {
        x = forward.block(layer, x);
    }
    let x = forward.norm("final_norm", x);
    forward.head(x, head, options);
    forward.plan
}

struct Forward<'a> {
    shape: &'a Shape,
    /// The same with the dimensions that buffers have.
    padded: &'a Shape,
    plan: Plan,
    parameters: HashMap<String, BufferId>,
    rows: usize,
    length: usize,
}

impl Forward<'_> {
    fn activation(&mut self, name: &str, shape: Vec<usize>) -> BufferId {
        self.plan.add(name, shape, Dtype::Fp32, Role::Activation)
    }

    fn input(&mut self, name: &str, n: usize, dtype: Dtype) -> BufferId {
        self.plan.add(name, vec![n], dtype, Role::Input)
    }

    fn emit(&mut self, op: impl Into<Op>, reads: Vec<Read>, writes: Vec<Write>) {
        self.plan.steps.push(Step { op: op.into(), reads, writes, phase: Phase::Forward });
    }

    fn parameter(&self, name: &str, slot: &'static str) -> Option<Read> {
        self.parameters.get(name).map(|id| read(slot, *id))
    }

    fn embed(&mut self) -> BufferId {
        let tokens = self.input("tokens", self.rows, Dtype::I32);
        let order = self.input("token_order", self.rows, Dtype::I32);
        let mut x = self.activation("embedding", vec![self.rows, self.shape.d_model]);
        let mut reads = vec![read("tokens", tokens)];
        reads.extend(self.parameter("embedding.weight", "table"));
        reads.push(read("token_order", order));
        let op = Embedding { vocab: self.shape.vocab, scale: self.shape.embedding_scale };
        self.emit(op, reads, vec![write("y", x)]);
        if let Some(table) = self.parameter("positions.weight", "table") {
            let y = self.activation("embedding.positions", vec![self.rows, self.shape.d_model]);
            self.emit(Positions { length: self.length }, vec![read("x", x), table], vec![write("y", y)]);
            x = y;
        }
        if self.shape.norm.embedding { self.norm("embedding_norm", x) } else { x }
    }

    /// Normalises the rows of `x` with the parameters called `name`.
    fn norm(&mut self, name: &str, x: BufferId) -> BufferId {
        let columns = self.plan.buffer(x).columns();
        let y = self.activation(name, vec![self.rows, columns]);
        self.norm_into(name, x, y, self.shape.norm.kind, 1, columns);
        y
    }

    /// Normalises `groups` vectors in each row of `x`, of which `count` columns are not padding.
    fn norm_into(
        &mut self,
        name: &str,
        x: BufferId,
        y: BufferId,
        kind: NormKind,
        groups: usize,
        count: usize,
    ) {
        let rstd = self.activation(&format!("{name}.rstd"), vec![self.rows, groups]);
        let mut reads = vec![read("x", x)];
        let mut writes = vec![write("y", y), write("rstd", rstd)];
        reads.extend(self.parameter(&format!("{name}.weight"), "weight"));
        reads.extend(self.parameter(&format!("{name}.bias"), "bias"));
        if kind.has_bias() {
            let mean = self.activation(&format!("{name}.mean"), vec![self.rows, groups]);
            writes.push(write("mean", mean));
        }
        let (epsilon, weight) = (self.shape.norm.epsilon, self.shape.norm.weight);
        self.emit(Norm { kind, epsilon, weight, groups, count }, reads, writes);
    }

    fn linear(&mut self, name: &str, x: BufferId, outputs: usize) -> BufferId {
        let y = self.activation(name, vec![self.rows, outputs]);
        let mut reads = vec![read("x", x)];
        reads.extend(self.parameter(&format!("{name}.weight"), "weight"));
        reads.extend(self.parameter(&format!("{name}.bias"), "bias"));
        self.emit(Linear::default(), reads, vec![write("y", y)]);
        y
    }

    /// One layer: attention and feed-forward, one after the other or both on `x`.
    fn block(&mut self, layer: usize, x: BufferId) -> BufferId {
        let kind = self.shape.layer_kind(layer);
        let at = |half: &str| format!("layers.{layer}.{half}");
        let (attention, feed_forward) = (at("attention"), at("feed_forward"));
        let before = self.shape.norm.placement.before();
        let input = |forward: &mut Self, half: &str, x| {
            if before { forward.norm(&format!("{half}_norm"), x) } else { x }
        };
        let normed = input(self, &attention, x);
        // Both norms of `x` stand first, so that backwards they come last and may add to the gradient in place.
        let both = match self.shape.parallel {
            Parallel::No => None,
            Parallel::TwoNorms => Some(input(self, &feed_forward, x)),
            Parallel::OneNorm => Some(normed),
        };
        let projected = self.attention(&attention, normed, kind);
        let y = self.join(&attention, x, projected);
        let normed = both.unwrap_or_else(|| input(self, &feed_forward, y));
        let down = self.feed_forward(&feed_forward, normed);
        self.join(&feed_forward, y, down)
    }

    /// Adds what a half of a block made to the residual stream.
    fn join(&mut self, half: &str, x: BufferId, mut made: BufferId) -> BufferId {
        if self.shape.norm.placement.after() {
            made = self.norm(&format!("{half}_post_norm"), made);
        }
        let columns = vec![self.rows, self.shape.d_model];
        if self.shape.residual_scale != 1.0 {
            let scaled = self.activation(&format!("{half}.scaled"), columns.clone());
            let op = Scale { factor: self.shape.residual_scale };
            self.emit(op, vec![read("x", made)], vec![write("y", scaled)]);
            made = scaled;
        }
        let y = self.activation(&format!("{half}.residual"), columns);
        self.emit(Add, vec![read("a", x), read("b", made)], vec![write("y", y)]);
        y
    }

    fn attention(&mut self, at: &str, x: BufferId, kind: LayerKind) -> BufferId {
        let (declared, attention) = (self.shape.attention, self.padded.attention);
        let (q_columns, kv_columns) = (attention.q_columns(), attention.kv_columns());
        let qk_columns = q_columns + kv_columns;
        let qkv = self.linear(&format!("{at}.qkv"), x, attention.qkv_columns());
        let v = self.plan.add_view(format!("{at}.v"), qkv, qk_columns..attention.qkv_columns());
        let mut qk = self.plan.add_view(format!("{at}.qk"), qkv, 0..qk_columns);
        let norm_is = |order: QkNormOrder| declared.qk_norm.filter(|norm| norm.order == order);
        if let Some(norm) = norm_is(QkNormOrder::Before) {
            qk = self.qk_norm(at, qk, norm);
        }
        if let Some(rope) = kind.rope {
            let rope = Rope {
                theta: rope.theta,
                scaling: rope.scaling,
                rotary: rope.rotary(declared.head_dim).unwrap_or(declared.head_dim),
                head_dim: attention.head_dim,
                length: self.length,
                inverse: false,
            };
            self.emit(rope, vec![read("x", qk)], vec![write("y", qk)]);
        }
        if let Some(norm) = norm_is(QkNormOrder::After) {
            qk = self.qk_norm(at, qk, norm);
        }
        let q = self.plan.add_view(format!("{at}.q"), qk, 0..q_columns);
        let k = self.plan.add_view(format!("{at}.k"), qk, q_columns..qk_columns);
        let out = self.activation(&format!("{at}.out"), vec![self.rows, q_columns]);
        let lse_shape = vec![self.rows / self.length, attention.heads, self.length];
        let lse = self.activation(&format!("{at}.lse"), lse_shape);
        let window = kind.window.unwrap_or_default();
        let op = Attention {
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            length: self.length,
            key_length: self.length,
            window: if attention.causal { window.causal() } else { window },
            softcap: attention.softcap,
            scale: declared.scale(),
            form: Form::Fused,
        };
        let reads = vec![read("q", q), read("k", k), read("v", v)];
        self.emit(op, reads, vec![write("out", out), write("lse", lse)]);
        self.linear(&format!("{at}.output"), out, self.shape.d_model)
    }

    /// Normalises the queries and the keys in `qk` into a buffer of their own.
    fn qk_norm(&mut self, at: &str, qk: BufferId, norm: QkNorm) -> BufferId {
        let (declared, attention) = (self.shape.attention, self.padded.attention);
        let (q_columns, kv_columns) = (attention.q_columns(), attention.kv_columns());
        let both = self.activation(&format!("{at}.qk_norm"), vec![self.rows, q_columns + kv_columns]);
        let parts = [
            ("q_norm", 0..q_columns, attention.heads),
            ("k_norm", q_columns..q_columns + kv_columns, attention.kv_heads),
        ];
        for (name, columns, heads) in parts {
            let name = format!("{at}.{name}");
            let from = self.plan.add_view(format!("{name}.x"), qk, columns.clone());
            let to = self.plan.add_view(format!("{name}.y"), both, columns);
            let (groups, heads) = if norm.whole { (1, heads) } else { (heads, 1) };
            self.norm_into(&name, from, to, NormKind::Rms, groups, heads * declared.head_dim);
        }
        both
    }

    fn feed_forward(&mut self, at: &str, x: BufferId) -> BufferId {
        let (kind, d_ff) = (self.shape.feed_forward.activation, self.padded.feed_forward.d_ff);
        let up = self.linear(&format!("{at}.up"), x, kind.inputs() * d_ff);
        let hidden = self.activation(&format!("{at}.hidden"), vec![self.rows, d_ff]);
        self.emit(Activation { kind }, vec![read("x", up)], vec![write("y", hidden)]);
        self.linear(&format!("{at}.down"), hidden, self.shape.d_model)
    }

    fn head(&mut self, x: BufferId, head: Head, options: &Options) {
        let weight = if self.shape.tied { "embedding.weight" } else { "head.weight" };
        let mut reads = vec![read("x", x)];
        reads.extend(self.parameter(weight, "weight"));
        reads.extend(self.parameter("head.bias", "bias"));
        let Shape { vocab, logits_scale: scale, softcap, .. } = *self.shape;
        let logits = Logits { vocab, scale, softcap };
        match head {
            Head::Loss => {
                let precision = options.precision.unwrap_or(self.shape.precision);
                let row_bytes = self.padded.vocab * precision.bytes();
                let chunk = match (options.head_chunk, options.runs_on) {
                    (Some(rows), _) => rows,
                    (None, RunsOn::Host) => HOST_CHUNK,
                    (None, RunsOn::Gpu) => chunk(self.rows, row_bytes),
                };
                let chunk = chunk.clamp(1, self.rows.max(1));
                let targets = self.input("targets", self.rows, Dtype::I32);
                let inverse_count = self.input("inverse_count", 1, Dtype::Fp32);
                reads.extend([read("targets", targets), read("inverse_count", inverse_count)]);
                let loss = self.plan.add("loss", vec![1], Dtype::Fp32, Role::Output);
                let room =
                    self.plan.add("logits", vec![chunk, self.padded.vocab], Dtype::Fp32, Role::Scratch);
                let loss = Write { slot: "loss", buffer: loss, mode: Mode::AccumulateLater };
                let op = HeadLoss {
                    chunk,
                    logits,
                    z_loss: f64::from(options.z_loss),
                    single_pass: options.runs("single_pass_softmax"),
                };
                let losses = self.plan.add("losses", vec![self.rows], Dtype::Fp32, Role::Scratch);
                self.emit(op, reads, vec![loss, write("logits", room), write("losses", losses)]);
            }
            Head::Logits(n) => {
                let positions = self.input("positions", n, Dtype::I32);
                let made = self.plan.add("asked_logits", vec![n, vocab], Dtype::Fp32, Role::Output);
                reads.push(read("positions", positions));
                let shape = vec![n, self.shape.d_model];
                let gathered = self.plan.add("asked_rows", shape, Dtype::Fp32, Role::Scratch);
                self.emit(HeadOp { logits }, reads, vec![write("logits", made), write("gathered", gathered)]);
            }
        }
    }
}
