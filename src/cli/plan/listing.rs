//! The table and the summary of `plan` as text.
//!
//! In: rows, totals and memory. Out: lines, narrow ones that fit a terminal or wide ones with every name. Must not
//! compute a cost.

use super::super::table::{LINE, Row, Side, Table, wrapped};
use super::super::units;
use super::fold::{self, Group};
use super::rows::{LaunchRow, Memory, Slot, StepRow, Totals};
use kernwright_plan::card::Card;

/// How much a row tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// What fits into a line of a terminal.
    Narrow,
    /// What is written and read, and full names of kernels.
    Wide,
}

/// What is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listing<'a> {
    pub(super) steps: &'a [StepRow],
    pub(super) totals: &'a Totals,
    pub(super) memory: &'a Memory,
    pub(super) n_tokens: usize,
    pub(super) card: &'a Card,
}

impl Listing<'_> {
    /// The table, and how to read it; equal layers once unless `all` are asked for.
    pub(super) fn table(&self, detail: Detail, all: bool) -> Vec<String> {
        use Side::{Left, Right};
        let steps = self.steps;
        let mut columns = vec![("step", Right), ("x", Right), ("op", Left)];
        if detail == Detail::Wide {
            columns.push(("writes", Left));
        }
        columns.extend([("shape", Left), ("FLOPs", Right), ("bytes", Right), ("time", Right)]);
        columns.push(("share", Right));
        let mut table = Table { columns, rows: Vec::new() };
        let groups = if all { vec![Group { rows: 0..steps.len(), times: 1 }] } else { fold::fold(steps) };
        let mut shown = Vec::new();
        let mut phase = "";
        for group in &groups {
            for row in &steps[group.rows.clone()] {
                if row.phase != phase {
                    phase = row.phase;
                    let once = ": once, when the weights were set; part of no sum or share below";
                    let about = if row.counted { "" } else { once };
                    table.rows.push(Row::Heading(format!("{phase}{about}")));
                }
                table.rows.push(Row::Cells(self.cells(row, group, detail)));
                shown.push((row, group.times));
            }
        }

        // The last columns have the room that the others leave.
        let room = LINE.saturating_sub(table.widths().iter().map(|wide| wide + 2).sum());
        table.columns.push(("runs as", Left));
        if detail == Detail::Wide {
            table.columns.push(("reads", Left));
        }
        let cells = table.rows.iter_mut().filter_map(|row| match row {
            Row::Cells(cells) => Some(cells),
            Row::Heading(_) => None,
        });
        for (cells, (row, times)) in cells.zip(shown) {
            match detail {
                Detail::Narrow => cells.push(short(row, room)),
                Detail::Wide => cells.extend([launches(row), names(&row.reads, 60, times)]),
            }
        }
        let mut lines = table.lines();
        let mut folded: Vec<usize> = groups.iter().map(|group| group.times).filter(|n| *n > 1).collect();
        folded.sort_unstable();
        folded.dedup();
        if !folded.is_empty() {
            lines.push(String::new());
        }
        for n in folded {
            let text = format!(
                "a row with x {n} stands for {n} equal layers: its step is that of the first, its FLOPs, bytes and \
                 time those of one, its share that of all {n}; `--all` shows each"
            );
            lines.extend(wrapped("", &text));
        }
        lines
    }

    /// All columns but the last ones.
    fn cells(&self, row: &StepRow, group: &Group, detail: Detail) -> Vec<String> {
        let times = group.times;
        let first = row.writes.first();
        let sizes = first.map_or(String::new(), |slot| {
            match row.writes.iter().filter(|other| other.slot == slot.slot).count() {
                1 => slot.shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x"),
                n => format!("{n} tensors"),
            }
        });
        let mut cells = vec![
            group.first(row).to_string(),
            if times > 1 { times.to_string() } else { String::new() },
            row.op.to_owned(),
        ];
        match detail {
            Detail::Narrow => cells.push(sizes),
            Detail::Wide => cells.extend([
                names(&row.writes, 48, times),
                first.map_or(String::new(), |slot| format!("{}[{sizes}]", slot.dtype)),
            ]),
        }
        #[allow(clippy::cast_precision_loss)]
        let share = 100.0 * row.roofline_seconds * times as f64 / self.totals.roofline_seconds;
        cells.extend([
            units::quantity(row.flops, ""),
            units::bytes(row.bytes),
            units::seconds(row.roofline_seconds),
            if row.counted { format!("{share:.1}%") } else { String::new() },
        ]);
        cells
    }

    /// Sums and planned memory.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn summary(&self) -> Vec<String> {
        let Self { totals, memory, n_tokens, .. } = *self;
        let bytes = |bytes: usize| units::bytes(bytes as f64);
        let (card, room) = (&self.card.name, self.card.memory);
        let fits = if memory.peak as u64 <= room { "of" } else { "does not fit into" };
        let n_prepare = self.steps.len() - totals.n_steps;
        let mut lines = vec![
            format!(
                "\nstep      {}, {} per token, {} moved",
                units::quantity(totals.flops, "FLOP"),
                units::quantity(totals.flops_per_token, "FLOP"),
                units::bytes(totals.bytes)
            ),
            format!(
                "roofline  {} for {} tokens on {card}: {} tokens/s at most",
                units::seconds(totals.roofline_seconds),
                units::grouped(n_tokens),
                units::quantity(totals.tokens_per_second, "")
            ),
            format!(
                "kernels   {} of the {} steps of forward, backward and update have none yet",
                totals.n_without_kernel, totals.n_steps
            ),
        ];
        if n_prepare > 0 {
            lines.push(format!("          the {n_prepare} steps of prepare are in none of these numbers"));
        }
        lines.push(format!(
            "memory    {} planned peak, {fits} the {} of {card}",
            bytes(memory.peak),
            units::bytes(room as f64)
        ));
        lines.push(format!(
            "          {} of it persistent, {} transient, {} beside the plan; by what for:",
            bytes(memory.persistent),
            bytes(memory.transient),
            bytes(memory.peak - memory.arena)
        ));
        let mut roles: Vec<(&str, usize)> =
            memory.by_role.iter().chain(&memory.beside).map(|(role, size)| (*role, *size)).collect();
        roles.sort_by_key(|(_, size)| std::cmp::Reverse(*size));
        let row =
            |(role, size): &(&str, usize)| Row::Cells(vec![" ".repeat(8), (*role).to_owned(), bytes(*size)]);
        let columns = vec![("", Side::Left), ("", Side::Left), ("", Side::Right)];
        lines.extend(Table { columns, rows: roles.iter().map(row).collect() }.lines());
        let sum: usize = roles.iter().map(|(_, size)| size).sum();
        if sum > memory.peak {
            let text = format!(
                "activations and scratch share room by lifetime, so the sum, {}, exceeds the peak",
                bytes(sum)
            );
            lines.extend(wrapped("          ", &text));
        }
        lines.push(format!("          {} of the host's memory are pinned beside that", bytes(memory.pinned)));
        lines
    }
}

