//! What was measured of a training step. The field names are those of `--json`.

use super::super::table::{Row, Side, Table};
use super::super::units;
use super::neighbours::Neighbour;
use kernwright_plan::Options;
use kernwright_plan::forward_step;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::shape::Shape;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Everything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Figures {
    pub(super) version: String,
    pub(super) model: String,
    /// Its canonical text.
    pub(super) shape: Vec<String>,
    pub(super) parameters: usize,
    pub(super) batch: usize,
    pub(super) length: usize,
    pub(super) tokens: usize,
    pub(super) precision: String,
    pub(super) residual: String,
    pub(super) attention: String,
    pub(super) deterministic: bool,
    pub(super) without: Vec<String>,
    pub(super) with: Vec<String>,
    /// Element type of the weights' gradients.
    pub(super) grad_dtype: String,
    /// Rows of logits at once, where that was asked for.
    pub(super) head_chunk: Option<usize>,
    /// Batches that steps went through in turn, and the seed of weights and tokens.
    pub(super) batches: usize,
    pub(super) seed: u64,
    pub(super) device: String,
    pub(super) peak: Option<Peak>,
    pub(super) steps: usize,
    /// `device` events, or the `host`'s clock.
    pub(super) clock: String,
    pub(super) tokens_per_second: f64,
    pub(super) milliseconds: Spread,
    /// By the host's clock, from the first measured step to the end of the last.
    pub(super) wall_milliseconds: f64,
    /// Of matrix products, forward and backward; nothing counts twice.
    pub(super) flops_per_token: f64,
    pub(super) mfu: Option<f64>,
    pub(super) memory: Memory,
    /// Before the first step's update, and after the last but one's.
    pub(super) loss: [f32; 2],
    pub(super) allocations_after_first_step: Option<usize>,
    /// Other processes on the GPU; `None` where that cannot be known.
    pub(super) neighbours: Option<Vec<Neighbour>>,
}

/// What a share of the peak is a share of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Peak {
    /// The card.
    pub(super) name: String,
    /// Dense, with fp32 sums.
    pub(super) flops: f64,
}

/// Of the times of steps.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in super::super) struct Spread {
    pub(in super::super) median: f64,
    pub(super) least: f64,
    pub(super) greatest: f64,
}

/// Bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Memory {
    /// By the plan, and what the device takes beside it.
    pub(super) planned: u64,
    /// Held by allocations, those beside the plan among them.
    pub(super) allocated: Option<u64>,
    /// What the device has less of than before, code and the driver's own included.
    pub(super) taken: Option<u64>,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |of: Option<u64>| of.map_or("n/a".to_owned(), |n| units::bytes(n as f64));
        let [planned, allocated, taken] = [Some(self.planned), self.allocated, self.taken].map(bytes);
        write!(f, "{planned} planned, {allocated} allocated, {taken} taken from the device")
    }
}

impl Spread {
    /// Of at least one number.
    pub(in super::super) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (middle, n) = (sorted.len() / 2, sorted.len());
        let median = match n % 2 {
            _ if n == 0 => f64::NAN,
            1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        let end = |value: Option<&f64>| value.copied().unwrap_or(f64::NAN);
        Self { median, least: end(sorted.first()), greatest: end(sorted.last()) }
    }
}

/// What a step must multiply: every product of the forward pass has two in the backward pass. What a kernel computes
/// again, and what it computes of padding or behind a mask, does not count.
pub(super) fn flops(shape: &Shape, batch: usize, length: usize) -> f64 {
    let options = Options { padded: false, ..Options::host() };
    3.0 * forward_step(shape, &options, batch, length, Head::Loss).cost().tensor_flops
}

impl Figures {
    /// Does another process use the GPU?
    pub(super) fn is_contended(&self) -> bool {
        self.neighbours.as_ref().is_some_and(|neighbours| !neighbours.is_empty())
    }

    /// As people read it.
    pub(super) fn lines(&self) -> Vec<String> {
        let mode = if self.deterministic { "deterministic" } else { "nondeterministic" };
        let mut lines = vec![format!(
            "{}: {} parameters, {} x {} tokens, {}, residual {}, {} attention, {mode}",
            self.model,
            units::grouped(self.parameters),
            self.batch,
            self.length,
            self.precision,
            self.residual,
            self.attention
        )];
        for (word, names) in [("without", &self.without), ("with", &self.with)] {
            if !names.is_empty() {
                lines.push(format!("{word} {}", names.join(", ")));
            }
        }
        lines.push(match &self.peak {
            Some(peak) => {
                format!("on {} ({}: {})", self.device, peak.name, units::quantity(peak.flops, "FLOP/s"))
            }
            None => format!("on {}", self.device),
        });
        lines.push(String::new());
        let Spread { median, least, greatest } = self.milliseconds;
        let clock = match self.clock.as_str() {
            "device" => "the device's clock",
            _ => "the host's clock",
        };
        let others = self.neighbours.as_ref().map_or("n/a".to_owned(), |neighbours| match &neighbours[..] {
            [] => "none".to_owned(),
            all => {
                let names: Vec<_> = all.iter().map(ToString::to_string).collect();
                format!("contended: {}", names.join(", "))
            }
        });
        let allocations = self.allocations_after_first_step;
        let rows = [
            ("tokens/s", units::grouped(self.tokens_per_second.round() as usize)),
            (
                "ms/step",
                format!(
                    "{median:.3}, median of {} ({least:.3} to {greatest:.3}) by {clock}; {:.3} by the wall",
                    self.steps, self.wall_milliseconds
                ),
            ),
            ("FLOPs per token", units::quantity(self.flops_per_token, "")),
            ("MFU", self.mfu.map_or("n/a".to_owned(), |mfu| format!("{mfu:.3}"))),
            ("peak memory", self.memory.to_string()),
            ("allocations after step 1", allocations.map_or("n/a".to_owned(), |n| n.to_string())),
            ("loss", format!("{:.4} -> {:.4}", self.loss[0], self.loss[1])),
            ("others on the GPU", others),
        ];
        let table = Table {
            columns: vec![("", Side::Left), ("", Side::Left)],
            rows: rows.into_iter().map(|(name, value)| Row::Cells(vec![name.to_owned(), value])).collect(),
        };
        lines.extend(table.lines());
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::shape::presets;

    #[test]
    fn the_spread_is_that_of_the_sorted_times() {
        let spread = |values: &[f64]| {
            let Spread { median, least, greatest } = Spread::of(values);
            (median, least, greatest)
        };
        assert_eq!(spread(&[3.0, 1.0, 2.0]), (2.0, 1.0, 3.0));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 9.0]), (3.0, 1.0, 9.0));
        assert!(Spread::of(&[]).median.is_nan());
    }

    /// By hand, for a Llama-like shape: twice the weights of each product, and the triangle of attention.
    #[test]
    fn work_counts_every_product_once_forward_and_twice_backward() {
        let shape = presets::find("seed-102m").expect("it is a preset").shape();
        let (batch, length) = (3, 64);
        let tokens = (batch * length) as f64;
        let of_layer = 768.0 * 1280.0 + 768.0 * 768.0 + 768.0 * 2816.0 + 1408.0 * 768.0;
        let products = 2.0 * tokens * (16.0 * of_layer + 768.0 * 32_000.0);
        let pairs = (batch * length * (length + 1) / 2) as f64;
        let attention = 16.0 * 4.0 * pairs * 12.0 * 64.0;
        let found = flops(&shape, batch, length);
        assert!((found / (3.0 * (products + attention)) - 1.0).abs() < 1e-12, "{found}");
    }
}
