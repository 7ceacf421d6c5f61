//! `profile`: where the time of a training step goes, kernel by kernel.
//!
//! In: the flags of a step. Out: a table, JSON, and a page to look at. `rows` makes rows of times, `page` and `roofline`
//! draw them.

mod groups;
mod page;
mod roofline;
mod rows;

use super::bench::{Data, LEARNING_RATE, Prepared, Setting, Spread, Training};
use super::shape::changed::ChangedShape;
use super::table::{Row, Side, Table};
use super::units::{self, Rates};
use super::{Declared, Outcome};
use crate::environment::Environment;
use crate::terminal::{line, note};
use clap::Args;
use kernwright_model::atomic_file::write_atomically;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::plan::Phase;
use kernwright_runtime::Profile;
pub(super) use page::escaped;
use rows::{Document, Group, KernelRow, Rows, Timing};
use std::collections::HashMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Flags of `profile`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The times are those of a whole step: of each launch by the GPU's own records, or by events between the launches (which is \
said); on the CPU of each op. Work and bytes are the plan's, of a step or of a product: a kernel that is one of several of \
a step is not rated, but the step is, as a whole. A share of the roofline is the least time that the card could need over \
the time it took.

Examples:
  kernwright profile --preset seed-102m --batch 32 --nondeterministic
  kernwright profile --preset tiny --device cpu --json | jq '.kernels[0]'")]
pub(super) struct Arguments {
    #[command(flatten)]
    shape: ChangedShape,
    #[command(flatten)]
    setting: Setting,
    /// Sequences per step
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Steps that are timed; medians count
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    steps: u32,
    /// Where the page is written
    #[arg(long, value_name = "FILE", default_value = "profile.html")]
    html: PathBuf,
    /// Print everything as one JSON document
    #[arg(long)]
    json: bool,
}

/// What steps are called whose kernels are not rated one by one.
const WHOLES: &str = "steps of several launches, each as a whole (their times are in the rows above)";

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, environment: &Environment) -> Outcome {
    let prepared = arguments.setting.prepare(&arguments.shape, arguments.batch, declared, environment)?;
    let document = measure(arguments, prepared)?;
    let path = arguments.html.display();
    // What was measured is shown, whatever becomes of the page.
    if arguments.json {
        line(&serde_json::to_string_pretty(&document)?)?;
    } else {
        line(&lines(&document).join("\n"))?;
    }
    let page = page::page(&document);
    write_atomically(&arguments.html, |out| out.write_all(page.as_bytes()))
        .map_err(|error| format!("cannot write `{path}`: {error}"))?;
    note(&format!("page: {path}"));
    Ok(ExitCode::SUCCESS)
}

fn measure(arguments: &Arguments, prepared: Prepared) -> Result<Document, Box<dyn Error>> {
    let Prepared { named, device, options, batch, length } = prepared;
    let data = Data { batch, length, batches: 1, seed: 0, learning_rate: LEARNING_RATE };
    let mut training = Training::new(device.executor, &named.shape, &options, data)?;
    // The step as it is in training.
    for _ in 0..3 {
        training.step()?;
    }
    let spans = (0..arguments.steps).map(|_| training.step()).collect::<Result<Vec<_>, _>>()?;
    training.executor.wait()?;
    let wall = spans.into_iter().map(|span| training.seconds(span)).collect::<Result<Vec<_>, _>>()?;
    let (by, timings) = timings(&mut training, arguments.steps)?;
    let precision = options.precision.unwrap_or(named.shape.precision);
    let card = device.gpu.as_ref().and_then(|gpu| gpu.card);
    let arch = device.gpu.as_ref().map(|gpu| &gpu.arch);
    let Rows { kernels, steps, groups } = rows::rows(training.plan(), &timings, arch, card, precision);
    Ok(Document {
        model: named.name.clone(),
        device: device.description,
        batch,
        length,
        precision: precision.name(),
        deterministic: options.deterministic,
        by,
        card: card.map(rows::Speeds::of),
        wall_seconds: Spread::of(&wall).median,
        kernel_seconds: kernels.iter().map(|row| row.seconds).sum(),
        groups,
        kernels,
        steps,
    })
}

