//! `plan`: the training step as a table, before anything is allocated or compiled.
//!
//! In: a Shape, a batch, a length and a GPU. Out: a row per step with its roofline time, totals and planned memory, as
//! text or as JSON. Everything is computed by `kernwright_plan`; this file only shows it.

mod fold;
mod rows;

use super::table::{Row, Side, Table};
use super::{Declared, Outcome, units};
use crate::environment::Environment;
use crate::terminal::{line, note};
use clap::Args;
use clap::builder::PossibleValuesParser;
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::dtype::{self, Dtype};
use kernwright_plan::passes::SWITCHES;
use kernwright_plan::{Options, train_step};
use rows::{LaunchRow, Memory, Slot, StepRow, Totals};
use serde::Serialize;
use std::process::ExitCode;

/// Flags of `plan`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The time of a step is the least that the GPU's card can need: its work at the rate of the tensor cores and of the \
plain ones, or its bytes at the bandwidth of the memory, whichever is longer. A real step takes longer.

Examples:
  kernwright plan --preset seed-102m
  kernwright plan --preset llama-1b --arch sm_120a --batch 1 --length 4096
  kernwright plan --preset tiny --json | jq .totals")]
pub(super) struct Arguments {
    #[command(flatten)]
    shape: super::shape::ShapeArguments,
    /// Sequences per step
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Tokens per sequence; by default the context of the shape, 1024 at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    length: Option<u32>,
    /// GPU whose card gives the speeds; by default the first target of the shape, else sm_90a
    #[arg(long, value_name = "ARCH", value_parser = super::gpu::names())]
    arch: Option<String>,
    /// Element type of matrix operands; by default that of the shape
    #[arg(long, value_name = "TYPE", value_parser = precisions())]
    precision: Option<String>,
    /// Leave a pass out of the plan; may be given several times
    #[arg(long, value_name = "PASS", value_parser = switches())]
    without: Vec<String>,
    /// Show every step: identical layers are shown once otherwise
    #[arg(long)]
    all: bool,
    /// Print the plan itself, every buffer of every step named, in place of the table
    #[arg(long, conflicts_with_all = ["json", "all"])]
    dump: bool,
    /// Print everything as one JSON document
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    model: &'a str,
    shape: Vec<&'a str>,
    parameters: usize,
    batch: usize,
    length: usize,
    tokens: usize,
    precision: &'static str,
    arch: &'static str,
    card: &'static str,
    card_memory: u64,
    steps: &'a [StepRow],
    totals: &'a Totals,
    memory: &'a Memory,
}

