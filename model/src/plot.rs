//! The loss curve of a run as an SVG.
//!
//! In: the records of a run and the bigram baseline. Out: the text of `loss.svg`: the training loss, raw and smoothed,
//! the validation losses, and the baseline as a dashed line. Any records can be drawn: none, one, or a run that
//! diverged, whose first loss that is not a number is marked.

mod curve;

use std::io;
use std::ops::Range;
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::atomic_file::write_atomically;
use crate::metrics::Record;
use curve::{N_SMOOTHED, Point, range, segments, smoothed, thinned};

/// The size of the picture in pixels.
const SIZE: (u32, u32) = (960, 540);

const TRAINING: RGBColor = RGBColor(0x1f, 0x5f, 0xa8);
const TRAINING_RAW: RGBColor = RGBColor(0xbc, 0xd2, 0xea);
const VALIDATION: RGBColor = RGBColor(0xd9, 0x5f, 0x0e);
const BASELINE: RGBColor = RGBColor(0x55, 0x55, 0x55);
const DIVERGED: RGBColor = RGBColor(0xc0, 0x1c, 0x28);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Plot<'a> {
    /// The line above the picture.
    pub title: &'a str,
    /// The records of the run, by rising step.
    pub records: &'a [Record],
    /// The loss of the bigram baseline, nats per token.
    pub bigram: Option<f64>,
}

/// Why a plot cannot be drawn.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PlotError {
    #[error("cannot draw the plot: {0}")]
    Draw(String),
    #[error("cannot write `{path}`")]
    Write { path: String, source: io::Error },
}

