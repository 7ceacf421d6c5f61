//! Reads a table of tiles from TOML.
//!
//! In: a file's name and its text. Out: a [`Table`], or every problem with its line, in words.

use super::{KERNELS, Kernel, LENGTHS, Measured, Row, Sizes, Table, When};
use crate::arch;
use crate::tile::Mask;
use std::ops::RangeInclusive;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What rows are for.
const CONDITIONS: [&str; 6] = ["head_dim", "group", "length", "mask", "softcap", "ordered"];

/// What rows tell readers.
const NOTES: [&str; 2] = ["microseconds", "before"];

/// What they tell of how much was measured.
const ON: &str = "measured_on";

/// What a table says of itself.
const HEAD: [&str; 4] = ["arch", "card", "precision", "note"];

/// Widest head.
const WIDEST: usize = 256;

/// Reads it.
///
/// # Errors
/// Every problem, as `file:line:column: what is wrong`.
pub fn read(file: &str, text: &str) -> Result<Table, Vec<String>> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader { file, text, problems: Vec::new() };
    for error in errors {
        reader.problem(error.span().map_or(0, |span| span.start), error.message().to_owned());
    }
    let table = reader.table(root.get_ref());
    if reader.problems.is_empty() { Ok(table) } else { Err(reader.problems) }
}

type Entry<'a> = Spanned<DeValue<'a>>;

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    problems: Vec<String>,
}

