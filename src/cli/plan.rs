//! `plan`: the training step as a table, before anything is allocated or compiled.
//!
//! In: a Shape, a batch, a length and a GPU. Out: a row per step with its roofline time, totals and planned memory, as
//! text or as JSON. Everything is computed by `kernwright_plan`; this file only shows it.

mod fold;
mod listing;
mod rows;

use super::plan_flags::PlanFlags;
use super::{Declared, Outcome, units};
use crate::environment::Environment;
use crate::terminal::{line, note};
use clap::Args;
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::gpu::Gpu;
use kernwright_plan::ops::Op;
use kernwright_plan::ops::attention::{Attention, Form};
use kernwright_plan::plan::{Plan, Step};
use kernwright_plan::tile::attention_backward_hopper::takes_turns;
use kernwright_plan::{Options, train_step};
use listing::{Detail, Listing};
use rows::{Memory, StepRow, Totals};
use serde::Serialize;
use std::process::ExitCode;

/// Flags of `plan`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
The time of a step is the least that the GPU's card can need: its work at the rate of the tensor cores and of the \
plain ones, or its bytes at the bandwidth of the memory, whichever is longer. A real step takes longer.

Examples:
  kernwright plan --preset seed-102m
  kernwright plan --preset llama-1b --gpu rtx-4090 --batch 1 --length 4096
  kernwright plan --preset gpt2-124m --all --wide | less -S
  kernwright plan --preset seed-102m --set model.layers=2 --set model.residual=bf16
  kernwright plan --preset tiny --json | jq .totals")]
pub(super) struct Arguments {
    #[command(flatten)]
    shape: super::shape::changed::ChangedShape,
    /// Sequences per step
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Tokens per sequence; by default the context of the shape, 1024 at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    length: Option<u32>,
    /// GPU whose speeds count: a target, a card or a file (--help lists them) [default: the first target of the shape,
    /// else sm_90a]
    #[arg(long, alias = "arch", value_name = "GPU", value_parser = super::gpu::parse, long_help = super::gpu::list("GPU whose speeds count [default: the first target of the shape, else sm_90a]"))]
    gpu: Option<Gpu>,
    #[command(flatten)]
    flags: PlanFlags,
    /// Show every step: identical layers are shown once otherwise
    #[arg(long)]
    all: bool,
    /// Show what each step writes and reads and the full names of its kernels, in long lines
    #[arg(long)]
    wide: bool,
    /// Print the plan itself, every buffer of every step named, in place of the table
    #[arg(long, conflicts_with_all = ["json", "all", "wide"])]
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
    gradient: &'static str,
    attention: &'static str,
    deterministic: bool,
    arch: &'a str,
    card: &'a str,
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
    let gpu = arguments.gpu.clone().unwrap_or_else(|| Gpu::of(default_target(&shape.targets)));
    let of_gpu = Options {
        multiprocessors: gpu.card.multiprocessors.map(|n| n as usize),
        in_turns: takes_turns(&gpu.arch),
        ..Options::default()
    };
    let options = match arguments.flags.options(&of_gpu, shape) {
        Ok(options) => options,
        Err(problem) => {
            note(&format!("error: {problem}"));
            return Ok(ExitCode::from(2));
        }
    };
    let plan = train_step(shape, &options, batch, length);
    if arguments.dump {
        line(plan.dump().trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }

    let precision = options.precision(shape);
    let attention = path(&plan);
    let steps = rows::steps(&plan, &gpu, precision);
    let (totals, memory) = (rows::totals(&steps, n_tokens), rows::memory(&plan, &gpu));
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
            gradient: options.gradient.name(),
            attention,
            deterministic: options.deterministic,
            arch: &gpu.arch.name,
            card: &gpu.card.name,
            card_memory: gpu.card.memory,
            steps: &steps,
            totals: &totals,
            memory: &memory,
        };
        line(&serde_json::to_string_pretty(&document)?)?;
        return Ok(ExitCode::SUCCESS);
    }

    line(&format!(
        "{}: {} parameters, {batch} x {length} tokens, {}, {attention} attention, on {} ({})\n",
        named.name,
        units::grouped(shape.n_parameters()),
        precision.name(),
        gpu.arch.name,
        gpu.card.name
    ))?;
    let detail = if arguments.wide { Detail::Wide } else { Detail::Narrow };
    let listing = Listing { steps: &steps, totals: &totals, memory: &memory, n_tokens, card: &gpu.card };
    line(&listing.table(detail, arguments.all).join("\n"))?;
    line(&listing.summary().join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// How the plan computes attention, whatever was asked for.
pub(super) fn path(plan: &Plan) -> &'static str {
    let is_split =
        |step: &Step| matches!(&step.op, Op::Attention(Attention { form: Form::Split { .. }, .. }));
    if plan.steps.iter().any(is_split) { "split" } else { "fused" }
}

fn default_target(targets: &[Arch]) -> &Arch {
    targets.first().or_else(|| arch::find(ARCH)).unwrap_or(&arch::ALL[0])
}
