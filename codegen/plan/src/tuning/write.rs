//! Writes a table of tiles as TOML that [`super::read`] reads.

use super::{KERNELS, Measured, Sizes, Table, When};
use std::fmt::Write as _;

/// The text of a table, which begins with these lines of comment.
#[must_use]
pub fn write(table: &Table, head: &[String]) -> String {
    let mut text = String::new();
    for line in head {
        text.push_str(format!("# {line}").trim_end());
        text.push('\n');
    }
    // Writing into a String does not fail.
    let _ = writeln!(text, "arch = {:?}\ncard = {:?}", table.arch, table.card);
    for row in &table.rows {
        let _ = write!(text, "\n[[{}]]\n{}", row.kernel, condition(&row.when));
        let kernel = KERNELS.iter().find(|kernel| kernel.name == row.kernel);
        let axes = kernel.map(|kernel| (kernel.axes)()).unwrap_or_default();
        for ((name, is_flag), value) in axes.into_iter().zip(&row.values) {
            let _ = match is_flag {
                true => writeln!(text, "{name} = {}", *value != 0),
                false => writeln!(text, "{name} = {value}"),
            };
        }
        if let Some(Measured { now, before, on }) = row.measured {
            let [now, before] = [now, before].map(micro);
            let _ = writeln!(text, "microseconds = {now:.2}\nbefore = {before:.2}");
            if let Some(Sizes { heads, length }) = on {
                let _ = writeln!(text, "measured_on = [{heads}, {length}]");
            }
        }
    }
    text
}

fn condition(when: &When) -> String {
    let When { head_dim, group, length, mask, softcap, ordered } = when;
    let (least, greatest) = (head_dim.start(), head_dim.end());
    let mut lines = Vec::new();
    lines.push(match least == greatest {
        true => format!("head_dim = {least}"),
        false => format!("head_dim = [{least}, {greatest}]"),
    });
    lines.extend((*group > 1).then(|| format!("group = {group}")));
    lines.extend(length.map(|length| format!("length = {length:?}")));
    lines.extend(mask.map(|mask| format!("mask = {:?}", mask.name())));
    lines.extend(softcap.then(|| "softcap = true".to_owned()));
    lines.extend(ordered.map(|ordered| format!("ordered = {ordered}")));
    lines.join("\n") + "\n"
}

#[allow(clippy::cast_precision_loss)]
fn micro(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}
