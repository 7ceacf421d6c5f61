//! The picture of a search: of each unit a row, and in it a dot for each tile, as far to the right as it is slower than the best.
//!
//! In: findings. Out: an SVG that is readable in the dark and in the light.

use super::super::profile::escaped;
use super::search::Fate;
use super::tuner::Finding;
use std::fmt::Write as _;

/// Pixels: of the words before a row, of the part with dots, of a row.
const WORDS: f64 = 430.0;
const WIDE: f64 = 560.0;
const ROW: f64 = 20.0;
const TOP: f64 = 58.0;

/// Times the best that still have a place of their own; what is slower lies at the edge.
const MOST: f64 = 3.0;

const STYLE: &str = "text { font: 12px system-ui, sans-serif; fill: #59636e; } .title { font-size: 15px; } \
.line { stroke: #d1d9e0; } .tile { fill: #1f5fa8; fill-opacity: .45; } .before { fill: none; stroke: #d95f0e; stroke-width: 2; } \
.best { fill: #1a7f37; } @media (prefers-color-scheme: dark) { text { fill: #9198a1; } .line { stroke: #3d444d; } \
.tile { fill: #6cb0ff; } .best { fill: #3fb950; } }";

/// The text of the SVG.
#[allow(clippy::cast_precision_loss)]
pub(super) fn picture(findings: &[Finding], title: &str) -> String {
    let high = TOP + ROW * findings.len() as f64 + 16.0;
    let x = |times: f64| WORDS + WIDE * times.clamp(1.0, MOST).ln() / MOST.ln();
    // Writing into a String does not fail.
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {high}\" role=\"img\">\n<style>{STYLE}</style>\n\
         <text class=\"title\" x=\"8\" y=\"20\">{}</text>\n\
         <text x=\"8\" y=\"40\">a dot is a tile: blue, the best green, the one before in a ring; times the best:</text>\n",
        WORDS + WIDE + 24.0,
        escaped(title)
    );
    for times in [1.0, 1.1, 1.25, 1.5, 2.0, 3.0] {
        let _ = writeln!(
            svg,
            "<line class=\"line\" x1=\"{0:.1}\" y1=\"{1}\" x2=\"{0:.1}\" y2=\"{2}\"/><text x=\"{0:.1}\" y=\"{3}\" \
             text-anchor=\"middle\">{times}</text>",
            x(times),
            TOP,
            high - 12.0,
            TOP - 4.0
        );
    }
    for (index, finding) in findings.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        let Some(seconds) = finding.seconds else { continue };
        let words = format!("{}: {}", finding.unit.place(), finding.unit.tile(&finding.tile));
        let _ = writeln!(
            svg,
            "<text x=\"8\" y=\"{:.1}\"><title>{}</title>{}</text>",
            y + 4.0,
            escaped(&words),
            escaped(&finding.unit.place())
        );
        for (tile, fate) in &finding.known {
            let Fate::Timed(time) = fate else { continue };
            let about = format!("{}: {:.2} us", finding.unit.tile(tile), 1e6 * time);
            let _ = writeln!(
                svg,
                "<circle class=\"tile\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
                x(time / seconds),
                escaped(&about)
            );
        }
        let _ = writeln!(svg, "<circle class=\"best\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"5\"/>", x(1.0));
        if let Some(before) = finding.before {
            let _ = writeln!(
                svg,
                "<circle class=\"before\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"6.5\"/>",
                x(before / seconds)
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}
