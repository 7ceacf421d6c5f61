//! What every front end hands over: the fields of one declaration, and what it could not read itself.
//!
//! In: fields and mistakes of form. Out: a Shape, or all mistakes of form and meaning together. Must not know any
//! field name.

use kernwright_plan::arch::Arch;
use kernwright_plan::field::{Field, Problem};
use kernwright_plan::kernels;
use kernwright_plan::plan::Plan;
use kernwright_plan::shape::{self, ATTENTION_SECTIONS, AttentionShape, Shape};

pub use kernwright_plan::shape::SECTIONS;

/// What a declaration is of; each has a derive of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// A whole model: `#[derive(Transformer)]`.
    #[default]
    Model,
    /// Attention alone: `#[derive(Attention)]`.
    Attention,
}

impl Subject {
    /// The name of its derive.
    #[must_use]
    pub fn derive(self) -> &'static str {
        match self {
            Self::Model => "Transformer",
            Self::Attention => "Attention",
        }
    }

    /// What messages call it.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Model => "a model",
            Self::Attention => "attention",
        }
    }

    /// Its sections; the first one also says where the facade is.
    #[must_use]
    pub fn sections(self) -> &'static [&'static str] {
        match self {
            Self::Model => SECTIONS,
            Self::Attention => ATTENTION_SECTIONS,
        }
    }
}

/// What was declared.
#[derive(Clone, Debug, PartialEq)]
pub enum Declared {
    /// A whole model.
    Model(Box<Shape>),
    /// Attention alone.
    Attention(AttentionShape),
}

impl Declared {
    /// Its canonical text.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Model(shape) => shape.text(),
            Self::Attention(shape) => shape.text(),
        }
    }

    /// The GPUs it is for; empty means all.
    #[must_use]
    pub fn targets(&self) -> &[Arch] {
        match self {
            Self::Model(shape) => &shape.targets,
            Self::Attention(shape) => &shape.targets,
        }
    }

    /// They, for who has tables of tiles for them.
    pub fn targets_mut(&mut self) -> &mut [Arch] {
        match self {
            Self::Model(shape) => &mut shape.targets,
            Self::Attention(shape) => &mut shape.targets,
        }
    }

    /// Those GPUs as text.
    #[must_use]
    pub fn targets_text(&self) -> String {
        match self {
            Self::Model(shape) => shape.targets_text(),
            Self::Attention(shape) => shape.targets_text(),
        }
    }

    /// Plans that between them have all its kernels.
    #[must_use]
    pub fn plans(&self) -> Vec<Plan> {
        match self {
            Self::Model(shape) => kernels::plans(shape),
            Self::Attention(shape) => kernels::attention_plans(shape),
        }
    }
}

/// The fields of one declared model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declaration {
    /// What it is of.
    pub subject: Subject,
    /// The name of the struct.
    pub name: String,
    /// Every field, in the order of the text.
    pub fields: Vec<Field>,
    /// Mistakes of form: a value that is missing, a comma, a bracket. The field at fault, if its name is known, is in
    /// `fields` too, at the place of its problem, so that nobody calls it missing.
    pub problems: Vec<Problem>,
}

impl Declaration {
    /// The Shape it declares.
    ///
    /// # Errors
    /// Every mistake, in the order of the text. Where the form is wrong, what the value would mean is not judged.
    pub fn shape(&self) -> Result<Shape, Vec<Problem>> {
        self.read(shape::parse)
    }

    /// What it declares.
    ///
    /// # Errors
    /// As [`Self::shape`].
    pub fn declared(&self) -> Result<Declared, Vec<Problem>> {
        match self.subject {
            Subject::Model => self.shape().map(|shape| Declared::Model(Box::new(shape))),
            Subject::Attention => self.read(shape::parse_attention).map(Declared::Attention),
        }
    }

    /// What `parse` makes of its fields.
    ///
    /// # Errors
    /// As [`Self::shape`].
    pub fn read<T>(
        &self,
        parse: impl FnOnce(&[Field]) -> Result<T, Vec<Problem>>,
    ) -> Result<T, Vec<Problem>> {
        let found = match parse(&self.fields) {
            Ok(result) if self.problems.is_empty() => return Ok(result),
            result => result.err().unwrap_or_default(),
        };
        let mut problems = self.problems.clone();
        for problem in found {
            let is_known = self.problems.iter().any(|known| known.at.is_some() && known.at == problem.at);
            if !is_known {
                problems.push(problem);
            }
        }
        problems.sort_by_key(|problem| problem.at.map_or(usize::MAX, |place| place.0));
        problems.iter_mut().for_each(|problem| problem.message = one_line(&problem.message));
        Err(problems)
    }
}

/// Characters that are shown of either end of a long message.
const END: usize = 600;

