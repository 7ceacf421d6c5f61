//! Shape -> the forward steps, all in fp32 and unfused: what is computed, not how.

use crate::buffer::{BufferId, Role};
use crate::dtype::Dtype;
use crate::ops::Op;
use crate::ops::activation::Activation;
use crate::ops::add::Add;
use crate::ops::attention::Attention;
use crate::ops::embedding::Embedding;
use crate::ops::head::Head as HeadOp;
use crate::ops::head_loss::HeadLoss;
use crate::ops::linear::Linear;
use crate::ops::norm::{Norm, NormKind};
use crate::ops::positions::Positions;
use crate::ops::rope::Rope;
use crate::options::Options;
use crate::plan::{Mode, Phase, Plan, Read, Step, Write};
use crate::shape::Shape;
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
    let mut forward =
        Forward { shape, plan: Plan::default(), parameters: HashMap::new(), rows: batch * length };
    for parameter in shape.parameters() {
        let id = forward.plan.add(&parameter.name, parameter.shape, Dtype::Fp32, Role::Parameter);
        forward.parameters.insert(parameter.name, id);
    }
    let mut x = forward.embed(length);
    for layer in 0..shape.layers {
        x = forward.attention(&format!("layers.{layer}"), x, length);
        x = forward.feed_forward(&format!("layers.{layer}"), x);
    }
    let x = forward.norm("final_norm", x, 1, shape.norm.kind);
    forward.head(x, head, options.head_chunk);
    forward.plan
}