const ARCH: &str = "sm_90a";
const LENGTH: usize = 1024;

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, _environment: &Environment) -> Outcome {
    let named = arguments.shape.resolve(declared)?;
    let shape = &named.shape;
    let batch = arguments.batch as usize;
    let length = arguments.length.map_or(shape.context.min(LENGTH), |length| length as usize);
    if length > shape.context {
        let (name, context) = (&named.name, shape.context);
        note(&format!(
            "error: `--length` must be at most {context}, the context of `{name}`, found `{length}`"
        ));
        return Ok(ExitCode::from(2));
    }
    // Rows are numbered by 32-bit whole numbers.
    let Some(n_tokens) = batch.checked_mul(length).filter(|tokens| *tokens < 1 << 31) else {
        note(&format!(
            "error: `--batch` times `--length` must be below 2^31, found `{batch}` times `{length}`"
        ));
        return Ok(ExitCode::from(2));
    };
    let arch = target(arguments.arch.as_deref(), &shape.targets)?;
    let precision = arguments.precision.as_deref().and_then(Dtype::precision);
    let options = Options { precision, without: arguments.without.clone(), ..Options::default() };
    let plan = train_step(shape, &options, batch, length);
    if arguments.dump {
        line(plan.dump().trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }

    let precision = precision.unwrap_or(shape.precision);
    let steps = rows::steps(&plan, arch, precision);
    let (totals, memory) = (rows::totals(&steps, n_tokens), rows::memory(&plan));
    if arguments.json {
        let text = shape.text();
        let document = Document {
            model: &named.name,
            shape: text.lines().collect(),
            parameters: shape.n_parameters(),
            batch,
            length,
            tokens: n_tokens,
            precision: precision.name(),
            arch: arch.name,
            card: arch.card.name,
            card_memory: arch.card.memory,
            steps: &steps,
            totals: &totals,
            memory: &memory,
        };
        line(&serde_json::to_string_pretty(&document)?)?;
        return Ok(ExitCode::SUCCESS);
    }

    line(&format!(
        "{}: {} parameters, {batch} x {length} tokens, {}, on {} ({})\n",
        named.name,
        units::grouped(shape.n_parameters()),
        precision.name(),
        arch.name,
        arch.card.name
    ))?;
    line(&table(&steps, &totals, arguments.all).lines().join("\n"))?;
    line(&summary(&totals, &memory, n_tokens, arch).join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn target(asked: Option<&str>, targets: &[&'static Arch]) -> Result<&'static Arch, String> {
    let name = asked.or_else(|| targets.first().map(|arch| arch.name)).unwrap_or(ARCH);
    arch::find(name).ok_or_else(|| format!("`{name}` is not a known GPU, allowed are {}", arch::names()))
}

fn precisions() -> PossibleValuesParser {
    PossibleValuesParser::new(dtype::ALL.iter().filter(|row| row.is_precision).map(|row| row.name))
}

fn switches() -> PossibleValuesParser {
    use clap::builder::PossibleValue;
    PossibleValuesParser::new(SWITCHES.iter().map(|(name, about)| PossibleValue::new(*name).help(*about)))
}

fn table(steps: &[StepRow], totals: &Totals, all: bool) -> Table {
    use Side::{Left, Right};
    let columns = vec![
        ("step", Right),
        ("", Left),
        ("op", Left),
        ("writes", Left),
        ("shape", Left),
        ("FLOPs", Right),
        ("bytes", Right),
        ("time", Right),
        ("share", Right),
        ("runs as", Left),
        ("reads", Left),
    ];
    let mut table = Table { columns, rows: Vec::new() };
    let groups = if all { vec![fold::Group { rows: 0..steps.len(), times: 1 }] } else { fold::fold(steps) };
    let mut phase = "";
    for group in groups {
        for row in &steps[group.rows.clone()] {
            if row.phase != phase {
                phase = row.phase;
                let about =
                    if row.counted { "" } else { ": once, when the weights were set; not in the totals" };
                table.rows.push(Row::Heading(format!("{phase}{about}")));
            }
            table.rows.push(Row::Cells(cells(row, group.times, totals)));
        }
    }
    table
}

fn cells(row: &StepRow, times: usize, totals: &Totals) -> Vec<String> {
    let shown = |name: &str| if times > 1 { fold::of_any_layer(name) } else { name.to_owned() };
    let first = row.writes.first();
    let shape = first.map_or(String::new(), |slot| {
        let sizes: Vec<String> = slot.shape.iter().map(ToString::to_string).collect();
        format!("{}[{}]", slot.dtype, sizes.join("x"))
    });
    #[allow(clippy::cast_precision_loss)]
    let share = 100.0 * row.roofline_seconds * times as f64 / totals.roofline_seconds;
    vec![
        row.index.to_string(),
        if times > 1 { format!("x {times}") } else { String::new() },
        row.op.to_owned(),
        names(&row.writes, 48, &shown),
        shape,
        units::quantity(row.flops, ""),
        units::bytes(row.bytes),
        units::seconds(row.roofline_seconds),
        if row.counted { format!("{share:.1}%") } else { String::new() },
        launches(row),
        names(&row.reads, 60, &shown),
    ]
}

/// The names that fit into `room`, at least one, and how many more there are. Scratch is nobody's result.
fn names(slots: &[Slot], room: usize, shown: &dyn Fn(&str) -> String) -> String {
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

fn launches(row: &StepRow) -> String {
    if let Some(why) = row.no_kernel {
        return why.to_owned();
    }
    let one = |launch: &LaunchRow| match launch {
        LaunchRow::Kernel { kernel, .. } => kernel.clone(),
        LaunchRow::Gemm { m, n, k } => format!("GEMM {m}x{n}x{k}"),
        LaunchRow::Copy { .. } => "copy".to_owned(),
        LaunchRow::Zero { .. } => "zero".to_owned(),
    };
    row.launches.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[allow(clippy::cast_precision_loss)]
fn summary(totals: &Totals, memory: &Memory, n_tokens: usize, arch: &Arch) -> Vec<String> {
    let bytes = |bytes: usize| units::bytes(bytes as f64);
    let roles: Vec<String> =
        memory.by_role.iter().map(|(role, size)| format!("{role} {}", bytes(*size))).collect();
    let (card, room) = (arch.card.name, arch.card.memory);
    let fits = if memory.arena as u64 <= room { "of" } else { "does not fit into" };
    vec![
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
            "memory    {} planned, {fits} the {} of {card}: {} persistent, {} transient",
            bytes(memory.arena),
            units::bytes(room as f64),
            bytes(memory.persistent),
            bytes(memory.transient)
        ),
        format!("          {} (activation and scratch share room: sums)", roles.join(", ")),
        format!("kernels   {} of {} steps have none yet", totals.n_without_kernel, totals.n_steps),
    ]
}
