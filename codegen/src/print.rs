//! The front ends backwards: the flat text of a Shape becomes attributes, or TOML, that declare the same.
//!
//! In: `path = value` lines. Out: text. Must not know any field name: `name`, `name(...)`, `name = value` and
//! `name = word(...)` are all there is, as in `tokens`.

use kernwright_plan::field::{Value, read_text};
use kernwright_plan::shape::{Shape, parse_text};

/// Attributes longer than this are broken into a line per item.
const LINE: usize = 110;

/// A name, what it is worth, and its settings.
struct Node {
    name: String,
    value: Value,
    below: Vec<Node>,
}

impl Node {
    /// Lines become a tree; the roots are the sections.
    fn roots(text: &str) -> Vec<Self> {
        let mut root = Self { name: String::new(), value: Value::Flag, below: Vec::new() };
        for field in read_text(text) {
            let node = field.path.split('.').fold(&mut root, |node, name| {
                let index = node.below.iter().position(|other| other.name == name).unwrap_or_else(|| {
                    node.below.push(Self { name: name.to_owned(), value: Value::Flag, below: Vec::new() });
                    node.below.len() - 1
                });
                &mut node.below[index]
            });
            node.value = field.value;
        }
        root.below
    }

    /// Is it a flag that is on?
    fn is_on(&self) -> bool {
        self.value == Value::Flag || self.value == Value::Word("true".to_owned())
    }
}

/// `#[model(...)]` and the other sections.
#[must_use]
pub fn attributes(text: &str) -> String {
    let mut all = String::new();
    for section in Node::roots(text) {
        let items: Vec<_> = section.below.iter().map(item).collect();
        let line = format!("#[{}({})]\n", section.name, items.join(", "));
        if line.chars().count() <= LINE {
            all.push_str(&line);
            continue;
        }
        all.push_str(&format!("#[{}(\n", section.name));
        for item in items {
            all.push_str(&format!("    {item},\n"));
        }
        all.push_str(")]\n");
    }
    all
}

fn item(node: &Node) -> String {
    let settings: Vec<_> = node.below.iter().map(item).collect();
    let settings = if settings.is_empty() { String::new() } else { format!("({})", settings.join(", ")) };
    match node.is_on() {
        true => format!("{}{settings}", node.name),
        false => format!("{} = {}{settings}", node.name, value(&node.value, "")),
    }
}

/// A table per section; one that only names flags is a list in front of them.
#[must_use]
pub fn toml(text: &str) -> String {
    let roots = Node::roots(text);
    let is_list = |section: &&Node| section.below.iter().all(|node| node.is_on() && node.below.is_empty());
    let (lists, tables): (Vec<&Node>, Vec<&Node>) = roots.iter().partition(is_list);
    let mut parts = Vec::new();
    for section in lists {
        let names: Vec<_> = section.below.iter().map(|node| format!("\"{}\"", node.name)).collect();
        parts.push(format!("{} = [{}]\n", section.name, names.join(", ")));
    }
    for section in tables {
        let lines = section.below.iter().map(|node| format!("{}\n", entry(node)));
        parts.push(format!("[{}]\n{}", section.name, lines.collect::<String>()));
    }
    parts.join("\n")
}

fn entry(node: &Node) -> String {
    let own = if node.is_on() { "true".to_owned() } else { value(&node.value, "\"") };
    if node.below.is_empty() {
        return format!("{} = {own}", node.name);
    }
    let is = if node.is_on() { None } else { Some(format!("is = {own}")) };
    let settings = is.into_iter().chain(node.below.iter().map(entry));
    format!("{} = {{ {} }}", node.name, settings.collect::<Vec<_>>().join(", "))
}

