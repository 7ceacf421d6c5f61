//! A field of a declaration, as every front end hands it over: a path, a value and a place.
//!
//! In: nothing. Out: [`Field`] and [`Problem`]. Must not know where the text came from: a [`Place`] is a number
//! that the front end gave out and alone can turn back into a span or a line.

use std::fmt;

/// A number the front end chose for a piece of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub usize);

/// The value of a field, before anybody knows what it means.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The field is named and nothing else: `tied`, or a section such as `#[model(...)]` itself.
    Flag,
    /// A whole number: `layers = 16`.
    Int(i128),
    /// A number with a point or an exponent: `eps = 1e-5`.
    Float(f64),
    /// A bare word: `precision = bf16`.
    Word(String),
    /// Several values: `pattern = [local, global]`.
    List(Vec<Value>),
    /// Something in quotes, or anything that is none of the others.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("nothing"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Word(value) => f.write_str(value),
            Self::List(values) => {
                f.write_str("[")?;
                for (index, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if index == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Self::Text(value) => write!(f, "{value:?}"),
        }
    }
}

/// One `path = value` of a declaration. A nested value is two fields: `norm = rms(eps = 1e-5)` arrives as
/// `model.norm = rms` and `model.norm.eps = 1e-5`. A section arrives as a [`Value::Flag`] at its own name.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Dotted path, section first: `model.norm.eps`.
    pub path: String,
    /// What was given.
    pub value: Value,
    /// Where the name was written.
    pub at: Place,
    /// Where the value was written (the name's place for a flag).
    pub value_at: Place,
}

/// One mistake: what is wrong, what was found, what is allowed; and where, unless something is missing altogether.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Place of the token at fault, or of the section that lacks something; `None` when the section is missing.
    pub at: Option<Place>,
    /// One line, lower case, no full stop.
    pub message: String,
}

/// Reads the flat text form: a line per field, `path = value` or `path` alone; blank lines and lines that begin
/// with `#` are skipped. The place of a field is its line number, from 1.
#[must_use]
pub fn read_text(text: &str) -> Vec<Field> {
    let mut fields = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = Place(index + 1);
        let (path, value) = match line.split_once('=') {
            Some((path, value)) => (path.trim(), read_value(value.trim())),
            None => (line, Value::Flag),
        };
        fields.push(Field { path: path.to_owned(), value, at, value_at: at });
    }
    fields
}

/// Reads one value from its text.
#[must_use]
pub fn read_value(text: &str) -> Value {
    if let Some(inside) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        let inside = inside.trim();
        let inside = inside.strip_suffix(',').unwrap_or(inside);
        let values = inside.split(',').map(|value| read_value(value.trim()));
        return Value::List(if inside.is_empty() { Vec::new() } else { values.collect() });
    }
    let digits = text.replace('_', "");
    if let Ok(value) = digits.parse::<i128>() {
        Value::Int(value)
    } else if let (true, Ok(value)) =
        (digits.starts_with(|c: char| "+-.0123456789".contains(c)), digits.parse())
    {
        Value::Float(value)
    } else if text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || c == '_')
    {
        Value::Word(text.to_owned())
    } else {
        Value::Text(text.trim_matches('"').to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_fields_with_line_numbers() {
        let fields = read_text("# a model\nmodel.vocab = 32_000\n\nmodel.tied\nmodel.norm.eps = 1e-5\n");
        assert_eq!(fields.len(), 3);
        assert_eq!((fields[0].value.clone(), fields[0].at), (Value::Int(32_000), Place(2)));
        assert_eq!((fields[1].value.clone(), fields[1].at), (Value::Flag, Place(4)));
        assert_eq!(fields[2].value, Value::Float(1e-5));
    }

    #[test]
    fn odd_values_keep_their_text() {
        assert_eq!(read_value("rms"), Value::Word("rms".into()));
        assert_eq!(read_value("-3"), Value::Int(-3));
        assert_eq!(read_value("nan"), Value::Word("nan".into()));
        assert_eq!(read_value("a b"), Value::Text("a b".into()));
    }

    #[test]
    fn lists_are_read_as_they_are_printed() {
        let list = Value::List(vec![Value::Word("local".into()), Value::Int(3)]);
        for text in ["[local, 3]", "[ local,3, ]"] {
            assert_eq!(read_value(text), list, "{text}");
        }
        assert_eq!(list.to_string(), "[local, 3]");
        assert_eq!(read_value("[]"), Value::List(Vec::new()));
        assert_eq!(read_value("[a,,b]").to_string(), "[a, \"\", b]");
    }
}