impl Plot<'_> {
    /// Draws to the file at `path`.
    pub fn save(&self, path: &Path) -> Result<(), PlotError> {
        let text = self.draw()?;
        write_atomically(path, |file| file.write_all(text.as_bytes()))
            .map_err(|source| PlotError::Write { path: path.display().to_string(), source })
    }

    /// The text of the SVG.
    pub fn draw(&self) -> Result<String, PlotError> {
        let mut text = String::new();
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        self.draw_on(&root).map_err(|error| PlotError::Draw(error.to_string()))?;
        drop(root);
        Ok(text)
    }

    fn draw_on(&self, root: &Area<'_>) -> Result<(), Failure> {
        let raw: Vec<Point> = self.records.iter().map(|record| (record.tokens as f64, record.loss)).collect();
        let validation: Vec<Point> = self
            .records
            .iter()
            .filter_map(|record| record.validation_loss.map(|loss| (record.tokens as f64, loss)))
            .collect();
        let baseline = self.bigram.filter(|loss| loss.is_finite());
        let smooth = if raw.len() < N_SMOOTHED { Vec::new() } else { smoothed(&raw) };
        let raw_color = if smooth.is_empty() { TRAINING } else { TRAINING_RAW };
        let last = self.records.iter().map(|record| record.tokens).max().unwrap_or(0).max(1) as f64;
        let heights =
            range(&raw, [&smooth, &validation].into_iter().flatten().map(|point| point.1).chain(baseline));

        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(root)
            .caption(self.title, ("sans-serif", 18).into_font().color(&INK))
            .margin(12)
            .margin_right(24)
            .x_label_area_size(46)
            .y_label_area_size(62)
            .build_cartesian_2d(0.0..last, heights.clone())?;
        self.draw_axes(&mut chart, &heights)?;

        let clipped = |points: &[Point]| -> Vec<Point> {
            points.iter().map(|point| (point.0, point.1.clamp(heights.start, heights.end))).collect()
        };
        for points in segments(&raw) {
            let points = clipped(&thinned(points));
            chart.draw_series(dots_of_one(&points, TRAINING))?;
            chart.draw_series(LineSeries::new(points, raw_color.stroke_width(1)))?;
        }
        for points in segments(&smooth) {
            chart.draw_series(LineSeries::new(clipped(&thinned(points)), TRAINING.stroke_width(2)))?;
        }
        if let Some(loss) = baseline {
            let line = DashedLineSeries::new([(0.0, loss), (last, loss)], 7, 5, BASELINE.stroke_width(1));
            chart.draw_series(line)?;
            let style = ("sans-serif", 12).into_font().color(&BASELINE);
            let label = Text::new("bigram", (0, -3), style.pos(Pos::new(HPos::Right, VPos::Bottom)));
            chart.draw_series([EmptyElement::at((last, loss)) + label])?;
        }
        for points in segments(&validation) {
            let points = clipped(points);
            chart.draw_series(LineSeries::new(points.clone(), VALIDATION.stroke_width(1)))?;
            let size = if validation.len() > 60 { 2 } else { 4 };
            chart
                .draw_series(points.into_iter().map(|point| Circle::new(point, size, VALIDATION.filled())))?;
        }
        let diverged = self.records.iter().find(|record| !record.loss.is_finite());
        if let Some(record) = diverged {
            let place = record.tokens as f64;
            let line = [(place, heights.start), (place, heights.end)];
            chart.draw_series(DashedLineSeries::new(line, 3, 3, DIVERGED.stroke_width(1)))?;
        }

        let mut entries = vec![(Mark::Line(raw_color), "training".to_owned())];
        if !smooth.is_empty() {
            entries.push((Mark::Line(TRAINING), "training, smoothed".to_owned()));
        }
        if !validation.is_empty() {
            entries.push((Mark::Dot(VALIDATION), "validation".to_owned()));
        }
        if let Some(loss) = baseline {
            entries.push((Mark::Dashes(BASELINE), format!("bigram baseline, {loss:.3}")));
        }
        if let Some(Record { step, .. }) = diverged {
            entries.push((Mark::Dashes(DIVERGED), format!("not a number from step {step}")));
        }
        draw_legend(root, &entries)?;
        root.present()?;
        Ok(())
    }

    fn draw_axes(&self, chart: &mut Chart<'_, '_>, heights: &Range<f64>) -> Result<(), Failure> {
        let decimals = if heights.end - heights.start < 0.5 { 3 } else { 2 };
        let font = |size| ("sans-serif", size).into_font().color(&INK);
        chart
            .configure_mesh()
            .x_desc("tokens")
            .y_desc("loss (nats per token)")
            .axis_desc_style(font(14))
            .label_style(font(12))
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .x_labels(10)
            .y_labels(9)
            .x_label_formatter(&|tokens| if tokens.fract() == 0.0 { short(*tokens) } else { String::new() })
            .y_label_formatter(&|loss| format!("{loss:.decimals$}"))
            .draw()?;
        Ok(())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;
type Failure = DrawingAreaErrorKind<io::Error>;

/// How an entry of the legend is marked.
enum Mark {
    Line(RGBColor),
    Dashes(RGBColor),
    Dot(RGBColor),
}

/// Draws the legend by hand: the library sizes its own by the metrics of a font that it does not have.
fn draw_legend(root: &Area<'_>, entries: &[(Mark, String)]) -> Result<(), Failure> {
    const LINE: i32 = 20;
    let longest = entries.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0) as i32;
    let (width, height) = (54 + 7 * longest, LINE * entries.len() as i32 + 10);
    let (right, top) = (SIZE.0 as i32 - 36, 52);
    let left = right - width;
    let corners = [(left, top), (right, top + height)];
    root.draw(&Rectangle::new(corners, WHITE.mix(0.9).filled()))?;
    root.draw(&Rectangle::new(corners, GRID))?;
    for (i, (mark, text)) in entries.iter().enumerate() {
        let y = top + 5 + LINE * i as i32 + LINE / 2;
        let line = |from: i32, to: i32, style: ShapeStyle| {
            root.draw(&PathElement::new([(left + from, y), (left + to, y)], style))
        };
        match mark {
            Mark::Line(color) => line(10, 38, color.stroke_width(2))?,
            Mark::Dashes(color) => {
                [10, 20, 30].into_iter().try_for_each(|from| line(from, from + 7, color.stroke_width(1)))?;
            }
            Mark::Dot(color) => {
                line(10, 38, color.stroke_width(1))?;
                root.draw(&Circle::new((left + 24, y), 4, color.filled()))?;
            }
        }
        let font = ("sans-serif", 13).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(text.clone(), (left + 46, y), font))?;
    }
    Ok(())
}

