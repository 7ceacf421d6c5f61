//! The front end for files: the same fields as TOML.
//!
//! In: text. Out: a [`Declaration`] whose places are bytes of the text, which [`locate`] finds again. A section is a table, a flag is `true`,
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
    let mut reader = Reader { declaration };
    for error in errors {
        let at = error.span().map(|span| Place(span.start));
        reader.declaration.problems.push(Problem { at, message: error.message().to_owned() });
    }
    reader.table("", table.get_ref());
    reader.declaration.fields.sort_by_key(|field| field.at);
    reader.declaration
}

struct Reader {
    declaration: Declaration,
}

/// A problem as one line that terminals and editors follow: `brain.toml:4:9: ...`, lines and characters from 1.
#[must_use]
pub fn locate(file: &str, text: &str, problem: &Problem) -> String {
    // A section is a table here, and so is what has settings.
    let message = problem.message.replace("#[", "[").replace("(...)]", "]");
    let message = message.replace("takes nothing in parentheses", "takes no settings");
    let Some(Place(byte)) = problem.at else { return format!("{file}: {message}") };
    let before = &text.as_bytes()[..byte.min(text.len())];
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let column = 1 + String::from_utf8_lossy(&before[start..]).chars().count();
    format!("{file}:{line}:{column}: {message}")
}

impl Reader {
    fn field(&mut self, path: &str, value: Value, at: Place, value_at: Place) {
        self.declaration.fields.push(Field { path: path.to_owned(), value, at, value_at });
    }

    fn table(&mut self, path: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let name = key.get_ref();
            if self.is_dotted(name, key.span().start) {
                continue;
            }
            if name == "is" && !path.is_empty() {
                continue; // It was read as the value of the table itself.
            }
            let path = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
            let at = Place(key.span().start);
            self.entry(&path, value, at);
        }
    }

    fn entry(&mut self, path: &str, value: &Spanned<DeValue<'_>>, at: Place) {
        let value_at = Place(value.span().start);
        match value.get_ref() {
            DeValue::Table(table) => {
                match table.get("is").map(|is| (is, scalar(is.get_ref()))) {
                    Some((is, Some(word))) => {
                        let value_at = Place(is.span().start);
                        self.field(path, word, at, value_at);
                    }
                    Some((is, None)) => self.broken(path, is, "`is` must be a word"),
                    None => self.field(path, Value::Flag, at, at),
                }
                self.table(path, table);
            }
            DeValue::Array(items) if !path.contains('.') && items.iter().any(is_table) => {
                let message = format!("`{path}` must be one table, as in `[{path}]`, found a list of tables");
                self.declaration.problems.push(Problem { at: Some(at), message });
                self.field(path, Value::Flag, at, at);
                for item in items.iter() {
                    if let DeValue::Table(table) = item.get_ref() {
                        self.table(path, table);
                    }
                }
            }
            DeValue::Array(items) if !path.contains('.') => {
                self.field(path, Value::Flag, at, at);
                for item in items.iter() {
                    match item.get_ref() {
                        DeValue::String(name) if self.is_dotted(name, item.span().start) => {}
                        DeValue::String(name) => {
                            let at = Place(item.span().start);
                            self.field(&format!("{path}.{name}"), Value::Flag, at, at);
                        }
                        _ => self.problem(item, &format!("`{path}` must be a list of names in quotes")),
                    }
                }
            }
            DeValue::Array(items) => {
                let key = path.rsplit('.').next().unwrap_or(path);
                match items.iter().find(|item| scalar(item.get_ref()).is_none()) {
                    Some(item) => self.broken(path, item, &format!("`{key}` is a list of words and numbers")),
                    None => {
                        let items = items.iter().filter_map(|item| scalar(item.get_ref()));
                        self.field(path, Value::List(items.collect()), at, value_at);
                    }
                }
            }
            other => {
                let value = scalar(other).unwrap_or_else(|| Value::Text(kind(other)));
                self.field(path, value, at, value_at);
            }
        }
    }

    /// A dot parts fields: a name with one in it, which quotes allow, would be read as several.
    fn is_dotted(&mut self, name: &str, at: usize) -> bool {
        let is_dotted = name.contains('.');
        if is_dotted {
            let message = format!("a name must be without dots, found `{name:?}`");
            self.declaration.problems.push(Problem { at: Some(Place(at)), message });
        }
        is_dotted
    }

    fn problem(&mut self, found: &Spanned<DeValue<'_>>, message: &str) {
        let at = Some(Place(found.span().start));
        let message = format!("{message}, found {}", kind(found.get_ref()));
        self.declaration.problems.push(Problem { at, message });
    }

    /// A field whose name is known and whose form is wrong, at the place of its problem.
    fn broken(&mut self, path: &str, found: &Spanned<DeValue<'_>>, message: &str) {
        self.problem(found, message);
        let at = Place(found.span().start);
        self.field(path, Value::Text(String::new()), at, at);
    }
}

/// What is neither a list nor a table.
fn scalar(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::Integer(int) => match i128::from_str_radix(int.as_str(), int.radix()) {
            Ok(value) => Value::Int(value),
            Err(_) => Value::Word(int.to_string()),
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
        DeValue::Datetime(value) => Value::Word(value.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => return None,
    })
}

fn is_table(item: &Spanned<DeValue<'_>>) -> bool {
    matches!(item.get_ref(), DeValue::Table(_))
}