struct Forward<'a> {
    shape: &'a Shape,
    plan: Plan,
    parameters: HashMap<String, BufferId>,
    rows: usize,
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

    fn embed(&mut self, length: usize) -> BufferId {
        let tokens = self.input("tokens", self.rows, Dtype::I32);
        let order = self.input("token_order", self.rows, Dtype::I32);
        let x = self.activation("embedding", vec![self.rows, self.shape.d_model]);
        let mut reads = vec![read("tokens", tokens)];
        reads.extend(self.parameter("embedding.weight", "table"));
        reads.push(read("token_order", order));
        self.emit(Embedding, reads, vec![write("y", x)]);
        let Some(table) = self.parameter("positions.weight", "table") else { return x };
        let y = self.activation("embedding.positions", vec![self.rows, self.shape.d_model]);
        self.emit(Positions { length }, vec![read("x", x), table], vec![write("y", y)]);
        y
    }

    /// Normalises `x`, which is `groups` vectors per row, with the parameters called `name`.
    fn norm(&mut self, name: &str, x: BufferId, groups: usize, kind: NormKind) -> BufferId {
        let columns = self.plan.buffer(x).columns();
        let y = self.activation(name, vec![self.rows, columns]);
        self.norm_into(name, x, y, groups, kind);
        y
    }

    fn norm_into(&mut self, name: &str, x: BufferId, y: BufferId, groups: usize, kind: NormKind) {
        let rstd = self.activation(&format!("{name}.rstd"), vec![self.rows, groups]);
        let mut reads = vec![read("x", x)];
        let mut writes = vec![write("y", y), write("rstd", rstd)];
        reads.extend(self.parameter(&format!("{name}.weight"), "weight"));
        reads.extend(self.parameter(&format!("{name}.bias"), "bias"));
        if kind.has_bias() {
            let mean = self.activation(&format!("{name}.mean"), vec![self.rows, groups]);
            writes.push(write("mean", mean));
        }
        self.emit(Norm { kind, epsilon: self.shape.norm.epsilon, groups }, reads, writes);
    }

    fn linear(&mut self, name: &str, x: BufferId, outputs: usize) -> BufferId {
        let y = self.activation(name, vec![self.rows, outputs]);
        let mut reads = vec![read("x", x)];
        reads.extend(self.parameter(&format!("{name}.weight"), "weight"));
        reads.extend(self.parameter(&format!("{name}.bias"), "bias"));
        self.emit(Linear, reads, vec![write("y", y)]);
        y
    }

    fn add(&mut self, name: &str, a: BufferId, b: BufferId) -> BufferId {
        let y = self.activation(name, vec![self.rows, self.shape.d_model]);
        self.emit(Add, vec![read("a", a), read("b", b)], vec![write("y", y)]);
        y
    }

    fn attention(&mut self, layer: &str, x: BufferId, length: usize) -> BufferId {
        let attention = self.shape.attention;
        let (q_columns, kv_columns) = (attention.q_columns(), attention.kv_columns());
        let qk_columns = q_columns + kv_columns;
        let at = |rest: &str| format!("{layer}.attention{rest}");
        let normed = self.norm(&at("_norm"), x, 1, self.shape.norm.kind);
        let qkv = self.linear(&at(".qkv"), normed, attention.qkv_columns());
        let v = self.plan.add_view(at(".v"), qkv, qk_columns..attention.qkv_columns());
        let mut qk = self.plan.add_view(at(".qk"), qkv, 0..qk_columns);
        if attention.qk_norm {
            let both = self.activation(&at(".qk_norm"), vec![self.rows, qk_columns]);
            let parts = [
                (".q_norm", 0..q_columns, attention.heads),
                (".k_norm", q_columns..qk_columns, attention.kv_heads),
            ];
            for (name, columns, heads) in parts {
                let from = self.plan.add_view(at(&format!("{name}.x")), qkv, columns.clone());
                let to = self.plan.add_view(at(&format!("{name}.y")), both, columns);
                self.norm_into(&at(name), from, to, heads, NormKind::Rms);
            }
            qk = both;
        }
        if let Some(theta) = attention.rope_theta {
            let rope = Rope { theta, head_dim: attention.head_dim, length, inverse: false };
            self.emit(rope, vec![read("x", qk)], vec![write("y", qk)]);
        }
        let q = self.plan.add_view(at(".q"), qk, 0..q_columns);
        let k = self.plan.add_view(at(".k"), qk, q_columns..qk_columns);
        let out = self.activation(&at(".out"), vec![self.rows, q_columns]);
        let lse_shape = vec![self.rows / length, attention.heads, length];
        let lse = self.activation(&at(".lse"), lse_shape);
        let op = Attention {
            heads: attention.heads,
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            length,
            causal: attention.causal,
        };
        let reads = vec![read("q", q), read("k", k), read("v", v)];
        self.emit(op, reads, vec![write("out", out), write("lse", lse)]);
        let projected = self.linear(&at(".output"), out, self.shape.d_model);
        self.add(&at(".residual"), x, projected)
    }

    fn feed_forward(&mut self, layer: &str, x: BufferId) -> BufferId {
        let feed_forward = self.shape.feed_forward;
        let kind = feed_forward.activation;
        let at = |rest: &str| format!("{layer}.feed_forward{rest}");
        let normed = self.norm(&at("_norm"), x, 1, self.shape.norm.kind);
        let up = self.linear(&at(".up"), normed, kind.inputs() * feed_forward.d_ff);
        let hidden = self.activation(&at(".hidden"), vec![self.rows, feed_forward.d_ff]);
        self.emit(Activation { kind }, vec![read("x", up)], vec![write("y", hidden)]);
        let down = self.linear(&at(".down"), hidden, self.shape.d_model);
        self.add(&at(".residual"), x, down)
    }

    fn head(&mut self, x: BufferId, head: Head, chunk: usize) {
        let weight = if self.shape.tied { "embedding.weight" } else { "head.weight" };
        let mut reads = vec![read("x", x)];
        reads.extend(self.parameter(weight, "weight"));
        match head {
            Head::Loss => {
                let chunk = chunk.clamp(1, self.rows.max(1));
                let targets = self.input("targets", self.rows, Dtype::I32);
                let inverse_count = self.input("inverse_count", 1, Dtype::Fp32);
                reads.extend([read("targets", targets), read("inverse_count", inverse_count)]);
                let loss = self.plan.add("loss", vec![1], Dtype::Fp32, Role::Output);
                let logits =
                    self.plan.add("logits", vec![chunk, self.shape.vocab], Dtype::Fp32, Role::Scratch);
                let loss = Write { slot: "loss", buffer: loss, mode: Mode::AccumulateLater };
                self.emit(HeadLoss { chunk }, reads, vec![loss, write("logits", logits)]);
            }
            Head::Logits(n) => {
                let positions = self.input("positions", n, Dtype::I32);
                let logits =
                    self.plan.add("asked_logits", vec![n, self.shape.vocab], Dtype::Fp32, Role::Output);
                reads.push(read("positions", positions));
                self.emit(HeadOp, reads, vec![write("logits", logits)]);
            }
        }
    }
}