/// A dot where a curve is a single point and a line would not show.
fn dots_of_one(points: &[Point], color: RGBColor) -> Option<Circle<Point, i32>> {
    (points.len() == 1).then(|| Circle::new(points[0], 3, color.filled()))
}

/// A whole number in as few letters as say it exactly: `999`, `2.5k`, `1.25M`.
fn short(number: f64) -> String {
    for (unit, letter) in [(1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")] {
        // Three places are exact when the rest is nothing.
        if number >= unit && (number * 1000.0 / unit).fract() == 0.0 {
            return format!("{}{letter}", number / unit);
        }
    }
    format!("{number:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(losses: impl IntoIterator<Item = f64>) -> Vec<Record> {
        let record = |(i, loss)| {
            let step = i as u64 + 1;
            Record { step, tokens: 1000 * step, loss, ..Record::default() }
        };
        losses.into_iter().enumerate().map(record).collect()
    }

    fn draw(records: &[Record], bigram: Option<f64>) -> String {
        Plot { title: "brain", records, bigram }.draw().unwrap()
    }

    #[test]
    fn the_axes_the_legend_and_the_baseline_are_named() {
        let mut records = records((0..500).map(|i| 5.5 * (-f64::from(i) / 100.0).exp() + 2.0));
        records[249].validation_loss = Some(3.0);
        let text = draw(&records, Some(2.5));
        for name in ["brain", "tokens", "100k", "loss (nats per token)", "training, smoothed", "validation"] {
            assert!(text.contains(name), "{name}");
        }
        assert!(text.contains("bigram baseline, 2.500") && text.contains("<circle"));
        assert!(!text.contains("not a number"));
    }

    #[test]
    fn any_records_can_be_drawn() {
        let nan = f64::NAN;
        let runs: [&[f64]; 8] = [
            &[],
            &[3.0],
            &[nan],
            &[2.0, 2.0, 2.0],
            &[0.0, 0.0],
            &[nan, 3.0, nan],
            &[1e30, 1.0],
            &[-1.0, f64::INFINITY],
        ];
        for losses in runs {
            for bigram in [None, Some(2.5), Some(nan)] {
                let text = draw(&records(losses.iter().copied()), bigram);
                assert!(text.ends_with("</svg>\n"), "{losses:?}");
                assert!(!text.contains("NaN") && !text.contains("inf"), "{losses:?}: {text}");
            }
        }
        assert!(draw(&records([1.0, nan]), None).contains("not a number from step 2"));
    }

    #[test]
    fn a_long_run_stays_a_small_file() {
        let records = records((0..200_000).map(|i| 3.0 + f64::from(i % 7)));
        assert!(draw(&records, None).len() < 200_000);
    }

    #[test]
    fn a_run_that_changed_its_batch_is_drawn_by_tokens() {
        let mut records = records([3.0, 2.0, 1.0]);
        let even = draw(&records, None);
        records.iter_mut().for_each(|record| record.step *= 7);
        assert_eq!(draw(&records, None), even);
        records[2].tokens = 9000;
        assert_ne!(draw(&records, None), even);
    }

    #[test]
    fn numbers_are_short_and_exact() {
        let cases = [
            (0.0, "0"),
            (999.0, "999"),
            (2500.0, "2.5k"),
            (20_000.0, "20k"),
            (20_500.0, "20.5k"),
            (1_250_000.0, "1.25M"),
            (12_345_000.0, "12.345M"),
            (12_345_678.0, "12345.678k"),
            (3e9, "3B"),
            (1.5e12, "1.5T"),
        ];
        cases.iter().for_each(|(number, text)| assert_eq!(short(*number), *text));
    }
}
