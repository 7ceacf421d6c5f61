//! Shape -> its canonical text, which parses back to it.

use super::{Biases, LayerKind, Parallel, QkNormOrder, Rope, Shape};
use crate::ops::attention::Window;
use crate::ops::rope::RopeScaling;
use std::fmt::Display;

pub(super) struct Lines(pub(super) String);

impl Lines {
    pub(super) fn add(&mut self, path: &str, value: impl Display) {
        self.0.push_str(&format!("{path} = {value}\n"));
    }

    pub(super) fn real(&mut self, path: &str, value: f64) {
        self.add(path, format!("{value:?}"));
    }

    fn kind(&mut self, path: &str, kind: &LayerKind) {
        if let Some(window) = &kind.window {
            self.window(&format!("{path}.window"), *window);
        }
        if let Some(rope) = &kind.rope {
            self.rope(&format!("{path}.rope"), rope);
        }
    }

    /// Of equal bounds the one number that they are short for.
    pub(super) fn window(&mut self, path: &str, window: Window) {
        match window {
            Window { left: Some(left), right: Some(right) } if left == right => self.add(path, left + 1),
            Window { left, right } => {
                for (side, bound) in [("left", left), ("right", right)] {
                    bound.into_iter().for_each(|bound| self.add(&format!("{path}.{side}"), bound));
                }
            }
        }
    }

    fn rope(&mut self, path: &str, rope: &Rope) {
        self.add(path, true);
        self.real(&format!("{path}.theta"), rope.theta);
        self.real(&format!("{path}.fraction"), rope.fraction);
        let path = format!("{path}.scaling");
        let at = |key: &str| format!("{path}.{key}");
        self.add(&path, rope.scaling.name());
        match rope.scaling {
            RopeScaling::None => {}
            RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context } => {
                self.real(&at("factor"), factor);
                self.add(&at("original_context"), original_context);
                self.real(&at("low_freq_factor"), low_freq_factor);
                self.real(&at("high_freq_factor"), high_freq_factor);
            }
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor } => {
                self.real(&at("factor"), factor);
                self.add(&at("original_context"), original_context);
                self.real(&at("beta_fast"), beta_fast);
                self.real(&at("beta_slow"), beta_slow);
                self.real(&at("attention_factor"), attention_factor);
            }
        }
    }
}

impl Biases {
    /// As the attribute says it: `none`, `qkv`, `[all, head]`.
    #[must_use]
    pub fn text(self) -> String {
        let block = match self {
            Self { others: true, .. } => Some("all"),
            Self { qkv: true, .. } => Some("qkv"),
            _ => None,
        };
        match (block, self.head) {
            (Some(block), true) => format!("[{block}, head]"),
            (Some(block), false) => block.to_owned(),
            (None, true) => "head".to_owned(),
            (None, false) => "none".to_owned(),
        }
    }
}

impl Shape {
    /// The canonical text: every field but the targets, one per line, defaults spelled out. It parses back to the
    /// same Shape, and equal Shapes have equal text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = Lines(String::new());
        lines.add("model.vocab", self.vocab);
        lines.add("model.context", self.context);
        lines.add("model.d_model", self.d_model);
        lines.add("model.layers", self.layers);
        if self.has_pattern() {
            let names: Vec<_> = self.pattern.iter().map(|name| name.name()).collect();
            lines.add("model.pattern", format!("[{}]", names.join(", ")));
        }
        lines.add("model.tied", self.tied);
        lines.add("model.norm", self.norm.kind.name());
        lines.real("model.norm.eps", self.norm.epsilon);
        lines.add("model.norm.weight", self.norm.weight.name());
        lines.add("model.norm.placement", self.norm.placement.name());
        lines.add("model.norm.embedding", self.norm.embedding);
        lines.add("model.positions", if self.learned_positions { "learned" } else { "none" });
        lines.add("model.biases", self.biases.text());
        lines.add("model.parallel", self.parallel != Parallel::No);
        if self.parallel != Parallel::No {
            lines.add("model.parallel.shared_norm", self.parallel == Parallel::OneNorm);
        }
        lines.add("model.precision", self.precision.name());
        lines.add("model.residual", self.residual.name());
        lines.real("model.embedding_scale", self.embedding_scale);
        lines.real("model.residual_scale", self.residual_scale);
        lines.real("model.logits_scale", self.logits_scale);
        if let Some(cap) = self.softcap {
            lines.real("model.softcap", cap);
        }
        self.attention_text(&mut lines);
        lines.add(&format!("feed_forward.{}", self.feed_forward.activation.name()), true);
        lines.add("feed_forward.d_ff", self.feed_forward.d_ff);
        lines.0
    }

    fn attention_text(&self, lines: &mut Lines) {
        let attention = &self.attention;
        lines.add("attention.heads", attention.heads);
        lines.add("attention.kv_heads", attention.kv_heads);
        lines.add("attention.head_dim", attention.head_dim);
        lines.add(if attention.causal { "attention.causal" } else { "attention.full" }, true);
        match attention.qk_norm {
            None => lines.add("attention.qk_norm", false),
            Some(norm) => {
                lines.add("attention.qk_norm", if norm.whole { "whole" } else { "head" });
                let order = if norm.order == QkNormOrder::After { "after" } else { "before" };
                lines.add("attention.qk_norm.order", order);
            }
        }
        if let Some(cap) = attention.softcap {
            lines.real("attention.softcap", cap);
        }
        if let Some(scale) = attention.scale {
            lines.real("attention.scale", scale);
        }
        if !self.has_pattern() {
            lines.kind("attention", &attention.global);
            return;
        }
        let mut names = self.pattern.clone();
        names.sort_by_key(|name| name.name());
        names.dedup();
        for name in names {
            let path = format!("attention.{}", name.name());
            lines.add(&path, true);
            lines.kind(&path, &attention.kind(name));
        }
    }
}
