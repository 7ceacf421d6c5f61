//! The roofline of a card with the kernels under it, as SVG.
//!
//! In: rows and speeds. Out: a picture whose axes are logarithmic: FLOPs per byte to the right, FLOP/s upwards. A kernel is a
//! disc whose area is its share of the time; the lines are what the memory and the two kinds of units allow (S. Williams,
//! A. Waterman, D. Patterson: "Roofline", CACM 52(4), 2009).

use super::groups::colour;
use super::page::escaped;
use super::rows::{KernelRow, Speeds};
use crate::cli::units;
use std::fmt::Write as _;

const WIDE: f64 = 860.0;
const HIGH: f64 = 420.0;
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 45.0;
const TOP: f64 = 15.0;
const RIGHT: f64 = 15.0;

/// A logarithmic axis: its ends, and where they are drawn.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// From and to whole powers of ten around all values.
    fn around(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) =
            values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = (low.log10().floor(), high.log10().ceil());
        Self { low, high: high.max(low + 1.0), from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.log10() - self.low) / (self.high - self.low);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    #[allow(clippy::cast_possible_truncation)]
    fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.low as i32..=self.high as i32).map(|power| 10.0_f64.powi(power))
    }
}

/// The picture; empty where no row is known to have both work and bytes.
pub(super) fn picture<'a>(rows: impl Iterator<Item = &'a KernelRow>, card: &Speeds) -> String {
    let point = |row: &'a KernelRow| {
        let (flops, bytes) =
            row.flops.zip(row.bytes).filter(|(flops, bytes)| *flops > 0.0 && *bytes > 0.0)?;
        Some((row, flops / bytes, row.flops_per_second?))
    };
    let points: Vec<(&KernelRow, f64, f64)> = rows.filter_map(point).collect();
    if points.is_empty() {
        return String::new();
    }
    let ridge = card.tensor_flops / card.bandwidth;
    let x = Axis::around(points.iter().map(|point| point.1).chain([ridge]), LEFT, WIDE - RIGHT);
    let y = Axis::around(points.iter().map(|point| point.2).chain([card.tensor_flops]), HIGH - BOTTOM, TOP);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDE} {HIGH}\" role=\"img\" aria-label=\"Roofline of {}\">\n",
        escaped(&card.name)
    );
    for value in x.ticks() {
        let at = x.at(value);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{value}</text>",
            HIGH - BOTTOM,
            HIGH - BOTTOM + 18.0
        );
    }
    for value in y.ticks() {
        let at = y.at(value);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDE - RIGHT,
            LEFT - 8.0,
            at + 4.0,
            units::quantity(value, "")
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">FLOPs per byte</text>\
         <text x=\"14\" y=\"{:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {:.1})\">FLOP/s</text>",
        f64::midpoint(LEFT, WIDE - RIGHT),
        HIGH - 8.0,
        HIGH / 2.0,
        HIGH / 2.0
    );
    for (name, flops) in [("tensor cores", card.tensor_flops), ("fp32 units", card.fp32_flops)] {
        // Where the memory's line begins to be seen, where it meets the roof, and the end.
        let begin = 10.0_f64.powf(x.low).max(10.0_f64.powf(y.low) / card.bandwidth);
        let corner = flops / card.bandwidth;
        let points = [(begin, begin * card.bandwidth), (corner, flops), (10.0_f64.powf(x.high), flops)];
        let points = points.map(|(along, up)| format!("{:.1},{:.1}", x.at(along), y.at(up)));
        let (right, above) = (WIDE - RIGHT - 4.0, y.at(flops) - 5.0);
        let _ = writeln!(
            svg,
            "<polyline class=\"roof\" points=\"{}\"/><text x=\"{right:.1}\" y=\"{above:.1}\" text-anchor=\"end\">{name} {}</text>",
            points.join(" "),
            units::quantity(flops, "FLOP/s")
        );
    }
    for (row, along, up) in points {
        let radius = 3.0 + 30.0 * row.share.sqrt();
        let _ = writeln!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius:.1}\" fill=\"{}\"><title>{}: {:.3} ms, {}, {:.1} FLOPs per \
             byte</title></circle>",
            x.at(along),
            y.at(up),
            colour(row.group),
            escaped(&row.kernel),
            1e3 * row.seconds,
            units::quantity(up, "FLOP/s"),
            along
        );
    }
    svg.push_str("</svg>\n");
    svg
}
