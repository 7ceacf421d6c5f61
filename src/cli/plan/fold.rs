//! Identical layers, shown once: a run of equal blocks of steps becomes one block and how often it comes.

use super::rows::{Slot, StepRow};
use std::collections::HashMap;
use std::ops::Range;

/// Steps that come `times` times in a row; `rows` is one of those times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) rows: Range<usize>,
    pub(super) times: usize,
}

impl Group {
    /// The number of the first step that a row of the group stands for.
    pub(super) fn first(&self, row: &StepRow) -> usize {
        if self.times > 1 { row.index - self.rows.len() } else { row.index }
    }
}

/// Every step in order, repeated blocks once. The second time stands for all: what the first one reads comes from
/// elsewhere.
pub(super) fn fold(rows: &[StepRow]) -> Vec<Group> {
    let mut known: HashMap<Vec<String>, usize> = HashMap::new();
    let mut kinds = Vec::new();
    for row in rows {
        let next = known.len();
        kinds.push(*known.entry(kind(row)).or_insert(next));
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut at = 0;
    while at < kinds.len() {
        // The longest run, in its smallest period.
        let mut best = (1, 1);
        for period in 1..=(kinds.len() - at) / 2 {
            let times = times(&kinds[at..], period);
            if times > 1 && period * times > best.0 * best.1 {
                best = (period, times);
            }
        }
        let (period, times) = best;
        if times > 1 {
            groups.push(Group { rows: at + period..at + 2 * period, times });
        } else {
            match groups.last_mut() {
                Some(last) if last.times == 1 && last.rows.end == at => last.rows.end += 1,
                _ => groups.push(Group { rows: at..at + 1, times }),
            }
        }
        at += period * times;
    }
    groups
}

/// How often the first `period` kinds come in a row.
fn times(kinds: &[usize], period: usize) -> usize {
    kinds.chunks_exact(period).take_while(|block| *block == &kinds[..period]).count()
}

/// A name of layer 3 as that of any: `layers.*.attention.qkv`, and without the number of a copy.
pub(super) fn of_any_layer(name: &str) -> String {
    let parts = name.split('.').enumerate().filter_map(|(index, part)| {
        let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
        match name.split('.').nth(index.wrapping_sub(1)) {
            Some(before) if is_number && before.ends_with("layers") => Some("*"),
            _ if is_number => None,
            _ => Some(part),
        }
    });
    parts.collect::<Vec<_>>().join(".")
}

/// All that decides whether two steps are the same in two layers; names of what they read do not.
fn kind(row: &StepRow) -> Vec<String> {
    let of = |slot: &Slot| format!("{} {} {:?} {:?}", slot.slot, slot.dtype, slot.shape, slot.mode);
    let mut kind = vec![row.phase.to_owned(), row.op.to_owned(), format!("{:?}", row.launches)];
    kind.push(format!("{:?} {:?}", row.flops, row.bytes));
    kind.extend(row.reads.iter().map(of));
    kind.extend(row.writes.iter().map(|slot| format!("{} {}", of(slot), of_any_layer(&slot.buffer))));
    kind
}

#[cfg(test)]
mod tests {
    use super::super::rows;
    use super::*;
    use kernwright_plan::shape::presets;
    use kernwright_plan::{Options, arch, train_step};

    #[test]
    fn names_lose_their_layer_and_copy() {
        assert_eq!(of_any_layer("d_layers.11.attention.out"), "d_layers.*.attention.out");
        assert_eq!(
            of_any_layer("d_layers.4.feed_forward.residual.bf16.82"),
            "d_layers.*.feed_forward.residual.bf16"
        );
        assert_eq!(of_any_layer("embedding"), "embedding");
    }

    #[test]
    fn every_preset_folds_its_layers_and_loses_no_step() {
        for preset in presets::ALL {
            let shape = preset.shape();
            let plan = train_step(&shape, &Options::default(), 2, 8);
            let rows = rows::steps(&plan, &kernwright_plan::gpu::Gpu::of(&arch::ALL[0]), shape.precision);
            let groups = fold(&rows);
            let steps: usize = groups.iter().map(|group| group.rows.len() * group.times).sum();
            assert_eq!(steps, rows.len(), "{}", preset.name);
            // Where kinds of layers take turns, their kernels do too.
            let turns = shape.layers / shape.pattern.len().max(1);
            // Nothing reads a narrow copy of what the first layer's gradient comes to: it may stand alone.
            let wanted = [shape.layers, turns, shape.layers - 1, turns - 1];
            let whole =
                groups.iter().filter(|group| group.times > 1 && wanted.contains(&group.times)).count();
            // Working copies (of weights, then of biases), forward, backward; the update is one step.
            assert!((3..=4).contains(&whole), "{}: {groups:?}", preset.name);
            let shown: usize = groups.iter().map(|group| group.rows.len()).sum();
            assert!(shown < 60 * shape.pattern.len().max(1), "{}: {shown}", preset.name);
            let sum: f64 = groups
                .iter()
                .map(|group| {
                    rows[group.rows.clone()].iter().map(|row| row.flops).sum::<f64>() * group.times as f64
                })
                .sum();
            let all: f64 = rows.iter().map(|row| row.flops).sum();
            assert!((sum - all).abs() <= 1e-9 * all, "{}: {sum} of {all}", preset.name);
        }
    }
}
