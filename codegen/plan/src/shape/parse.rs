//! Fields -> Shape, or all the problems at once.
//!
//! Every value goes through the table in `fields`; relations between fields are checked afterwards, on whatever
//! could be read, so that one mistake does not hide another.

mod alone;
mod attention;
mod sections;

pub use alone::{parse_attention, parse_attention_text};

use super::Shape;
use super::fields::{FIELDS, FieldRow, Kind, Language, MODEL};
use super::suggestion::{key, meant, unknown};
use super::targets;
use crate::field::{Field, Place, Problem, Value, read_text};

/// Reads a whole declaration. Problems come in the order of their places.
///
/// # Errors
/// Every problem there is: unknown, repeated, missing or misplaced fields, values out of bounds, values at odds.
pub fn parse(fields: &[Field]) -> Result<Shape, Vec<Problem>> {
    read(fields, MODEL, Reader::shape)
}

/// Reads a declaration in one of the languages, of which `whole` makes what it declares.
fn read<'a, T>(
    fields: &'a [Field],
    language: Language,
    whole: impl FnOnce(&mut Reader<'a>) -> Option<T>,
) -> Result<T, Vec<Problem>> {
    let mut reader = Reader { fields, language, problems: Vec::new(), misspelt: Vec::new() };
    reader.check_paths();
    match whole(&mut reader) {
        Some(declared) if reader.problems.is_empty() => Ok(declared),
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
    parse(&read_text(text)).map_err(|problems| in_lines(&problems))
}

/// The problems of a text, each with its line number in front.
fn in_lines(problems: &[Problem]) -> String {
    let lines = problems.iter().map(|problem| match problem.at {
        Some(Place(line)) => format!("line {line}: {}", problem.message),
        None => problem.message.clone(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

struct Reader<'a> {
    fields: &'a [Field],
    language: Language,
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
        let known = (self.language.paths)();
        let fields = self.fields;
        let is_unknown = |path: &str| !known.iter().any(|known| known == path) && !targets::is_below(path);
        for (index, field) in fields.iter().enumerate() {
            let above = field.path.match_indices('.').map(|(at, _)| &field.path[..at]);
            let mut above = above.filter(|above| is_unknown(above));
            if above.any(|above| self.find(above).is_some()) {
                continue; // What is in something unknown is no mistake of its own.
            }
            if !known.contains(&field.path) && !targets::is_below(&field.path) {
                self.misspelt.extend(meant(&field.path, &known));
                self.problem(Some(field.at), unknown(&field.path, &known));
            } else if fields[..index].iter().any(|earlier| earlier.path == field.path) {
                self.problem(Some(field.at), format!("`{}` is given twice", key(&field.path)));
            } else if !field.path.contains('.') && field.value != Value::Flag {
                let (section, found) = (&field.path, &field.value);
                self.problem(
                    Some(field.value_at),
                    format!("`{section}` is a section, found `{found}`: give fields of it, `{section}.NAME = VALUE`"),
                );
            }
        }
    }

    fn row(&self, path: &str) -> &'static FieldRow {
        (self.language.find)(path).unwrap_or(&FIELDS[0])
    }

    fn wrong(&mut self, field: &Field, key: &str, allowed: &str) {
        let found = match &field.value {
            Value::Flag => "found no value".to_owned(),
            value => format!("found `{value}`"),
        };
        self.problem(Some(field.value_at), format!("`{key}` must be {allowed}, {found}"));
    }

    /// The section's own place, for a field that is missing in it; a missing section is one problem, not many.
    fn missing(&mut self, path: &str, row: &FieldRow) {
        let is_in =
            |other: &String| path.strip_prefix(&**other).is_some_and(|r| r.is_empty() || r.starts_with('.'));
        if self.misspelt.iter().any(is_in) {
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
        let row = self.row(path);
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
        let row = self.row(path);
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
        self.wrong(&field, key(path), &self.row(path).allowed());
        default
    }

    /// A list of words, or one word; `None` when the field is absent or wrong. An empty list is wrong.
    fn words(&mut self, path: &str) -> Option<Vec<String>> {
        let field = self.find(path).cloned()?;
        let Kind::List(allowed) = self.row(path).kind else { return None };
        let values = match &field.value {
            Value::List(values) => values.clone(),
            value => vec![value.clone()],
        };
        let words = values.iter().map(|value| match value {
            Value::Word(word) if allowed().contains(&word.as_str()) => Some(word.clone()),
            _ => None,
        });
        let words: Option<Vec<_>> = words.collect();
        if words.as_ref().is_none_or(Vec::is_empty) {
            self.wrong(&field, key(path), &self.row(path).allowed());
            return None;
        }
        words
    }

    /// Has it settings and no value of its own, as in `norm(eps = 1e-6)`?
    fn has_settings_alone(&self, path: &str) -> bool {
        let is_below =
            |field: &Field| field.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        self.find(path).is_some_and(|field| field.value == Value::Flag) && self.fields.iter().any(is_below)
    }

    /// Was something wrong with its value? Then what follows from it is no mistake of its own.
    fn is_wrong(&self, path: &str) -> bool {
        let is_at = |field: &Field| self.problems.iter().any(|problem| problem.at == Some(field.value_at));
        self.find(path).is_some_and(is_at)
    }

    /// A problem at a field that needs another one to have a meaning.
    fn needs(&mut self, path: &str, other: &str) {
        if let Some(at) = self.find(path).map(|field| field.at) {
            self.problem(Some(at), format!("`{}` has a meaning only with `{other}`", key(path)));
        }
    }
}

#[cfg(test)]
mod tests;
