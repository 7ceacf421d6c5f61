//! `bench step`: whole training steps on random tokens.

use super::super::memory::Need;
use super::super::shape::changed::ChangedShape;
use super::super::{Declared, Outcome};
use super::figures::{Figures, Memory, Peak, Spread, flops};
use super::record::Record;
use super::setting::{Prepared, Setting};
use super::training::{Data, LEARNING_RATE, Training};
use super::{baseline, neighbours};
use crate::environment::Environment;
use crate::terminal::{line, note};
use clap::Args;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Flags of `bench step`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A step is forward, backward, gradient norm and AdamW on one batch of random tokens; it is asked for again and again \
without waiting, as in training, and each is timed between two events on the device (on the CPU by the host's clock). \
MFU counts the products of a forward pass three times and nothing else, against the card's dense peak.

Examples:
  kernwright bench step --preset seed-102m --batch 32 --nondeterministic
  kernwright bench step --preset seed-102m --set model.residual=bf16 --batch 4 --json > before.json
  kernwright bench step --preset seed-102m --set model.residual=bf16 --batch 4 --baseline before.json
  kernwright bench step --preset tiny --device cpu --without residual_in_linear")]
pub(super) struct Arguments {
    #[command(flatten)]
    shape: ChangedShape,
    #[command(flatten)]
    setting: Setting,
    /// Sequences per step
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Measured steps
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// Steps before them, of which the first records what is replayed from then on
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    warmup: u32,
    /// Seed of weights and tokens
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Batches that steps go through in turn; more than one is handed over before each step, as in training
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batches: u32,
    /// Learning rate of every step
    #[arg(long, value_name = "RATE", default_value_t = LEARNING_RATE, value_parser = rate)]
    learning_rate: f32,
    /// Write the first weights, the batches and the loss of every step to a new folder
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Compare tokens/s with what an earlier `--json` says of the same step
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Exit code 1 where tokens/s are below this share of the baseline's
    #[arg(long, value_name = "RATIO", default_value_t = 0.97, requires = "baseline", value_parser = ratio)]
    fail_below: f64,
    /// Print everything as one JSON document
    #[arg(long)]
    json: bool,
}

fn ratio(text: &str) -> Result<f64, String> {
    let allowed = || format!("must be a number above 0, such as 0.97, found `{text}`");
    text.parse().ok().filter(|ratio: &f64| *ratio > 0.0 && ratio.is_finite()).ok_or_else(allowed)
}

fn rate(text: &str) -> Result<f32, String> {
    let allowed = || format!("must be a number above 0, such as 1e-4, found `{text}`");
    text.parse().ok().filter(|rate: &f32| *rate > 0.0 && rate.is_finite()).ok_or_else(allowed)
}

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, environment: &Environment) -> Outcome {
    let baseline = match &arguments.baseline {
        Some(path) => Some((path, baseline::read(path)?)),
        None => None,
    };
    let before = neighbours::all();
    let prepared = arguments.setting.prepare(&arguments.shape, arguments.batch, declared, environment)?;
    let figures = measure(arguments, prepared, before)?;
    if arguments.json {
        line(&serde_json::to_string_pretty(&figures)?)?;
    } else {
        line(&figures.lines().join("\n"))?;
    }
    let [first, last] = figures.loss;
    if !(first.is_finite() && last.is_finite()) {
        return Err(
            format!("the loss must be a number, found `{first}` at first and `{last}` in the end").into()
        );
    }
    if last >= first {
        note(&format!("note: the loss did not fall: `{first}` at first and `{last}` in the end"));
    }
    let Some((path, baseline)) = baseline else { return Ok(ExitCode::SUCCESS) };
    baseline::check(path, &baseline, &figures)?;
    let (verdict, passed) = baseline::compare(&baseline, &figures, arguments.fail_below);
    match (passed, arguments.json) {
        (false, _) => return Err(verdict.into()),
        (true, true) => note(&verdict),
        (true, false) => line(&verdict)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the steps.
fn measure(
    arguments: &Arguments,
    prepared: Prepared,
    before: Option<Vec<neighbours::Neighbour>>,
) -> Result<Figures, Box<dyn Error>> {
    let Prepared { named, device, options, batch, length } = prepared;
    let shape = &named.shape;
    let Arguments { batches, seed, learning_rate, .. } = *arguments;
    let data = Data { batch, length, batches: batches as usize, seed, learning_rate };
    let mut training = Training::new(device.executor, shape, &options, data)?;
    let mut record = match &arguments.record {
        Some(folder) => Some(Record::create(folder, &training, shape, data)?),
        None => None,
    };
    let first = training.step()?;
    let has_clock = Training::has_clock(first);
    let loss_before = training.loss()?;
    let allocations = training.executor.usage().allocations;
    let mut step = |training: &mut Training| -> Result<_, Box<dyn Error>> {
        let span = training.step()?;
        if let Some(record) = &mut record {
            record.add(training.ask_for_loss()?);
        }
        Ok(span)
    };
    for _ in 1..arguments.warmup {
        step(&mut training)?;
    }
    training.executor.wait()?;
    let start = Instant::now();
    let spans = (0..arguments.steps).map(|_| step(&mut training)).collect::<Result<Vec<_>, _>>()?;
    training.executor.wait()?;
    let wall = start.elapsed().as_secs_f64();
    if let Some(record) = record {
        record.finish(&mut training, loss_before)?;
    }
    let usage = training.executor.usage();
    let seconds = spans.into_iter().map(|span| training.seconds(span));
    let milliseconds: Vec<f64> =
        seconds.map(|seconds| seconds.map(|seconds| 1e3 * seconds)).collect::<Result<_, _>>()?;
    let loss_after = training.loss()?;
    if training.has_halted()? {
        return Err("a loss or a gradient of some step was no number, and steps from then on changed nothing: give a smaller \
                    `--learning-rate`"
            .into());
    }
    let after = neighbours::all().filter(|_| device.gpu.is_some());

    let milliseconds = Spread::of(&milliseconds);
    let (tokens, plan) = (batch * length, training.plan());
    let work = flops(shape, batch, length);
    let precision = options.precision.unwrap_or(shape.precision);
    let is_narrow = precision.bytes() < 4;
    let card = device.gpu.as_ref().and_then(|gpu| gpu.card);
    let peak =
        card.filter(|_| is_narrow).map(|card| Peak { name: card.name.to_string(), flops: card.tensor_flops });
    let uuid = device.gpu.and_then(|gpu| gpu.uuid);
    let second = milliseconds.median / 1e3;
    Ok(Figures {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        model: named.name.clone(),
        shape: shape.text().lines().map(str::to_owned).collect(),
        parameters: shape.n_parameters(),
        batch,
        length,
        tokens,
        precision: precision.name().to_owned(),
        residual: if is_narrow { shape.residual.name() } else { precision.name() }.to_owned(),
        attention: super::super::plan::path(plan).to_owned(),
        deterministic: options.deterministic,
        without: options.without.clone(),
        with: options.with.clone(),
        grad_dtype: options.gradient.name().to_owned(),
        head_chunk: options.head_chunk,
        batches: data.batches,
        seed: data.seed,
        device: device.description,
        mfu: peak.as_ref().map(|peak| work / second / peak.flops),
        peak,
        steps: arguments.steps as usize,
        clock: if has_clock { "device" } else { "host" }.to_owned(),
        tokens_per_second: tokens as f64 / second,
        milliseconds,
        wall_milliseconds: 1e3 * wall / f64::from(arguments.steps),
        flops_per_token: work / tokens as f64,
        memory: Memory {
            planned: Need::of_step(plan, &device.beside).total(),
            allocated: usage.allocated,
            taken: usage.taken,
        },
        loss: [loss_before, loss_after],
        allocations_after_first_step: usage.allocations.zip(allocations).map(|(now, then)| now - then),
        neighbours: before
            .zip(after)
            .map(|(before, after)| neighbours::others(before, after, std::process::id(), uuid.as_deref())),
    })
}
