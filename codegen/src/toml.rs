//! The front end for files: the same fields as TOML.
//!
//! In: text. Out: a [`Declaration`] whose places are line numbers, from 1. A section is a table, a flag is `true`,
//! a word is a string; the key `is` of a table holds the value of what has settings; an array at the top is a list
//! of flags. Must not know any other key.

use crate::declaration::Declaration;
use kernwright_plan::field::{Field, Place, Problem, Value, read_value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Reads a declaration called `name`.
#[must_use]
pub fn read(name: &str, text: &str) -> Declaration {
    let (table, errors) = DeTable::parse_recoverable(text);
    let declaration = Declaration { name: name.to_owned(), ..Declaration::default() };
    let mut reader = Reader { text, declaration };
    for error in errors {
        let at = error.span().map(|span| reader.line(span.start));
        reader.declaration.problems.push(Problem { at, message: error.message().to_owned() });
    }
    reader.table("", table.get_ref());
    reader.declaration.fields.sort_by_key(|field| field.at);
    reader.declaration
}

struct Reader<'a> {
    text: &'a str,
    declaration: Declaration,
}

impl Reader<'_> {
    fn line(&self, byte: usize) -> Place {
        let before = self.text.as_bytes().get(..byte).unwrap_or(self.text.as_bytes());
        Place(1 + before.iter().filter(|byte| **byte == b'\n').count())
    }

    fn field(&mut self, path: &str, value: Value, at: Place, value_at: Place) {
        self.declaration.fields.push(Field { path: path.to_owned(), value, at, value_at });
    }

    fn table(&mut self, path: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let name = key.get_ref();
            if name == "is" && !path.is_empty() {
                continue; // It was read as the value of the table itself.
            }
            let path = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
            let at = self.line(key.span().start);
            self.entry(&path, value, at);
        }
    }

    fn entry(&mut self, path: &str, value: &Spanned<DeValue<'_>>, at: Place) {
        match value.get_ref() {
            DeValue::Table(table) => {
                match table.get("is") {
                    Some(is) => self.entry(path, is, at),
                    None => self.field(path, Value::Flag, at, at),
                }
                self.table(path, table);
            }
            DeValue::Array(items) if !path.contains('.') => {
                self.field(path, Value::Flag, at, at);
                for item in items.iter() {
                    let at = self.line(item.span().start);
                    self.field(&format!("{path}.{}", plain(item.get_ref())), Value::Flag, at, at);
                }
            }
            DeValue::Array(items) => {
                let items: Vec<_> = items.iter().map(|item| plain(item.get_ref())).collect();
                let value_at = self.line(value.span().start);
                self.field(path, Value::Text(format!("[{}]", items.join(", "))), at, value_at);
            }
            other => {
                let value_at = self.line(value.span().start);
                self.field(path, scalar(other), at, value_at);
            }
        }
    }
}

fn scalar(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::Integer(int) => match i128::from_str_radix(int.as_str(), int.radix()) {
            Ok(value) => Value::Int(value),
            Err(_) => Value::Text(int.to_string()),
        },
        DeValue::Float(float) => match float.as_str().parse::<f64>() {
            Ok(value) => Value::Float(value),
            Err(_) => Value::Text(float.to_string()),
        },
        // A quoted number stays text: only words lose their quotes.
        DeValue::String(text) => match read_value(text) {
            Value::Word(word) => Value::Word(word),
            _ => Value::Text(text.to_string()),
        },
        DeValue::Boolean(value) => Value::Word(value.to_string()),
        other => Value::Text(plain(other)),
    }
}

/// A value inside a list, as the attribute would spell it.
fn plain(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(int) => int.to_string(),
        DeValue::Float(float) => float.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(value) => value.to_string(),
        DeValue::Array(_) => "[...]".to_owned(),
        DeValue::Table(_) => "{...}".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"target = ["sm_86", "sm_90a"]

[model]
vocab = 32_000
d_model = 768
layers = 16
tied = true
norm = { is = "layer", eps = 1e-6 }
pattern = ["local", "global"]

[attention]
heads = 12
rope = { theta = 5e5 }
full = false

[feed_forward]
gelu_tanh = true
d_ff = 0x400
"#;

    #[test]
    fn tables_become_the_same_fields_as_attributes() {
        let toml = read("Brain", TEXT);
        assert_eq!(toml.problems, []);
        let source = "#[target(sm_86, sm_90a)] #[model(vocab = 32_000, d_model = 768, layers = 16, tied = true, \
            norm = layer(eps = 1e-6), pattern = [local, global])] \
            #[attention(heads = 12, rope(theta = 5e5), full = false)] \
            #[feed_forward(gelu_tanh = true, d_ff = 0x400)] struct Brain;";
        let (tokens, _) = crate::tokens::read(&syn::parse_str(source).expect("it is Rust"));
        let sorted = |declaration: &Declaration| {
            let mut fields: Vec<_> =
                declaration.fields.iter().map(|field| (field.path.clone(), field.value.clone())).collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            fields
        };
        assert_eq!(sorted(&toml), sorted(&tokens));
    }

    #[test]
    fn places_are_lines() {
        let toml = read("Brain", TEXT);
        for (path, line) in [
            ("target.sm_90a", 1),
            ("model", 3),
            ("model.vocab", 4),
            ("model.norm", 8),
            ("model.norm.eps", 8),
            ("attention.rope.theta", 13),
            ("feed_forward.d_ff", 18),
        ] {
            let field = toml.fields.iter().find(|field| field.path == path).expect("the field is there");
            assert_eq!(field.at, Place(line), "{path}");
        }
        let problems = toml.shape().expect_err("`pattern` is not parsed yet");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].at, Some(Place(9)));
    }

    #[test]
    fn what_is_no_toml_is_a_problem_with_its_line() {
        let toml = read("Brain", "[model]\nvocab = \nlayers = 3\n");
        assert_eq!(toml.problems.len(), 1, "{:?}", toml.problems);
        assert_eq!(toml.problems[0].at, Some(Place(2)));
    }
}
