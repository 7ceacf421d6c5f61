//! The section `attention`: what all layers share, and what each kind of layer has of its own.

use super::Reader;
use crate::field::Value;
use crate::ops::attention::Window;
use crate::ops::rope::RopeScaling;
use crate::shape::suggestion::key;
use crate::shape::{Attention, LayerKind, LayerName, QkNorm, QkNormOrder, Rope};

/// A rule for frequencies, before its settings are read.
#[derive(Clone, Copy, PartialEq)]
enum Scaling {
    None,
    Llama3,
    Yarn,
}

const LLAMA3: [&str; 2] = ["low_freq_factor", "high_freq_factor"];
const YARN: [&str; 3] = ["beta_fast", "beta_slow", "attention_factor"];

impl Reader<'_> {
    pub(super) fn attention(&mut self, d_model: Option<usize>, pattern: &[LayerName]) -> Option<Attention> {
        let heads = self.count("attention.heads");
        let kv_heads = self.kv_heads(heads);
        let head_dim = self.count("attention.head_dim");
        let causal = self.causal();
        let qk_norm = self.qk_norm();
        let softcap = self.real("attention.softcap");
        let scale = self.real("attention.scale");
        let (local, global) = self.kinds(pattern, causal);
        let (heads, kv_heads) = (heads?, kv_heads?);
        let head_dim = match (head_dim, self.find("attention.head_dim"), d_model) {
            (Some(head_dim), _, _) => head_dim,
            (None, None, Some(d_model)) => self.default_head_dim(d_model, heads)?,
            _ => return None,
        };
        self.check_rotary(head_dim, pattern, [("attention.local", local), ("attention.global", global)]);
        // The default is not kept as a number, so that equal models have equal text.
        let scale = scale.filter(|scale| *scale != (head_dim as f64).sqrt().recip());
        Some(Attention { heads, kv_heads, head_dim, causal, qk_norm, softcap, scale, local, global })
    }

    /// The heads of keys and values, as many as of queries where nothing is said.
    pub(super) fn kv_heads(&mut self, heads: Option<usize>) -> Option<usize> {
        let kv_heads = self.count("attention.kv_heads").or(heads)?;
        if let Some(heads) = heads.filter(|heads| heads % kv_heads != 0) {
            let at = self.find("attention.kv_heads").map(|field| field.value_at);
            self.problem(at, format!("`kv_heads` must divide `heads` (`{heads}`), found `{kv_heads}`"));
        }
        Some(kv_heads)
    }

    fn default_head_dim(&mut self, d_model: usize, heads: usize) -> Option<usize> {
        let head_dim = d_model / heads;
        if d_model.is_multiple_of(heads) && (1..=256).contains(&head_dim) {
            return Some(head_dim);
        }
        let at = self.find("attention.heads").map(|field| field.value_at);
        let found = format!("`head_dim` must be given: `d_model` / `heads` = {d_model} / {heads}");
        self.problem(at, format!("{found} is not {}", self.row("attention.head_dim").allowed()));
        None
    }

    fn qk_norm(&mut self) -> Option<QkNorm> {
        let path = "attention.qk_norm";
        let field = self.find(path).cloned();
        let on = match field.as_ref().map(|field| &field.value) {
            Some(Value::Word(word)) if word == "head" || word == "whole" => true,
            Some(Value::Flag) => true,
            Some(Value::Word(word)) if word == "true" => true,
            Some(Value::Word(word)) if word == "false" => false,
            None => false,
            Some(_) => {
                let field = field.clone()?;
                self.wrong(&field, key(path), &self.row(path).allowed());
                return None;
            }
        };
        let orders = [("before", QkNormOrder::Before), ("after", QkNormOrder::After)];
        let order = self.choice("attention.qk_norm.order", &orders, QkNormOrder::Before);
        if !on {
            self.needs("attention.qk_norm.order", "qk_norm");
            return None;
        }
        let whole = field.is_some_and(|field| field.value == Value::Word("whole".to_owned()));
        Some(QkNorm { whole, order })
    }

    /// The kinds of layer that the pattern names; the default for one it does not name.
    fn kinds(&mut self, pattern: &[LayerName], causal: bool) -> (LayerKind, LayerKind) {
        let all = LayerKind { window: self.bounds("attention", causal), rope: self.rope("attention", None) };
        let mut kind = |name: LayerName| {
            let path = format!("attention.{}", name.name());
            let is_said = self.fields.iter().any(|field| {
                field.path.strip_prefix(&path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            });
            let said = self.said(&path);
            let window = self.window(&path, causal, all.window);
            let rope = self.rope(&path, all.rope);
            let in_pattern = pattern.contains(&name);
            // A pattern of `global` alone is none: all is said of the whole model then.
            let is_lone = pattern == [LayerName::Global];
            let is_odd = is_said && said != Some(false) && (!in_pattern || is_lone);
            if is_odd && !self.is_wrong("model.pattern") {
                let at = self.fields.iter().find(|field| field.path.starts_with(&path)).map(|field| field.at);
                let name = name.name();
                let message = match is_lone && in_pattern {
                    true => {
                        format!("`{name}` has a meaning only with a `pattern` that names another kind too")
                    }
                    false => format!("`{name}` has a meaning only with a `pattern` that names it"),
                };
                self.problem(at, message);
            }
            if in_pattern { LayerKind { window, rope } } else { LayerKind::default() }
        };
        (kind(LayerName::Local), kind(LayerName::Global))
    }

    /// The window said at `path`: `window = 64`, or `window(left = 63, right = 0)` with a bound for each side.
    pub(super) fn bounds(&mut self, path: &str, causal: bool) -> Option<Window> {
        let path = format!("{path}.window");
        let [left, right] = ["left", "right"].map(|side| format!("{path}.{side}"));
        let sides = [self.count(&left), self.count(&right)];
        let said = [&left, &right].into_iter().find(|side| self.find(side).is_some()).cloned();
        let Some(side) = said else {
            let pair = self.find(&path).filter(|field| matches!(field.value, Value::List(_))).cloned();
            let Some(pair) = pair else { return self.count(&path).map(Window::nearer) };
            let row = self.row(&path);
            let allowed = format!("{}, or have `left` and `right` by their names", row.allowed());
            self.wrong(&pair, row.key(), &allowed);
            return None;
        };
        if self.find(&path).is_some_and(|field| !matches!(&field.value, Value::Flag)) {
            let at = self.find(&side).map(|field| field.at);
            self.problem(
                at,
                format!("`{}` contradicts `window = N`, which is both sides: choose one", key(&side)),
            );
            return None;
        }
        if causal && let Some(at) = self.find(&right).map(|field| field.at) {
            let message = "`right` has a meaning only with `full`: a `causal` query sees nothing behind it";
            self.problem(Some(at), message.to_owned());
            return None;
        }
        let [left, right] = sides;
        // Both sides are said under a causal mask, where one means nothing: so equal models are equal.
        Some(Window { left, right: if causal { left } else { right } })
    }

    /// The window of a kind of layer: its own, none, or that of all.
    fn window(&mut self, path: &str, causal: bool, of_all: Option<Window>) -> Option<Window> {
        let (window, off) = (format!("{path}.window"), format!("{path}.no_window"));
        let own = self.bounds(path, causal);
        if !self.flag(&off) {
            return own.or(of_all);
        }
        if self.find(&window).is_some() {
            let at = self.find(&off).map(|field| field.at);
            self.problem(at, "`no_window` contradicts `window`: choose one".to_owned());
        }
        None
    }

    /// The rope of `path`, whose settings default to those of `base`.
    fn rope(&mut self, path: &str, base: Option<Rope>) -> Option<Rope> {
        let rope = format!("{path}.rope");
        let said = self.said(&rope);
        let off = path != "attention" && self.flag(&format!("{path}.no_rope"));
        let theta = self.real(&format!("{rope}.theta"));
        let fraction = self.real(&format!("{rope}.fraction"));
        let scaling = self.scaling(&format!("{rope}.scaling"), base);
        let on = said.unwrap_or(base.is_some()) && !off;
        let is_clash = off && said == Some(true);
        if is_clash {
            let at = self.find(&format!("{path}.no_rope")).map(|field| field.at);
            self.problem(at, "`no_rope` contradicts `rope`: choose one".to_owned());
        }
        if !on {
            let is_told = is_clash || self.is_wrong(&rope);
            for setting in ["theta", "fraction", "scaling"].iter().filter(|_| !is_told) {
                self.needs(&format!("{rope}.{setting}"), "rope");
            }
            return None;
        }
        Some(Rope {
            theta: theta.or(base.map(|base| base.theta)).unwrap_or(10_000.0),
            fraction: fraction.or(base.map(|base| base.fraction)).unwrap_or(1.0),
            scaling,
        })
    }

    fn scaling(&mut self, path: &str, base: Option<Rope>) -> RopeScaling {
        let table = [("none", Scaling::None), ("llama3", Scaling::Llama3), ("yarn", Scaling::Yarn)];
        let is_there = self.find(path).is_some();
        let kind = self.choice(path, &table, Scaling::None);
        if self.is_wrong(path) {
            return RopeScaling::None;
        }
        let at = |key: &str| format!("{path}.{key}");
        let foreign: &[&[&str]] = match kind {
            Scaling::None => &[&["factor", "original_context"], &LLAMA3, &YARN],
            Scaling::Llama3 => &[&YARN],
            Scaling::Yarn => &[&LLAMA3],
        };
        let owner = |settings: &[&str]| match settings {
            _ if settings == LLAMA3 => "scaling = llama3",
            _ if settings == YARN => "scaling = yarn",
            _ => "scaling",
        };
        for settings in foreign {
            for setting in *settings {
                self.needs(&at(setting), owner(settings));
            }
        }
        if !is_there {
            return base.map_or(RopeScaling::None, |base| base.scaling);
        }
        if kind == Scaling::None {
            return RopeScaling::None;
        }
        let (factor, context) = (self.real(&at("factor")), self.count(&at("original_context")));
        for setting in ["factor", "original_context"] {
            if self.find(&at(setting)).is_none() {
                let place = self.find(path).map(|field| field.value_at);
                let row = self.row(&at(setting));
                let message = format!("`{setting}` is missing: {} ({})", row.about, row.allowed());
                self.problem(place, message);
            }
        }
        let (factor, original_context) = (factor.unwrap_or(1.0), context.unwrap_or(1));
        let real =
            |reader: &mut Self, setting: &str, default: f64| reader.real(&at(setting)).unwrap_or(default);
        let (scaling, [low, high]) = if kind == Scaling::Llama3 {
            let low_freq_factor = real(self, "low_freq_factor", 1.0);
            let high_freq_factor = real(self, "high_freq_factor", 4.0);
            let scaling = RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_context };
            (scaling, [("low_freq_factor", low_freq_factor), ("high_freq_factor", high_freq_factor)])
        } else {
            let (beta_fast, beta_slow) = (real(self, "beta_fast", 32.0), real(self, "beta_slow", 1.0));
            let recommended = RopeScaling::yarn_attention_factor(factor);
            let attention_factor = real(self, "attention_factor", recommended);
            let scaling =
                RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor };
            (scaling, [("beta_slow", beta_slow), ("beta_fast", beta_fast)])
        };
        if low.1 >= high.1 {
            let found = format!("`{}` and `{}`", low.1, high.1);
            let place = self.find(path).map(|field| field.value_at);
            self.problem(place, format!("`{}` must be below `{}`, found {found}", low.0, high.0));
        }
        scaling
    }

    /// The rotating columns of a head come in pairs.
    fn check_rotary(&mut self, head_dim: usize, pattern: &[LayerName], kinds: [(&str, LayerKind); 2]) {
        for (path, kind) in kinds {
            let Some(rope) = kind.rope else { continue };
            if rope.rotary(head_dim).is_some() {
                continue;
            }
            let path = if pattern == [LayerName::Global] { "attention" } else { path };
            let place = |path: String| self.find(&path).map(|field| field.value_at);
            let at = place(format!("{path}.rope.fraction"))
                .or_else(|| place("attention.rope.fraction".to_owned()))
                .or_else(|| place("attention.head_dim".to_owned()))
                .or_else(|| place(format!("{path}.rope")))
                .or_else(|| place("attention.rope".to_owned()));
            let message = format!(
                "`rope` turns pairs of columns: `fraction` of `head_dim` must be an even whole number, found `{:?}` of \
                 `{head_dim}`",
                rope.fraction
            );
            if !self.problems.iter().any(|problem| problem.message == message) {
                self.problem(at, message);
            }
        }
    }

    /// `causal` and `full` are one answer under two names, so either may be said, on or off, but not against the other.
    pub(super) fn causal(&mut self) -> bool {
        let causal = self.said("attention.causal");
        let full = self.said("attention.full");
        if let (Some(on), true) = (causal, causal == full)
            && let (Some(one), Some(other)) = (self.find("attention.causal"), self.find("attention.full"))
        {
            let (first, second) = if one.at < other.at { (one, other) } else { (other, one) };
            let off = if on { "" } else { " = false" };
            let (first, second, at) = (key(&first.path), key(&second.path), second.at);
            let message = format!("`{second}{off}` contradicts `{first}{off}`: choose one");
            self.problem(Some(at), message);
        }
        causal.or(full.map(|full| !full)).unwrap_or(true)
    }
}
