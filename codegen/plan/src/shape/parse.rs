//! Fields -> Shape, or all the problems at once.
//!
//! Every value goes through the table in `fields`; relations between fields are checked afterwards, on whatever
//! could be read, so that one mistake does not hide another.

use super::fields::{FIELDS, FieldRow, Kind, PLANNED, all_paths, planned};
use super::suggestion::{key, meant, unknown};
use super::targets;
use super::{Attention, Biases, FeedForward, Norm, Shape};
use crate::dtype::Dtype;
use crate::field::{Field, Place, Problem, Value, read_text};
use crate::ops::activation::ActivationKind;
use crate::ops::norm::NormKind;

/// Reads a whole declaration. Problems come in the order of their places.
///
/// # Errors
/// Every problem there is: unknown, repeated, missing or misplaced fields, values out of bounds, values at odds.
pub fn parse(fields: &[Field]) -> Result<Shape, Vec<Problem>> {
    let mut reader = Reader { fields, problems: Vec::new(), misspelt: Vec::new() };
    reader.check_paths();
    let shape = reader.shape();
    match shape {
        Some(shape) if reader.problems.is_empty() => Ok(shape),
        _ => {
            reader.problems.sort_by_key(|problem| problem.at.map_or(usize::MAX, |Place(at)| at));
            Err(reader.problems)
        }
    }
}

/// Reads the flat text form, as `Shape::text` writes it.
///
/// # Errors
/// As [`parse`], each problem with its line number in front, joined by line ends.
pub fn parse_text(text: &str) -> Result<Shape, String> {
    parse(&read_text(text)).map_err(|problems| {
        let lines = problems.iter().map(|problem| match problem.at {
            Some(Place(line)) => format!("line {line}: {}", problem.message),
            None => problem.message.clone(),
        });
        lines.collect::<Vec<_>>().join("\n")
    })
}

struct Reader<'a> {
    fields: &'a [Field],
    problems: Vec<Problem>,
    /// Paths that were meant by names nobody knows: they are not missing as well.
    misspelt: Vec<String>,
}