/// The names that fit into `room`, at least one, and how many more there are. Scratch is nobody's result.
fn names(slots: &[Slot], room: usize, times: usize) -> String {
    let shown = |name: &str| if times > 1 { fold::of_any_layer(name) } else { name.to_owned() };
    let names: Vec<String> =
        slots.iter().filter(|slot| slot.role != "scratch").map(|slot| shown(&slot.buffer)).collect();
    let mut text = String::new();
    for (index, name) in names.iter().enumerate() {
        if index > 0 && text.len() + name.len() >= room {
            return format!("{text} +{}", names.len() - index);
        }
        if index > 0 {
            text.push(' ');
        }
        text.push_str(name);
    }
    text
}

/// Every launch by its full name, in the order they first come; a head in chunks repeats the same ones many times.
fn launches(row: &StepRow) -> String {
    if let Some(why) = row.no_kernel {
        return why.to_owned();
    }
    let one = |launch: &LaunchRow| match launch {
        LaunchRow::Kernel { kernel, .. } => kernel.clone(),
        other => stem(other),
    };
    let mut counted: Vec<(String, usize)> = Vec::new();
    for name in row.launches.iter().map(one) {
        match counted.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counted.push((name, 1)),
        }
    }
    let text = |(name, count): (String, usize)| if count > 1 { format!("{count} x {name}") } else { name };
    counted.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The first launch by its template and how many more there are, in `room` characters.
fn short(row: &StepRow, room: usize) -> String {
    let fits = |text: &String| text.len() <= room;
    let Some(first) = row.launches.first() else {
        let why = row.no_kernel.unwrap_or_default().to_owned();
        return Some(why).filter(fits).unwrap_or_else(|| "no kernel yet".to_owned());
    };
    let more = row.launches.len() - 1;
    let more = if more > 0 { format!(" +{more}") } else { String::new() };
    let stem = stem(first);
    // What does not fit loses its last parts, sizes all at once: half of them would mislead.
    let ends = stem.match_indices([' ', '_']).map(|(end, _)| end).rev();
    let cut = ends.map(|end| match first {
        LaunchRow::Kernel { .. } => format!("{}..{more}", &stem[..end]),
        _ => format!("{}{more}", &stem[..end]),
    });
    let mut texts = std::iter::once(format!("{stem}{more}")).chain(cut).collect::<Vec<_>>();
    let last = texts.pop().unwrap_or_default();
    texts.into_iter().find(fits).unwrap_or(last)
}

fn stem(launch: &LaunchRow) -> String {
    match launch {
        LaunchRow::Kernel { template, .. } => template.replace('/', "_"),
        LaunchRow::Gemm { m, n, k, count: 1 } => format!("GEMM {m}x{n}x{k}"),
        LaunchRow::Gemm { m, n, k, count } => format!("{count} GEMMs {m}x{n}x{k}"),
        LaunchRow::Copy { .. } => "copy".to_owned(),
        LaunchRow::Zero { .. } => "zero".to_owned(),
    }
}