/// What a value is, for a message.
fn kind(value: &DeValue<'_>) -> String {
    match (value, scalar(value)) {
        (DeValue::Array(_), _) => "a list".to_owned(),
        (_, Some(value)) => format!("`{value}`"),
        _ => "a table".to_owned(),
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
        let tokens = crate::tokens::read(&syn::parse_str(source).expect("it is Rust")).declaration;
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
            let problem = Problem { at: Some(field.at), message: String::new() };
            assert!(locate("x", TEXT, &problem).starts_with(&format!("x:{line}:")), "{path}");
        }
        assert_eq!(toml.shape().map(|shape| shape.pattern.len()), Ok(2));
        let problems = read("Brain", &TEXT.replace("layers = 16", "layers = 0")).shape();
        let problems = problems.expect_err("a model has layers");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(locate("x", TEXT, &problems[0]).starts_with("x:6:"), "{problems:?}");
    }

    #[test]
    fn settings_nest_as_tables_do() {
        let declaration = read(
            "Brain",
            r#"
            [attention.rope]
            theta = 5e5
            scaling = { is = "llama3", factor = 32.0, original_context = 8192 }
            [attention.local]
            window = { left = 4095, right = 0 }
            rope = { theta = 1e4 }
            [model]
            biases = ["all", "head"]
            "#,
        );
        assert_eq!(declaration.problems, []);
        let fields: Vec<_> =
            declaration.fields.iter().map(|field| format!("{} = {}", field.path, field.value)).collect();
        for wanted in [
            "attention.rope = nothing",
            "attention.rope.theta = 500000.0",
            "attention.rope.scaling = llama3",
            "attention.rope.scaling.factor = 32.0",
            "attention.rope.scaling.original_context = 8192",
            "attention.local = nothing",
            "attention.local.window = nothing",
            "attention.local.window.left = 4095",
            "attention.local.window.right = 0",
            "attention.local.rope = nothing",
            "attention.local.rope.theta = 10000.0",
            "model.biases = [all, head]",
        ] {
            assert!(fields.iter().any(|field| field == wanted), "{wanted} is in {fields:#?}");
        }
    }

    #[test]
    fn mistakes_of_form_have_their_lines() {
        for (text, place, message) in [
            ("[model]\nx = [\n\"a\",\n[\"b\"]]", "4:1", "`x` is a list of words and numbers, found a list"),
            ("[model]\nx = [{ is = \"a\" }]", "2:6", "`x` is a list of words and numbers, found a table"),
            ("[model]\nx = { is = [\"a\"] }", "2:12", "`is` must be a word, found a list"),
            ("[model.x]\ny = 1\nis.is = \"a\"", "3:1", "`is` must be a word, found a table"),
            ("target = [\"sm_86\",\n86]", "2:1", "`target` must be a list of names in quotes, found `86`"),
            (
                "[[target]]\nsm_86 = true",
                "1:3",
                "`target` must be one table, as in `[target]`, found a list of tables",
            ),
            ("[model]\n\"norm.eps\" = 1", "2:1", "a name must be without dots, found `\"norm.eps\"`"),
            ("target = [\"sm_../x\"]", "1:11", "a name must be without dots, found `\"sm_../x\"`"),
        ] {
            let problems = read("Brain", text).problems;
            let located: Vec<_> = problems.iter().map(|problem| locate("x", text, problem)).collect();
            assert_eq!(located, [format!("x:{place}: {message}")], "{text}");
        }
    }

    #[test]
    fn sections_that_are_lists_of_tables_are_one_problem() {
        let text = TEXT.replace("[model]", "[[model]]");
        let problems = read("Brain", &text).shape().expect_err("it is a list");
        let located: Vec<_> = problems.iter().map(|problem| locate("x", &text, problem)).collect();
        assert_eq!(located, ["x:3:3: `model` must be one table, as in `[model]`, found a list of tables"]);
    }

    #[test]
    fn settings_of_what_has_none_are_told_in_words_of_toml() {
        let text = TEXT.replace("tied = true", "tied = { much = true }");
        let problems = read("Brain", &text).shape().expect_err("it has no settings");
        let located: Vec<_> = problems.iter().map(|problem| locate("x", &text, problem)).collect();
        assert_eq!(located, ["x:7:10: `tied` takes no settings, found `much`"]);
    }

    #[test]
    fn what_no_field_takes_is_found_as_it_is_written() {
        for value in ["99999999999999999999999999999999999999999", "1979-05-27"] {
            let text = TEXT.replace("768", value);
            let problems = read("Brain", &text).shape().expect_err("it is no width");
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].message.ends_with(&format!("found `{value}`")), "{problems:?}");
        }
    }

    #[test]
    fn what_is_no_toml_is_a_problem_with_its_line() {
        let toml = read("Brain", "[model]\nvocab = \nlayers = 3\n");
        assert_eq!(toml.problems.len(), 1, "{:?}", toml.problems);
        let text = "[model]\nvocab = \nlayers = 3\n";
        assert!(locate("a.toml", text, &toml.problems[0]).starts_with("a.toml:2:9: "));
        let problem = Problem { at: Some(Place("# ü\nä = ".len())), message: "m".into() };
        assert_eq!(locate("a.toml", "# ü\nä = 3", &problem), "a.toml:2:5: m");
    }
}
