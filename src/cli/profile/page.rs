//! The page of a profile: one file that needs no other, with bars, a roofline and the table.
//!
//! In: a document. Out: HTML without scripts, readable in the dark and in the light, by CSS alone.

use super::groups::colour;
use super::roofline;
use super::rows::{Document, Group, KernelRow};
use crate::cli::units::{self, Rates};
use std::fmt::Write as _;

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; --paper: #ffffff; --band: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --paper: #0d1117; --band: #151b23; }
}
body { margin: 2rem auto; max-width: 68rem; padding: 0 1rem; color: var(--ink); background: var(--paper);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
p { margin: .2rem 0; color: var(--soft); } b { color: var(--ink); }
.stack { display: flex; height: 1.8rem; border-radius: 4px; overflow: hidden; margin: 1rem 0 .6rem; }
.stack div { min-width: 2px; }
.key { display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; padding: 0; margin: 0; list-style: none; }
.dot { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 18rem; }
tbody tr:nth-child(even) { background: var(--band); }
code { font: .85em ui-monospace, monospace; }
.bar { width: 9rem; } .bar div { height: .7rem; border-radius: 2px; min-width: 1px; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
.grid { stroke: var(--line); stroke-width: 1; } .roof { fill: none; stroke: var(--ink); stroke-width: 1.5; }
circle { fill-opacity: .55; stroke: var(--paper); stroke-width: 1; }
";

/// Text that stands for itself in HTML.
pub(in super::super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The page.
pub(super) fn page(document: &Document) -> String {
    let Document { model, device, batch, length, precision, wall_seconds, kernel_seconds, .. } = document;
    let mode = if document.deterministic { "deterministic" } else { "nondeterministic" };
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Profile of {0}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>Profile of {0}</h1>\n\
         <p>{batch} x {length} tokens, {precision}, {mode}, on {1}</p>\n\
         <p><b>{2}</b> a step, <b>{3}</b> of it in kernels ({4:.1}%), by {5}</p>\n",
        escaped(model),
        escaped(device),
        units::seconds(*wall_seconds),
        units::seconds(*kernel_seconds),
        100.0 * kernel_seconds / wall_seconds,
        escaped(&document.by)
    );
    page.push_str(&groups(&document.groups));
    if let Some(card) = &document.card {
        let picture = roofline::picture(document.kernels.iter().chain(&document.steps), card);
        if !picture.is_empty() {
            let name = escaped(&card.name);
            let _ = write!(page, "<h2>Roofline of {name}</h2>\n{picture}");
            page.push_str(
                "<p>A disc is a kernel, or a step of several; its area is its share of the time.</p>\n",
            );
        }
    }
    let rates = document.rates();
    page.push_str(&table("Kernels", "kernel", &document.kernels, rates));
    if !document.steps.is_empty() {
        page.push_str(&table("Steps of several launches, each as a whole", "step", &document.steps, rates));
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn groups(groups: &[Group]) -> String {
    let mut text = "<div class=\"stack\">\n".to_owned();
    for Group { group, share, .. } in groups {
        let _ = writeln!(
            text,
            "<div style=\"width:{:.2}%;background:{}\" title=\"{group} {:.1}%\"></div>",
            100.0 * share,
            colour(group),
            100.0 * share
        );
    }
    text.push_str("</div>\n<ul class=\"key\">\n");
    for Group { group, share, seconds, launches } in groups {
        let _ = writeln!(
            text,
            "<li><span class=\"dot\" style=\"background:{}\"></span><b>{group}</b> {:.3} ms, {:.1}%, {launches} launches</li>",
            colour(group),
            1e3 * seconds,
            100.0 * share
        );
    }
    text + "</ul>\n"
}

fn table(title: &str, of: &str, rows: &[KernelRow], [bytes, flops]: [Rates; 2]) -> String {
    let mut text = format!(
        "<h2>{title}</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>{of}</th><th></th><th>launches</th><th>ms</th>\
         <th>share</th><th>{}</th><th>{}</th><th>roofline</th></tr></thead>\n<tbody>\n",
        bytes.title, flops.title
    );
    let most = rows.iter().map(|row| row.share).fold(0.0, f64::max);
    for row in rows {
        let _ = writeln!(
            text,
            "<tr><td><code>{}</code></td><td class=\"bar\"><div style=\"width:{:.1}%;background:{}\"></div></td>\
             <td>{}</td><td>{:.3}</td><td>{:.1}%</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(&row.kernel),
            100.0 * row.share / most,
            colour(row.group),
            row.launches,
            1e3 * row.seconds,
            100.0 * row.share,
            bytes.cell(row.bytes_per_second),
            flops.cell(row.flops_per_second),
            row.of_roofline.map_or("n/a".to_owned(), |share| format!("{:.0}%", 100.0 * share))
        );
    }
    text + "</tbody></table></div>\n"
}

#[cfg(test)]
mod tests {
    use super::super::rows::Speeds;
    use super::*;

    fn document() -> Document {
        let row = |group, kernel: &str, share, flops| KernelRow {
            group,
            kernel: kernel.to_owned(),
            launches: 3,
            seconds: share,
            share,
            flops: Some(flops),
            bytes: Some(1e12),
            flops_per_second: Some(flops / share),
            bytes_per_second: Some(1e12 / share),
            of_roofline: Some(0.5),
        };
        let unrated = |row: KernelRow| KernelRow {
            flops: None,
            bytes: None,
            flops_per_second: None,
            bytes_per_second: None,
            of_roofline: None,
            ..row
        };
        Document {
            model: "a <b> & \"c\"".to_owned(),
            device: "GPU 0".to_owned(),
            batch: 2,
            length: 8,
            precision: "bf16",
            deterministic: true,
            by: "a clock".to_owned(),
            card: Some(Speeds {
                name: "C".to_owned(),
                tensor_flops: 1e15,
                fp32_flops: 6e13,
                bandwidth: 4e12,
            }),
            wall_seconds: 1.1,
            kernel_seconds: 1.0,
            groups: vec![Group { group: "GEMM", launches: 3, seconds: 1.0, share: 1.0 }],
            kernels: vec![
                row("GEMM", "8x8 by 8x8", 0.5, 5e14),
                row("norm", "norm<1>", 0.25, 1e11),
                unrated(row("norm", "sums", 0.25, 0.0)),
            ],
            steps: vec![row("norm", "norm_backward", 0.25, 1e12)],
        }
    }

    #[test]
    fn the_page_needs_nothing_else_and_shows_every_kernel() {
        let page = page(&document());
        for foreign in ["<script", "http://", "https://", "url(", "@import", "<link", "<img"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(page.contains("a &lt;b&gt; &amp; &quot;c&quot;") && !page.contains("a <b>"));
        assert!(page.contains("<code>8x8 by 8x8</code>") && page.contains("<code>norm&lt;1&gt;</code>"));
        assert_eq!(page.matches("<circle").count(), 3, "none is of a kernel that is not rated");
        assert!(
            page.contains("<th>TB/s</th><th>TFLOP/s</th>") && page.contains("<td>2.00</td><td>1000.0</td>")
        );
        assert!(page.contains("<code>sums</code>") && page.contains("<code>norm_backward</code>"));
        assert!(page.contains("prefers-color-scheme: dark"));
        for tag in ["table", "svg", "div", "ul", "body", "html"] {
            let (opened, closed) =
                (page.matches(&format!("<{tag}")).count(), page.matches(&format!("</{tag}>")).count());
            assert_eq!(opened, closed, "{tag}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }

    #[test]
    fn discs_lie_within_the_picture_and_below_their_roof() {
        let document = document();
        let card = document.card.expect("it has one");
        let picture = roofline::picture(document.kernels.iter(), &card);
        let number = |text: &str, key: &str| -> f64 {
            let start = text.find(key).expect("it is there") + key.len();
            text[start..].split('"').next().and_then(|number| number.parse().ok()).expect("a number")
        };
        let discs: Vec<(f64, f64)> = picture
            .split("<circle")
            .skip(1)
            .map(|disc| (number(disc, "cx=\""), number(disc, "cy=\"")))
            .collect();
        assert!(
            discs.iter().all(|(x, y)| (70.0..=845.0).contains(x) && (15.0..=375.0).contains(y)),
            "{discs:?}"
        );
        // More FLOPs per byte lie to the right, more FLOP/s above.
        assert!(discs[0].0 > discs[1].0 && discs[0].1 < discs[1].1, "{discs:?}");
        assert_eq!(roofline::picture([].into_iter(), &card), "");
    }
}