/// A value; `quote` stands around words.
fn value(value: &Value, quote: &str) -> String {
    match value {
        Value::Word(word) if word == "true" || word == "false" => word.clone(),
        Value::Word(word) => format!("{quote}{word}{quote}"),
        Value::Int(number) => grouped(*number),
        Value::List(values) => {
            let values: Vec<_> = values.iter().map(|one| self::value(one, quote)).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Flag => "true".to_owned(),
        Value::Float(_) | Value::Text(_) => value.to_string(),
    }
}

/// `32_000`: numbers of five digits and more are hard to read otherwise.
fn grouped(number: i128) -> String {
    let digits = number.unsigned_abs().to_string();
    let sign = if number < 0 { "-" } else { "" };
    if digits.len() < 5 {
        return format!("{sign}{digits}");
    }
    let first = digits.len() % 3;
    let (head, tail) = digits.split_at(first);
    let groups = tail.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    let groups: Vec<_> =
        Some(head.to_owned()).filter(|head| !head.is_empty()).into_iter().chain(groups).collect();
    format!("{sign}{}", groups.join("_"))
}

/// The lines of a Shape that are not what they would be without being said, its targets among them.
#[must_use]
pub fn brief(shape: &Shape) -> String {
    let text = format!("{}{}", shape.text(), shape.targets_text());
    let mut lines: Vec<&str> = text.lines().collect();
    let path = |line: &str| line.split(" = ").next().unwrap_or(line).to_owned();
    // From the end, so that settings go before what they belong to.
    for index in (0..lines.len()).rev() {
        let settings = format!("{}.", path(lines[index]));
        if lines.iter().any(|line| line.starts_with(&settings)) {
            continue;
        }
        let mut fewer = lines.clone();
        fewer.remove(index);
        if parse_text(&fewer.join("\n")).is_ok_and(|other| other == *shape) {
            lines = fewer;
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::arch;
    use kernwright_plan::shape::presets;
    use std::collections::BTreeMap;

    fn from_attributes(text: &str) -> Result<Shape, String> {
        let item = syn::parse_str(&format!("{text}struct Brain;")).map_err(|error| error.to_string())?;
        crate::tokens::read(&item).declaration.shape().map_err(|problems| format!("{problems:?}"))
    }

    fn from_toml(text: &str) -> Result<Shape, String> {
        crate::toml::read("Brain", text).shape().map_err(|problems| format!("{problems:?}"))
    }

    /// Each way to print it, read again.
    fn check(shape: &Shape) {
        let whole = format!("{}{}", shape.text(), shape.targets_text());
        for text in [whole, brief(shape)] {
            for (read, printed) in [
                (from_attributes(&attributes(&text)), attributes(&text)),
                (from_toml(&toml(&text)), toml(&text)),
            ] {
                assert_eq!(read.as_ref(), Ok(shape), "{printed}");
            }
        }
    }

    #[test]
    fn every_preset_survives_being_printed() {
        for preset in presets::ALL {
            let mut shape = preset.shape();
            check(&shape);
            shape.targets = vec![arch::ALL[3].clone(), arch::ALL[0].clone()];
            check(&shape);
            let new = arch::Arch {
                name: "sm_130a".into(),
                like: Some("sm_90a".into()),
                nvrtc: None,
                ..arch::ALL[4].clone()
            };
            shape.targets.push(new);
            check(&shape);
        }
    }

    #[test]
    fn random_shapes_survive_being_printed() {
        // What each field is worth in some preset; a shape is a preset with some of them exchanged.
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let texts: Vec<String> = presets::ALL.iter().map(|preset| preset.text()).collect();
        for line in texts.iter().flat_map(|text| text.lines()) {
            let (path, value) = line.split_once(" = ").expect("a canonical line");
            values.entry(path.to_owned()).or_default().push(value.to_owned());
        }
        let mut state = 7_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut n_shapes = 0;
        for _ in 0..400 {
            let mut text = String::new();
            for line in texts[random(texts.len())].lines() {
                let (path, value) = line.split_once(" = ").expect("a canonical line");
                let all = &values[path];
                let value = match (random(4), value) {
                    (0, "true") => "false",
                    (0, "false") => "true",
                    (1, _) => &all[random(all.len())],
                    _ => value,
                };
                text.push_str(&format!("{path} = {value}\n"));
            }
            if let Ok(shape) = parse_text(&text) {
                check(&shape);
                n_shapes += 1;
            }
        }
        assert!(n_shapes > 20, "only {n_shapes} of them are shapes");
    }

    #[test]
    fn what_is_as_without_being_said_is_left_out() {
        let tiny = presets::find("tiny").expect("a preset").shape();
        let text = attributes(&brief(&tiny));
        assert_eq!(
            text,
            "#[model(vocab = 256, context = 256, d_model = 128, layers = 5, tied)]\n\
             #[attention(heads = 4, kv_heads = 2, rope)]\n#[feed_forward(swiglu, d_ff = 352)]\n"
        );
        let tables = toml(
            "target.sm_86\nmodel.norm = layer\nmodel.norm.eps = 1e-6\nmodel.vocab = 50257\n\
            model.pattern = [local, global]\nmodel.tied = false\nattention.rope\nattention.rope.theta = 1e4\n",
        );
        assert_eq!(
            tables,
            "target = [\"sm_86\"]\n\n[model]\nnorm = { is = \"layer\", eps = 1e-6 }\nvocab = 50_257\n\
             pattern = [\"local\", \"global\"]\ntied = false\n\n[attention]\nrope = { theta = 10000.0 }\n"
        );
    }

    #[test]
    fn long_sections_have_a_line_per_item() {
        let gpt2 = presets::find("gpt2-124m").expect("a preset").shape();
        let text = attributes(&gpt2.text());
        assert!(text.contains("#[model(\n    vocab = 50_257,\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= LINE), "{text}");
        for (number, wanted) in
            [(9999, "9999"), (10_000, "10_000"), (-1_234_567, "-1_234_567"), (123_456, "123_456")]
        {
            assert_eq!(grouped(number), wanted);
        }
    }
}