impl Reader<'_> {
    fn problem(&mut self, byte: usize, message: String) {
        let before = &self.text.as_bytes()[..byte.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let column = 1 + String::from_utf8_lossy(&before[start..]).chars().count();
        self.problems.push(format!("{}:{line}:{column}: {message}", self.file));
    }

    fn table(&mut self, root: &DeTable<'_>) -> Table {
        let mut table = Table::default();
        for (key, value) in root {
            let (name, at) = (&**key.get_ref(), value.span().start);
            match (name, value.get_ref()) {
                ("arch", DeValue::String(found)) if arch::custom::is_name(found) => {
                    table.arch = found.to_string()
                }
                ("arch", _) => {
                    self.problem(at, format!("`arch` must be a GPU such as `{}`", arch::ALL[0].name));
                }
                ("card", DeValue::String(found)) => table.card = found.to_string(),
                ("card", _) => self.problem(at, "`card` must be a card's name in quotes".to_owned()),
                (name, _) if HEAD.contains(&name) => {}
                (name, value) => match (KERNELS.iter().find(|kernel| kernel.name == name), value) {
                    (Some(kernel), DeValue::Array(rows)) => {
                        for row in rows.iter() {
                            table.rows.extend(self.row(kernel, row));
                        }
                    }
                    (Some(_), _) => self.problem(at, format!("`{name}` must be rows, as in `[[{name}]]`")),
                    (None, _) => {
                        let allowed = KERNELS.iter().map(|kernel| kernel.name).chain(HEAD);
                        let message =
                            format!("`{name}` is not a part of a table: allowed are {}", list(allowed));
                        self.problem(key.span().start, message);
                    }
                },
            }
        }
        // TOML's tables have no order of their own; rows of one kernel have.
        table.rows.sort_by_key(|row| KERNELS.iter().position(|kernel| kernel.name == row.kernel));
        if table.arch.is_empty() && self.problems.is_empty() {
            self.problem(0, "`arch` is missing: the GPU whose kernels were measured".to_owned());
        }
        table
    }

    fn row(&mut self, kernel: &Kernel, row: &Entry<'_>) -> Option<Row> {
        let n_before = self.problems.len();
        let at = row.span().start;
        let DeValue::Table(fields) = row.get_ref() else {
            self.problem(at, format!("a row must be a table, as in `[[{}]]`", kernel.name));
            return None;
        };
        let axes = (kernel.axes)();
        for (key, _) in fields {
            let name = &**key.get_ref();
            let is_axis = axes.iter().any(|(axis, _)| *axis == name);
            if !is_axis && !CONDITIONS.contains(&name) && !NOTES.contains(&name) && name != ON {
                let allowed = axes.iter().map(|(axis, _)| *axis).chain(CONDITIONS).chain(NOTES).chain([ON]);
                let message =
                    format!("`{name}` is not a field of `{}`: allowed are {}", kernel.name, list(allowed));
                self.problem(key.span().start, message);
            }
        }
        let when = self.when(fields, at);
        let mut values = Vec::new();
        for (name, is_flag) in axes {
            let found = fields.get(name);
            let place = found.map_or(at, |found| found.span().start);
            let value = found.map(|found| if is_flag { flag(found).map(usize::from) } else { count(found) });
            let must = if is_flag { "`true` or `false`" } else { "a whole number from 1 to 1024" };
            match value {
                Some(Some(value)) => values.push(value),
                Some(None) => self.problem(place, format!("`{name}` must be {must}")),
                None => {
                    self.problem(at, format!("`{name}` of `{}` is missing: it must be {must}", kernel.name));
                }
            }
        }
        let on = fields.get(ON).and_then(|found| {
            let on = sizes(found);
            if on.is_none() {
                let message = format!(
                    "`{ON}` must be query heads of all sequences, and the length of each: `[256, 1024]`"
                );
                self.problem(found.span().start, message);
            }
            on
        });
        let measured = NOTES.map(|name| fields.get(name).and_then(nanoseconds));
        let measured = match measured {
            [Some(now), Some(before)] => Some(Measured { now, before, on }),
            _ => None,
        };
        if let (Some(found), None) = (fields.get(ON), measured) {
            let message = format!("`{ON}` needs `microseconds` and `before`, which say what was measured");
            self.problem(found.span().start, message);
        }
        (self.problems.len() == n_before).then_some(Row { when, kernel: kernel.name, values, measured })
    }

    fn when(&mut self, fields: &DeTable<'_>, at: usize) -> When {
        let mut when =
            When { head_dim: 8..=WIDEST, group: 1, length: None, mask: None, softcap: false, ordered: None };
        let mut wrong = |found: &Entry<'_>, message: String| self.problem(found.span().start, message);
        match fields.get("head_dim") {
            Some(found) => match widths(found) {
                Some(widths) => when.head_dim = widths,
                None => wrong(
                    found,
                    format!("`head_dim` must be a width up to {WIDEST}, or two: `[least, greatest]`"),
                ),
            },
            None => {
                self.problem(at, "`head_dim` is missing: the width of heads that the row is for".to_owned())
            }
        }
        let mut wrong = |found: &Entry<'_>, message: String| self.problem(found.span().start, message);
        if let Some(found) = fields.get("group") {
            match count(found) {
                Some(group) => when.group = group,
                None => wrong(found, "`group` must be a whole number from 1 to 1024".to_owned()),
            }
        }
        if let Some(found) = fields.get("length") {
            when.length = word(found)
                .and_then(|word| LENGTHS.iter().find(|(name, _)| *name == word))
                .map(|(name, _)| *name);
            if when.length.is_none() {
                let names = list(LENGTHS.iter().map(|(name, _)| *name));
                wrong(found, format!("`length` must be one of {names}"));
            }
        }
        if let Some(found) = fields.get("mask") {
            when.mask = word(found)
                .and_then(|word| Mask::ALL.iter().find(|(name, _)| *name == word))
                .map(|(_, mask)| *mask);
            if when.mask.is_none() {
                let names = list(Mask::ALL.iter().map(|(name, _)| *name));
                wrong(found, format!("`mask` must be one of {names}"));
            }
        }
        for name in ["softcap", "ordered"] {
            let Some(found) = fields.get(name) else { continue };
            match flag(found) {
                Some(value) if name == "softcap" => when.softcap = value,
                Some(value) => when.ordered = Some(value),
                None => wrong(found, format!("`{name}` must be `true` or `false`")),
            }
        }
        when
    }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn count(value: &Entry<'_>) -> Option<usize> {
    number(value).filter(|value| *value <= 1024)
}

/// At least 1, and so little that products of two fit.
fn number(value: &Entry<'_>) -> Option<usize> {
    let DeValue::Integer(value) = value.get_ref() else { return None };
    let value = usize::from_str_radix(value.as_str(), value.radix()).ok()?;
    (1..=1 << 24).contains(&value).then_some(value)
}

/// `[256, 1024]`
fn sizes(value: &Entry<'_>) -> Option<Sizes> {
    let DeValue::Array(both) = value.get_ref() else { return None };
    let [heads, length] = &both[..] else { return None };
    Some(Sizes { heads: number(heads)?, length: number(length)? })
}

/// Of a number of microseconds.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn nanoseconds(value: &Entry<'_>) -> Option<u64> {
    let text = match value.get_ref() {
        DeValue::Float(value) => value.as_str(),
        DeValue::Integer(value) => value.as_str(),
        _ => return None,
    };
    let micro = text.parse::<f64>().ok().filter(|micro| (0.0..1e12).contains(micro))?;
    Some((1e3 * micro).round() as u64)
}

fn flag(value: &Entry<'_>) -> Option<bool> {
    match value.get_ref() {
        DeValue::Boolean(value) => Some(*value),
        _ => None,
    }
}

fn word<'a>(value: &'a Entry<'_>) -> Option<&'a str> {
    match value.get_ref() {
        DeValue::String(value) => Some(value),
        _ => None,
    }
}

/// `64`, or `[8, 64]`.
fn widths(value: &Entry<'_>) -> Option<RangeInclusive<usize>> {
    let (least, greatest) = match value.get_ref() {
        DeValue::Array(both) => match &both[..] {
            [least, greatest] => (count(least)?, count(greatest)?),
            _ => return None,
        },
        _ => (count(value)?, count(value)?),
    };
    (least <= greatest && greatest <= WIDEST).then_some(least..=greatest)
}
