//! The sections `model`, `feed_forward` and `target`, and the Shape that all of them make.

use super::Reader;
use crate::dtype::{self, Dtype};
use crate::field::Place;
use crate::ops::activation::ActivationKind;
use crate::ops::norm::{NormKind, NormWeight};
use crate::shape::fields::PLANNED;
use crate::shape::suggestion::key;
use crate::shape::targets;
use crate::shape::{Biases, FeedForward, LayerName, Norm, Parallel, Placement, Shape};

impl Reader<'_> {
    pub(super) fn shape(&mut self) -> Option<Shape> {
        let vocab = self.count("model.vocab");
        let context = self.count("model.context").unwrap_or(2048);
        let d_model = self.count("model.d_model");
        let layers = self.count("model.layers");
        let pattern = self.pattern(layers);
        let precisions: Vec<_> =
            dtype::ALL.iter().filter(|row| row.is_precision).map(|row| (row.name, row.dtype)).collect();
        let norm = self.norm();
        let learned_positions = self.choice("model.positions", &[("none", false), ("learned", true)], false);
        let biases = self.biases();
        let parallel = self.parallel(&norm);
        let precision = self.choice("model.precision", &precisions, Dtype::Bf16);
        let residual = self.choice("model.residual", &precisions, Dtype::Fp32);
        if residual != Dtype::Fp32 && residual != precision {
            let at = self.find("model.residual").map(|field| field.value_at);
            let (precision, found) = (precision.name(), residual.name());
            let allowed = format!("`fp32` or as `precision` (`{precision}`)");
            self.problem(at, format!("`residual` must be {allowed}, found `{found}`"));
        }
        let embedding_scale = self.real("model.embedding_scale").unwrap_or(1.0);
        let residual_scale = self.real("model.residual_scale").unwrap_or(1.0);
        let logits_scale = self.real("model.logits_scale").unwrap_or(1.0);
        let softcap = self.real("model.softcap");
        let tied = self.flag("model.tied");
        let attention = self.attention(d_model, &pattern);
        let feed_forward = self.feed_forward();
        let (targets, problems) = targets::read(self.fields);
        self.problems.extend(problems);
        Some(Shape {
            vocab: vocab?,
            context,
            d_model: d_model?,
            layers: layers?,
            pattern,
            tied,
            norm,
            learned_positions,
            biases,
            parallel,
            precision,
            residual,
            embedding_scale,
            residual_scale,
            logits_scale,
            softcap,
            attention: attention?,
            feed_forward: feed_forward?,
            targets,
        })
    }

    /// The shortest pattern that says the same, so that equal models have equal text.
    fn pattern(&mut self, layers: Option<usize>) -> Vec<LayerName> {
        let words = self.words("model.pattern").unwrap_or_else(|| vec!["global".to_owned()]);
        let name = |word: &String| LayerName::ALL.into_iter().find(|name| name.name() == word);
        let pattern: Vec<_> = words.iter().filter_map(name).collect();
        if let Some(layers) = layers.filter(|layers| pattern.len() > *layers) {
            let at = self.find("model.pattern").map(|field| field.value_at);
            let allowed = format!("at most as long as there are `layers` (`{layers}`)");
            self.problem(at, format!("`pattern` must be {allowed}, found `{}` kinds", pattern.len()));
        }
        let repeats = |n: &usize| {
            pattern.len().is_multiple_of(*n)
                && pattern.iter().enumerate().all(|(index, name)| *name == pattern[index % n])
        };
        let period = (1..pattern.len()).find(repeats).unwrap_or(pattern.len());
        pattern[..period].to_vec()
    }

    fn norm(&mut self) -> Norm {
        let kinds: Vec<_> = NormKind::ALL.iter().map(|kind| (kind.name(), *kind)).collect();
        let weights: Vec<_> = NormWeight::ALL.iter().map(|weight| (weight.name(), *weight)).collect();
        let placements: Vec<_> =
            Placement::ALL.iter().map(|placement| (placement.name(), *placement)).collect();
        Norm {
            kind: match self.has_settings_alone("model.norm") {
                true => NormKind::Rms,
                false => self.choice("model.norm", &kinds, NormKind::Rms),
            },
            epsilon: self.real("model.norm.eps").unwrap_or(1e-5),
            weight: self.choice("model.norm.weight", &weights, NormWeight::W),
            placement: self.choice("model.norm.placement", &placements, Placement::Pre),
            embedding: self.flag("model.norm.embedding"),
        }
    }

    fn biases(&mut self) -> Biases {
        let words = self.words("model.biases").unwrap_or_default();
        let has = |word: &str| words.iter().any(|other| other == word);
        let blocks = ["none", "qkv", "all"].into_iter().filter(|word| has(word)).collect::<Vec<_>>();
        let clash = match blocks[..] {
            [one, other, ..] => Some((one, other)),
            ["none"] if has("head") => Some(("none", "head")),
            _ => None,
        };
        let twice = words.iter().enumerate().find(|(index, word)| words[..*index].contains(word));
        let message = match (clash, twice) {
            (Some((one, other)), _) => Some(format!("`{other}` contradicts `{one}` in `biases`: choose one")),
            (None, Some((_, word))) => Some(format!("`{word}` is given twice in `biases`")),
            (None, None) => None,
        };
        if let Some(message) = message {
            let at = self.find("model.biases").map(|field| field.value_at);
            self.problem(at, message);
        }
        Biases { qkv: has("qkv") || has("all"), others: has("all"), head: has("head") }
    }

    fn parallel(&mut self, norm: &Norm) -> Parallel {
        let parallel = self.flag("model.parallel");
        let shared = self.flag("model.parallel.shared_norm");
        if !parallel {
            self.needs("model.parallel.shared_norm", "parallel");
        } else if shared && norm.placement != Placement::Pre {
            let at = self.find("model.parallel.shared_norm").map(|field| field.at);
            let found = norm.placement.name();
            self.problem(at, format!("`shared_norm` needs `placement = pre`, found `{found}`"));
        }
        match (parallel, shared) {
            (false, _) => Parallel::No,
            (true, false) => Parallel::TwoNorms,
            (true, true) => Parallel::OneNorm,
        }
    }

    fn feed_forward(&mut self) -> Option<FeedForward> {
        let mut chosen: Vec<(ActivationKind, Place)> = Vec::new();
        let mut is_named = false;
        for kind in ActivationKind::ALL {
            let Some(field) = self.find(&format!("feed_forward.{}", kind.name())).cloned() else { continue };
            let said = self.flag_of(&field, kind.name());
            is_named |= said.is_none();
            if said == Some(true) {
                chosen.push((kind, field.at));
            }
        }
        let names: Vec<_> = ActivationKind::ALL.iter().map(|kind| format!("`{}`", kind.name())).collect();
        let names = names.join(", ");
        chosen.sort_by_key(|(_, at)| *at);
        for (kind, at) in chosen.iter().skip(1) {
            let message = format!("`{}` is a second activation: choose one of {names}", kind.name());
            self.problem(Some(*at), message);
        }
        let d_ff = self.count("feed_forward.d_ff");
        for path in PLANNED {
            if self.count(path).is_some()
                && let Some(at) = self.find(path).map(|field| field.at)
            {
                self.problem(Some(at), format!("`{}`: mixtures of experts are not supported yet", key(path)));
            }
        }
        if chosen.is_empty()
            && !is_named
            && let Some(section) = self.fields.iter().find(|f| f.path.starts_with("feed_forward"))
        {
            let at = section.at;
            self.problem(Some(at), format!("the activation is missing: one of {names}"));
        }
        Some(FeedForward { activation: chosen.first()?.0, d_ff: d_ff? })
    }
}