/// How the times are known, and the median time of each launch, or of each op where there are no launches.
fn timings(training: &mut Training, n: u32) -> Result<(String, Vec<Timing>), Box<dyn Error>> {
    let mut all: HashMap<(usize, Option<usize>), Vec<f64>> = HashMap::new();
    let mut by = "the host's clock, op by op".to_owned();
    for _ in 0..n {
        training.begin()?;
        for steps in training.parts() {
            match training.executor.time_launches(training.plan, steps, MicroStep::First)? {
                Some(timeline) => {
                    timeline.by.clone_into(&mut by);
                    for one in timeline.launches {
                        all.entry((one.step, Some(one.launch))).or_default().push(one.seconds);
                    }
                }
                None => break,
            }
        }
        if all.is_empty() || all.keys().any(|(_, launch)| launch.is_none()) {
            let (mut profile, start) = (Profile::default(), Instant::now());
            for phase in [Phase::Forward, Phase::Backward, Phase::Update] {
                let clock = || start.elapsed();
                profile.run_phase(&mut *training.executor, training.plan, phase, MicroStep::First, clock)?;
            }
            for (step, time) in profile.steps.iter().enumerate() {
                if let Some(time) = time {
                    all.entry((step, None)).or_default().push(time.as_secs_f64());
                }
            }
        }
    }
    let median = |((step, launch), seconds): ((usize, Option<usize>), Vec<f64>)| Timing {
        step,
        launch,
        seconds: Spread::of(&seconds).median,
    };
    let mut timings: Vec<Timing> = all.into_iter().map(median).collect();
    timings.sort_by_key(|one| (one.step, one.launch));
    Ok((by, timings))
}

fn lines(document: &Document) -> Vec<String> {
    let mode = if document.deterministic { "deterministic" } else { "nondeterministic" };
    let Document { model, batch, length, precision, device, wall_seconds, kernel_seconds, .. } = document;
    let mut lines = vec![
        format!("{model}: {batch} x {length} tokens, {precision}, {mode}, on {device}"),
        format!(
            "{} a step; kernels {} by {}: {:.1}% of it",
            units::seconds(*wall_seconds),
            units::seconds(*kernel_seconds),
            document.by,
            100.0 * kernel_seconds / wall_seconds
        ),
        String::new(),
    ];
    let rates = document.rates();
    let columns = vec![
        ("kernel", Side::Left),
        ("launches", Side::Right),
        ("ms", Side::Right),
        ("share", Side::Right),
        (rates[0].title, Side::Right),
        (rates[1].title, Side::Right),
        ("roofline", Side::Right),
    ];
    let mut table = Table { columns, rows: Vec::new() };
    for Group { group, seconds, .. } in &document.groups {
        let share = 100.0 * seconds / kernel_seconds;
        table.rows.push(Row::Heading(format!("{group}: {:.3} ms, {share:.1}%", 1e3 * seconds)));
        for row in document.kernels.iter().filter(|row| row.group == *group) {
            table.rows.push(Row::Cells(cells(row, rates)));
        }
    }
    if !document.steps.is_empty() {
        table.rows.push(Row::Heading(format!("{WHOLES}:")));
        table.rows.extend(document.steps.iter().map(|row| Row::Cells(cells(row, rates))));
    }
    lines.extend(table.lines());
    lines
}

fn cells(row: &KernelRow, [bytes, flops]: [Rates; 2]) -> Vec<String> {
    vec![
        format!("  {}", row.kernel),
        row.launches.to_string(),
        format!("{:.3}", 1e3 * row.seconds),
        format!("{:.1}%", 100.0 * row.share),
        bytes.cell(row.bytes_per_second),
        flops.cell(row.flops_per_second),
        row.of_roofline.map_or("n/a".to_owned(), |share| format!("{:.0}%", 100.0 * share)),
    ]
}
