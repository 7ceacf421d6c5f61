//! What a search found: lines for people, rows for the table.
//!
//! In: findings. Out: a text table, geometric means, why tiles were rejected; rows, in the order in which one may shadow another.

use super::super::bench::Case;
use super::super::table::{Row as Line, Side, Table as Lines};
use super::search::Fate;
use super::tuner::Finding;
use super::units::Pass;
use kernwright_plan::tuning::{KERNELS, LENGTHS, Measured, Row, Sizes, Table, When};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// As people read it.
pub(super) fn lines(findings: &[Finding]) -> Vec<String> {
    let columns = vec![
        ("shape", Side::Left),
        ("kernel", Side::Left),
        ("tile", Side::Left),
        ("before us", Side::Right),
        ("after us", Side::Right),
        ("gain", Side::Right),
        ("timed", Side::Right),
        ("rejected", Side::Right),
    ];
    let cells = |finding: &Finding| {
        let micro = |seconds: Option<f64>| {
            seconds.map_or("n/a".to_owned(), |seconds| format!("{:.2}", 1e6 * seconds))
        };
        let n_timed = finding.known.iter().filter(|(_, fate)| matches!(fate, Fate::Timed(_))).count();
        let (unit, is_same) = (&finding.unit, finding.tile == finding.current);
        Line::Cells(vec![
            unit.place(),
            unit.kernel.name.replace("attention_", ""),
            unit.tile(&finding.tile) + if is_same { " (as before)" } else { "" },
            micro(finding.before),
            micro(finding.seconds),
            gain(finding).map_or("n/a".to_owned(), |gain| format!("{gain:.3}")),
            n_timed.to_string(),
            (finding.known.len() - n_timed).to_string(),
        ])
    };
    let mut lines = Lines { columns, rows: findings.iter().map(cells).collect() }.lines();
    lines.push(String::new());
    lines.extend(means(findings));
    lines.extend(rejected(findings));
    lines
}

/// The time before over the time after.
pub(super) fn gain(finding: &Finding) -> Option<f64> {
    Some(finding.before? / finding.seconds?)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn measured(finding: &Finding) -> Option<Measured> {
    let nano = |seconds: f64| (1e9 * seconds).round() as u64;
    let Case { batch, heads, length, .. } = finding.unit.case;
    let on = Some(Sizes { heads: batch * heads, length });
    Some(Measured { now: nano(finding.seconds?), before: nano(finding.before?), on })
}

fn means(findings: &[Finding]) -> Vec<String> {
    let names =
        [(Pass::Forward, "forward"), (Pass::Ordered, "ordered backward"), (Pass::Free, "free backward")];
    let of = |(pass, name): (Pass, &str)| {
        let gains: Vec<f64> =
            findings.iter().filter(|finding| finding.unit.pass == pass).filter_map(gain).collect();
        #[allow(clippy::cast_precision_loss)]
        let mean = (gains.iter().map(|gain| gain.ln()).sum::<f64>() / gains.len() as f64).exp();
        let most = gains.iter().copied().fold(1.0, f64::max);
        (!gains.is_empty())
            .then(|| format!("{name}: geometric mean of {} gains {mean:.3}, greatest {most:.3}", gains.len()))
    };
    names.into_iter().filter_map(of).collect()
}

/// Why tiles were not timed, with how many there were of each kind.
fn rejected(findings: &[Finding]) -> Vec<String> {
    let mut why: BTreeMap<String, usize> = BTreeMap::new();
    for (_, fate) in findings.iter().flat_map(|finding| &finding.known) {
        if let Fate::Rejected(reason) = fate {
            // Of what differs from kernel to kernel the first words say enough.
            let kind = reason.split([':', ',']).next().unwrap_or(reason).trim();
            *why.entry(kind.to_owned()).or_default() += 1;
        }
    }
    why.into_iter().map(|(kind, n)| format!("rejected, {n} times: {kind}")).collect()
}

/// The table with what was found, which comes in the place of what `before` says of the same.
pub(super) fn table(findings: &[Finding], mut before: Table) -> Table {
    // Of a tile that nothing else was tried beside there is nothing to say.
    let is_tuned = |finding: &&Finding| finding.seconds.is_some() && finding.known.len() > 1;
    for finding in findings.iter().filter(is_tuned) {
        let (when, kernel) = (finding.unit.when(), finding.unit.kernel.name);
        before.rows.retain(|row| row.kernel != kernel || row.when != when);
        before.rows.push(Row { when, kernel, values: finding.tile.clone(), measured: measured(finding) });
    }
    let place = |name: &str| KERNELS.iter().position(|kernel| kernel.name == name);
    let length = |name: Option<&str>| LENGTHS.iter().position(|(other, _)| Some(*other) == name);
    // A row for groups of three is for those of six as well, but not the other way round: rare ones come first.
    before.rows.sort_by_key(|row| {
        let when = &row.when;
        let head_dim = (*when.head_dim.start(), *when.head_dim.end());
        let mask = when.mask.map(|mask| mask.name());
        (
            place(row.kernel),
            head_dim,
            mask,
            when.softcap,
            Reverse(when.ordered),
            Reverse(when.group),
            length(when.length),
        )
    });
    without_repetitions(before)
}

/// Leaves out rows for groups of heads that say what the rows behind them say anyway.
fn without_repetitions(mut table: Table) -> Table {
    let mut index = 0;
    while let Some(row) = table.rows.get(index) {
        let any_group = |other: &&Row| {
            let when = When { group: row.when.group, ..other.when.clone() };
            other.kernel == row.kernel && when == row.when && row.when.group.is_multiple_of(other.when.group)
        };
        let next = table.rows[index + 1..].iter().find(any_group);
        if next.is_some_and(|next| next.values == row.values) {
            table.rows.remove(index);
        } else {
            index += 1;
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::tile::Mask;

    #[test]
    fn rows_of_groups_that_say_nothing_new_are_left_out() {
        let row = |group: usize, mask: Mask, keys: usize| {
            let when = When {
                head_dim: 64..=64,
                group,
                length: Some("short"),
                mask: Some(mask),
                softcap: false,
                ordered: None,
            };
            let values = vec![2, 1, keys, 2, 1, 1];
            Row { when, kernel: "attention_forward_hopper", values, measured: None }
        };
        let groups = |rows: &[Row]| {
            let table = without_repetitions(Table { rows: rows.to_vec(), ..Table::default() });
            table.rows.iter().map(|row| row.when.group).collect::<Vec<_>>()
        };
        let (causal, full) = (Mask::Causal, Mask::Full);
        assert_eq!(groups(&[row(3, causal, 64), row(1, causal, 64)]), [1]);
        assert_eq!(groups(&[row(3, causal, 64), row(1, causal, 96)]), [3, 1]);
        assert_eq!(groups(&[row(3, causal, 64), row(1, full, 64)]), [3, 1], "another mask");
        // A group of four would else get what is best for one of two.
        assert_eq!(groups(&[row(4, causal, 64), row(2, causal, 96), row(1, causal, 64)]), [4, 2, 1]);
        assert_eq!(groups(&[row(3, causal, 64), row(2, causal, 64), row(1, causal, 96)]), [3, 2, 1]);
    }
}