/// A message as one line, whatever of the declaration it quotes: line ends and the like escaped, the middle left out
/// where it is too long to be read.
fn one_line(message: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    let n = message.chars().count();
    if n <= 2 * END {
        return message.chars().map(escape).collect();
    }
    let (start, end) = (message.chars().take(END), message.chars().skip(n - END));
    start.map(escape).collect::<String>() + " ... " + &end.map(escape).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::arch;
    use kernwright_plan::ops::activation::ActivationKind;
    use kernwright_plan::shape::{ATTENTION_FIELDS, FIELDS, Kind, PLANNED};

    #[test]
    fn what_a_message_quotes_neither_breaks_nor_floods_it() {
        let message = |text: &str| {
            let problems =
                crate::toml::read("Brain", &format!("[model]\n{text}")).shape().expect_err("no model");
            let quoted = problems.into_iter().find(|problem| problem.message.starts_with("`a"));
            quoted.expect("it is told").message
        };
        assert!(message("\"aa\\nb\\u001b\" = 1").starts_with("`aa\\nb\\u{1b}` is not a field of `model`"));
        let long = message(&format!("{} = 1", "a".repeat(5000)));
        assert_eq!(long.chars().count(), 2 * END + 5);
        assert!(long.starts_with("`aaaa") && long.contains("aaa ... "), "{long}");
    }

    #[test]
    fn every_field_lies_in_a_known_section() {
        for row in FIELDS {
            let section = row.path.split('.').next().unwrap_or_default();
            assert!(SECTIONS.contains(&section), "{}", row.path);
        }
    }

    /// The text of `docs/attribute.md` is written by hand; the table decides.
    #[test]
    fn the_documentation_has_every_field_with_its_default() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/attribute.md");
        let Ok(text) = std::fs::read_to_string(path) else {
            return; // Packaged without the repository.
        };
        let rows_of = |section: &str| {
            let start = text.find(&format!("### `#[{section}(...)]`")).expect("the section has a heading");
            let rest = &text[start + 3..];
            rest[..rest.find("\n#").unwrap_or(rest.len())].to_owned()
        };
        for row in FIELDS {
            let (section, key) = row.path.split_once('.').expect("a path has a section");
            let rows = rows_of(section);
            let line = rows.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
            let line = line.unwrap_or_else(|| panic!("`{}` is not documented", row.path));
            let expected = if PLANNED.contains(&row.path) { "| not yet |" } else { "| yes |" };
            assert!(line.ends_with(expected), "`{}`: {line}", row.path);
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let is_same = match row.kind {
                Kind::Flag => cells[2] == "flag",
                Kind::Choice(words) | Kind::FlagOrChoice(words) => {
                    words().iter().all(|word| cells[2].contains(&format!("`{word}`")))
                }
                Kind::List(_) => cells[2] == row.allowed(),
                Kind::Count { .. } | Kind::Real { .. } => cells[2] == row.allowed(),
            };
            assert!(is_same, "`{}` takes {}: {line}", row.path, row.allowed());
            let default = match (row.default, row.kind) {
                (None, _) => "-",
                (Some(default), Kind::Flag | Kind::FlagOrChoice(_)) if default.starts_with("absent") => "off",
                (Some(default), _) => default,
            };
            let plain = |text: &str| text.replace(['`', '_'], "");
            assert_eq!(plain(cells[3]), plain(default), "default of `{}`: {line}", row.path);
        }
        for kind in ActivationKind::ALL {
            assert!(rows_of("feed_forward").contains(&format!("`{}`", kind.name())), "{}", kind.name());
        }
        for arch in arch::ALL {
            assert!(rows_of("target").contains(&format!("`{}`", arch.name)), "{}", arch.name);
        }
        for section in SECTIONS {
            assert!(!rows_of(section).is_empty());
        }
    }

    #[test]
    fn the_documentation_of_attention_alone_has_every_field_with_its_default() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/attention.md");
        let Ok(text) = std::fs::read_to_string(path) else {
            return; // Packaged without the repository.
        };
        for row in ATTENTION_FIELDS {
            let line = text.lines().find(|line| {
                line.starts_with(&format!("| `{}` |", row.path.trim_start_matches("attention.")))
            });
            let line = line.unwrap_or_else(|| panic!("`{}` is not documented", row.path));
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let value = if matches!(row.kind, Kind::Flag) { "flag".to_owned() } else { row.allowed() };
            let default = match (row.default, row.kind) {
                (None, _) => "-",
                (Some("absent"), Kind::Flag) => "off",
                (Some(default), _) => default,
            };
            let plain = |text: &str| text.replace('`', "");
            assert_eq!((cells[2], plain(cells[3])), (&*value, plain(default)), "`{}`: {line}", row.path);
        }
        let (_, example) = text.split_once("```rust\n").expect("there is an example");
        let from = example.find("#[derive").expect("it declares something");
        let declared =
            &example[from..example.find("struct Seed;").expect("on a struct") + "struct Seed;".len()];
        let input = syn::parse_str(declared).expect("it is Rust");
        assert!(crate::tokens::read_as(Subject::Attention, &input).declaration.declared().is_ok());
    }

    #[test]
    fn the_documented_examples_declare_one_shape() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/attribute.md");
        let Ok(text) = std::fs::read_to_string(path) else {
            return; // Packaged without the repository.
        };
        let block = |language: &str| {
            let (_, rest) = text.split_once(&format!("```{language}\n")).expect("there is an example");
            rest.split_once("```").expect("it ends").0
        };
        let rust = syn::parse_str(block("rust")).expect("it is a struct");
        let shape = crate::tokens::read(&rust).declaration.shape();
        assert_eq!(shape.as_ref().map(|shape| shape.targets.len()), Ok(2));
        assert_eq!(crate::toml::read("Brain", block("toml")).shape(), shape);
    }
}
