//! What `bench attention` prints: a row per shape, the ratio to the best peer, and means.

use super::super::ablation::Stage;
use super::super::peers::{Errors, NAIVE, Peers, Times};
use super::flags::FORMS;
use super::{Measured, Pass};
use crate::cli::table::{Row, Side, Table, wrapped};
use crate::cli::units::Rates;
use crate::terminal::note;
use std::collections::BTreeSet;

/// The time of a peer that stands against one of ours.
type OfPeer = fn(&Times) -> f64;

pub(super) fn table(rows: &[Measured], device: &str, about: &str, ablated: Option<Stage>) -> Vec<String> {
    let with_peers = !about.is_empty();
    let rates = rows.iter().flat_map(Measured::passes).filter_map(|(pass, _)| Some(pass?.flops_per_second()));
    let rates = Rates::of_flops(rates);
    let mut columns = vec![("batch x heads/kv x length x head_dim", Side::Left), ("mask", Side::Left)];
    for name in ["forward ms", "free ms", "ordered ms"] {
        columns.extend([(name, Side::Right), (rates.title, Side::Right)]);
        if with_peers {
            columns.extend([("best peer", Side::Right), ("ratio", Side::Right)]);
        }
    }
    let mut lines = vec![format!("on {device}")];
    if with_peers {
        lines.push(format!(
            "peers: {about}; a ratio is the best peer's time over ours: above 1 is in our favour"
        ));
    }
    if let Some(stage) = ablated {
        lines.push(format!("without {}: times alone mean something, results are wrong", stage.name()));
    }
    lines.extend(wrapped("", FORMS));
    lines.push(String::new());
    let cells = |row: &Measured| {
        let mut cells = vec![row.case.sizes(), row.case.mask()];
        for (pass, of) in row.passes() {
            cells.push(pass.map_or("n/a".to_owned(), |pass| format!("{:.4}", pass.milliseconds)));
            cells.push(rates.cell(pass.map(|pass| pass.flops_per_second())));
            let best = row.peers.as_ref().and_then(|peers| peers.best(of));
            if with_peers {
                cells.push(best.map_or("none".to_owned(), |(name, time)| format!("{name} {time:.4}")));
                let ratio = pass.zip(best).map(|(pass, (_, best))| best / pass.milliseconds);
                cells.push(ratio.map_or("n/a".to_owned(), |ratio| format!("{ratio:.2}")));
            }
        }
        Row::Cells(cells)
    };
    lines.extend(Table { columns, rows: rows.iter().map(cells).collect() }.lines());
    if with_peers {
        lines.push(String::new());
        lines.extend(means(rows));
    }
    lines.extend(slowdown(rows));
    if let [Measured { memory: Some(memory), .. }] = rows {
        lines.push(String::new());
        lines.push(format!("memory of forward and ordered backward: {memory}"));
    }
    lines.extend(errors(rows));
    for row in rows {
        if let Some(error) = &row.error {
            note(&format!("error: {}: {error}", row.case.sizes()));
        }
        for (name, why) in row.peers.iter().flat_map(|peers| &peers.failed) {
            note(&format!("note: {name} does not take {}, {}: {why}", row.case.sizes(), row.case.mask()));
        }
    }
    lines
}

/// What the same bits every time cost at most.
fn slowdown(rows: &[Measured]) -> Option<String> {
    let ratios = rows.iter().filter_map(|row| Some(row.ordered?.milliseconds / row.free?.milliseconds));
    let most = ratios.max_by(f64::total_cmp)?;
    Some(format!("ordered backward: at most {most:.3} times the free one's time"))
}