impl Reader<'_> {
    fn problem(&mut self, at: Option<Place>, message: String) {
        self.problems.push(Problem { at, message });
    }

    fn find(&self, path: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.path == path)
    }

    fn check_paths(&mut self) {
        let known = all_paths();
        let fields = self.fields;
        for (index, field) in fields.iter().enumerate() {
            if let Some(planned) = planned(&field.path) {
                // Its settings need no line of their own.
                if planned == field.path || self.find(planned).is_none() {
                    self.problem(Some(field.at), format!("`{}` is not supported yet", key(planned)));
                }
            } else if !known.contains(&field.path) && !targets::is_below(&field.path) {
                self.misspelt.extend(meant(&field.path, &known));
                self.problem(Some(field.at), unknown(&field.path, &known));
            } else if fields[..index].iter().any(|earlier| earlier.path == field.path) {
                self.problem(Some(field.at), format!("`{}` is given twice", key(&field.path)));
            }
        }
    }

    fn row(path: &str) -> &'static FieldRow {
        FIELDS.iter().find(|row| row.path == path).unwrap_or(&FIELDS[0])
    }

    fn wrong(&mut self, field: &Field, key: &str, allowed: &str) {
        let found = match &field.value {
            Value::Flag => "found no value".to_owned(),
            value if PLANNED.contains(&format!("{} = {value}", field.path).as_str()) => {
                format!("and `{value}` is not supported yet")
            }
            value => format!("found `{value}`"),
        };
        self.problem(Some(field.value_at), format!("`{key}` must be {allowed}, {found}"));
    }

    /// The section's own place, for a field that is missing in it; a missing section is one problem, not many.
    fn missing(&mut self, path: &str, row: &FieldRow) {
        if self.misspelt.iter().any(|other| other == path) {
            return;
        }
        let section = path.split('.').next().unwrap_or(path);
        let at = self.find(section).or_else(|| self.fields.iter().find(|f| f.path.starts_with(section)));
        let message = match at {
            Some(_) => format!("`{}` is missing: {} ({})", row.key(), row.about, row.allowed()),
            None => format!("`#[{section}(...)]` is missing"),
        };
        let at = at.map(|field| field.at);
        if !self.problems.iter().any(|problem| problem.message == message) {
            self.problem(at, message);
        }
    }

    fn count(&mut self, path: &str) -> Option<usize> {
        let row = Self::row(path);
        let Some(field) = self.find(path).cloned() else {
            if row.default.is_none() {
                self.missing(path, row);
            }
            return None;
        };
        let Kind::Count { least, greatest, multiple } = row.kind else { return None };
        match field.value {
            Value::Int(value) => match usize::try_from(value) {
                Ok(value) if (least..=greatest).contains(&value) && value % multiple == 0 => {
                    return Some(value);
                }
                _ => self.wrong(&field, row.key(), &row.allowed()),
            },
            _ => self.wrong(&field, row.key(), &row.allowed()),
        }
        None
    }

    fn real(&mut self, path: &str) -> Option<f64> {
        let row = Self::row(path);
        let field = self.find(path).cloned()?;
        let Kind::Real { above, most } = row.kind else { return None };
        let value = match field.value {
            #[allow(clippy::cast_precision_loss)]
            Value::Int(value) => value as f64,
            Value::Float(value) => value,
            _ => f64::NAN,
        };
        if value > above && value <= most {
            return Some(value);
        }
        self.wrong(&field, row.key(), &row.allowed());
        None
    }

    /// On or off; `None`, and a problem, where it says neither.
    fn flag_of(&mut self, field: &Field, key: &str) -> Option<bool> {
        match &field.value {
            Value::Flag => Some(true),
            Value::Word(word) if word == "true" => Some(true),
            Value::Word(word) if word == "false" => Some(false),
            _ => {
                self.wrong(field, key, &Kind::Flag.allowed());
                None
            }
        }
    }

    /// What is said of a flag, if anything is.
    fn said(&mut self, path: &str) -> Option<bool> {
        let field = self.find(path).cloned()?;
        self.flag_of(&field, key(path))
    }

    fn flag(&mut self, path: &str) -> bool {
        self.said(path) == Some(true)
    }

    fn choice<T: Copy>(&mut self, path: &str, table: &[(&str, T)], default: T) -> T {
        let Some(field) = self.find(path).cloned() else { return default };
        if let Value::Word(word) = &field.value
            && let Some((_, value)) = table.iter().find(|(name, _)| name == word)
        {
            return *value;
        }
        self.wrong(&field, key(path), &Self::row(path).allowed());
        default
    }

    fn shape(&mut self) -> Option<Shape> {
        let vocab = self.count("model.vocab");
        let context = self.count("model.context").unwrap_or(2048);
        let d_model = self.count("model.d_model");
        let layers = self.count("model.layers");
        let norms: Vec<_> = NormKind::ALL.iter().map(|kind| (kind.name(), *kind)).collect();
        let biases: Vec<_> = Biases::ALL.iter().map(|biases| (biases.name(), *biases)).collect();
        let precisions: Vec<_> =
            crate::dtype::ALL.iter().filter(|row| row.is_precision).map(|r| (r.name, r.dtype)).collect();
        let norm = Norm {
            kind: self.choice("model.norm", &norms, NormKind::Rms),
            epsilon: self.real("model.norm.eps").unwrap_or(1e-5),
        };
        let learned_positions = self.choice("model.positions", &[("none", false), ("learned", true)], false);
        let biases = self.choice("model.biases", &biases, Biases::None);
        let precision = self.choice("model.precision", &precisions, Dtype::Bf16);
        let tied = self.flag("model.tied");
        let attention = self.attention(d_model);
        let feed_forward = self.feed_forward();
        let (targets, problems) = targets::read(self.fields);
        self.problems.extend(problems);
        Some(Shape {
            vocab: vocab?,
            context,
            d_model: d_model?,
            layers: layers?,
            tied,
            norm,
            learned_positions,
            biases,
            precision,
            attention: attention?,
            feed_forward: feed_forward?,
            targets,
        })
    }

    fn attention(&mut self, d_model: Option<usize>) -> Option<Attention> {
        let heads = self.count("attention.heads");
        let kv_heads = self.count("attention.kv_heads").or(heads);
        let head_dim = self.count("attention.head_dim");
        let theta = self.real("attention.rope.theta");
        let rope = self.flag("attention.rope");
        let theta_at = self.find("attention.rope.theta").map(|field| field.at);
        if theta_at.is_some() && !rope {
            self.problem(theta_at, "`theta` has a meaning only with `rope`".to_owned());
        }
        let causal = self.causal();
        let qk_norm = self.flag("attention.qk_norm");
        let (heads, kv_heads) = (heads?, kv_heads?);
        if heads % kv_heads != 0 {
            let at = self.find("attention.kv_heads").map(|field| field.value_at);
            self.problem(at, format!("`kv_heads` must divide `heads` (`{heads}`), found `{kv_heads}`"));
        }
        let head_dim = match (head_dim, self.find("attention.head_dim"), d_model) {
            (Some(head_dim), _, _) => head_dim,
            (None, None, Some(d_model)) => {
                let head_dim = d_model / heads;
                if d_model % heads != 0 || head_dim % 8 != 0 || !(8..=256).contains(&head_dim) {
                    let at = self.find("attention.heads").map(|field| field.value_at);
                    let row = Self::row("attention.head_dim");
                    let found =
                        format!("`head_dim` must be given: `d_model` / `heads` = {d_model} / {heads}");
                    self.problem(at, format!("{found} is not {}", row.allowed()));
                    return None;
                }
                head_dim
            }
            _ => return None,
        };
        Some(Attention {
            heads,
            kv_heads,
            head_dim,
            rope_theta: rope.then_some(theta.unwrap_or(10_000.0)),
            causal,
            qk_norm,
        })
    }

    /// `causal` and `full` are one answer under two names, so either may be said, on or off, but not against the other.
    fn causal(&mut self) -> bool {
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

    fn feed_forward(&mut self) -> Option<FeedForward> {
        let mut chosen: Vec<(ActivationKind, Place)> = Vec::new();
        for kind in ActivationKind::ALL {
            let Some(field) = self.find(&format!("feed_forward.{}", kind.name())).cloned() else { continue };
            if self.flag_of(&field, kind.name()) == Some(true) {
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
        if chosen.is_empty()
            && let Some(section) = self.fields.iter().find(|f| f.path.starts_with("feed_forward"))
        {
            let at = section.at;
            self.problem(Some(at), format!("the activation is missing: one of {names}"));
        }
        Some(FeedForward { activation: chosen.first()?.0, d_ff: d_ff? })
    }
}

#[cfg(test)]
mod tests;