/// What results are off by, over what those of FlashAttention 2 are.
fn errors(rows: &[Measured]) -> Vec<String> {
    let mut columns = vec![("batch x heads/kv x length x head_dim", Side::Left), ("mask", Side::Left)];
    for (name, _) in Errors::default().all() {
        columns.extend([(name, Side::Right), ("over FA2", Side::Right)]);
    }
    let mut greatest: Option<f64> = None;
    let cells = rows.iter().filter_map(|row| {
        let (ours, theirs) = (row.errors?, row.peers.as_ref()?.errors.get("FA2").copied());
        let mut cells = vec![row.case.sizes(), row.case.mask()];
        for (index, (_, error)) in ours.all().into_iter().enumerate() {
            let ratio = theirs.map(|theirs| error / theirs.all()[index].1);
            if let Some(ratio) = ratio {
                let ratio = if ratio.is_nan() { f64::INFINITY } else { ratio };
                greatest = Some(greatest.map_or(ratio, |most| most.max(ratio)));
            }
            cells.push(format!("{error:.3e}"));
            cells.push(ratio.map_or("n/a".to_owned(), |ratio| format!("{ratio:.3}")));
        }
        Some(Row::Cells(cells))
    });
    let rows: Vec<_> = cells.collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![
        String::new(),
        "root-mean-square errors against fp64 mathematics, and over those of FlashAttention 2:".to_owned(),
    ];
    lines.extend(Table { columns, rows }.lines());
    lines.extend(greatest.map(|most| format!("greatest error over that of FlashAttention 2: {most:.3}")));
    lines
}

/// Geometric means of the ratios, to the best peer of each row and to each alone, and how far plain products are behind.
fn means(rows: &[Measured]) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, pass_name) in ["forward", "free backward", "ordered backward"].into_iter().enumerate() {
        let ratios = |time: &dyn Fn(&Peers, OfPeer) -> Option<f64>| -> Vec<f64> {
            let ratios = rows.iter().filter_map(|row| {
                let (pass, of) = row.passes()[index];
                Some(time(row.peers.as_ref()?, of)? / pass?.milliseconds)
            });
            ratios.collect()
        };
        let mut say = |name: &str, ratios: &[f64]| {
            let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            if !ratios.is_empty() {
                let n = ratios.len();
                lines.push(format!("{name}: geometric mean of {n} ratios {mean:.3}, least {least:.3}"));
            }
        };
        say(pass_name, &ratios(&|peers, of| peers.best(of).map(|(_, best)| best)));
        let names: BTreeSet<&str> =
            rows.iter().filter_map(|row| row.peers.as_ref()).flat_map(Peers::names).collect();
        for name in names {
            say(&format!("  to {name}"), &ratios(&|peers, of| peers.of(name).map(|times| of(&times))));
        }
    }

    let naive = rows.iter().filter_map(|row| {
        let naive = row.peers.as_ref()?.of(NAIVE)?;
        Some((naive.forward + naive.backward) / (row.forward?.milliseconds + row.free?.milliseconds))
    });
    if let Some(least) = naive.min_by(f64::total_cmp) {
        lines.push(format!("products and a softmax one after the other: at least {least:.1} times our time"));
    }
    lines
}

impl Measured {
    /// What was measured of each pass, and what of a peer it stands against.
    fn passes(&self) -> [(Option<Pass>, OfPeer); 3] {
        let backward: OfPeer = |times| times.backward;
        [(self.forward, |times| times.forward), (self.free, backward), (self.ordered, backward)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::case::TABLE;
    use super::*;

    fn row(milliseconds: f64, peers: &str) -> Measured {
        Measured {
            case: TABLE[0],
            precision: "bf16",
            without: None,
            forward: Some(Pass { milliseconds, tflops: 1.0 }),
            free: None,
            ordered: None,
            peers: Some(serde_json::from_str(peers).expect("as the script prints it")),
            errors: None,
            memory: None,
            error: None,
        }
    }

    #[test]
    fn means_are_of_the_best_peers_and_of_each() {
        let of = |fa2: f64, cudnn: f64| {
            format!(
                r#"{{"peers": {{"FA2": {{"forward": {fa2}, "backward": 1.0}}, "cuDNN": {{"forward": {cudnn}, "backward": 1.0}}}},
                "failed": {{}}}}"#
            )
        };
        let rows = [row(1.0, &of(8.0, 4.0)), row(2.0, &of(2.0, 8.0))];
        let lines = means(&rows);
        assert_eq!(
            lines,
            [
                "forward: geometric mean of 2 ratios 2.000, least 1.000",
                "  to FA2: geometric mean of 2 ratios 2.828, least 1.000",
                "  to cuDNN: geometric mean of 2 ratios 4.000, least 4.000",
            ]
        );
    }
}
