//! `train`: flags, data and folder become a run; the run's events become a progress bar.

mod bar;
mod baseline;
mod batch;
mod config;
mod data;
mod flags;
mod folder;
mod options;
mod report;
mod resolved;

use super::device::{self, DeviceArguments};
use super::memory::Room;
use super::shape::Named;
use super::shape::changed::ChangedShape;
use super::signals;
use super::{Declared, Outcome, shell};
use crate::environment::Environment;
use crate::terminal;
use bar::Bar;
use baseline::Baseline;
use batch::{Batch, Candidate};
use clap::Args;
use config::Config;
use flags::Flags;
use folder::{Destination, Resumed};
use kernwright_model::checkpoint::{Checkpoint, check_shape};
use kernwright_model::run::{self, Pace, Rhythm};
use kernwright_model::trainer::Trainer;
use kernwright_plan::options::RunsOn;
use kernwright_plan::shape::parse_text;
use kernwright_runtime::Cpu;
use options::Settings;
use report::Speed;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Flags of `train`. A flag left out takes its value from --config, else from the resumed checkpoint, else its default.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kernwright train                                  a tiny model on the built-in text
  kernwright train --data book.txt --steps 2000     your own text: a file, or a folder of files
  kernwright train --data tokens.bin --preset gpt2-124m
                                                    u16 tokens as nanoGPT and llm.c write them
  kernwright train --set model.layers=4 --set model.residual=bf16
                                                    another shape, by its fields
  kernwright train --resume runs/tiny --steps 4000  go on, for longer
  kernwright train --config runs/tiny/config.toml   the same run again, to the bit
  kernwright train --preset seed-102m --data tokens.bin --length 1024 --batch auto
                                                    as many sequences as fit

A flag wins over --config, the file over the resumed checkpoint, that over the default. In the file the keys are the
flags' names with _ for -, as in `learning_rate = 1e-3`, and paths count from the folder of the file. Flags about one
call (--out, --resume, --stop-after, --device, --threads, --memory-budget, --steps-per-launch) are no keys. Every run
writes its own as config.toml.

A resumed run may have another --batch or --accumulate: it goes on with the next token, and unless told otherwise its
warm-up and its end stay at the tokens where they were, so that its steps are counted anew. --length and --seed cut
and order the data and stay, as does the shape, whatever --set says. A run with --schedule wsd is prolonged by --steps
from before its decay; the checkpoint there is kept, and --resume RUN/step-NNNNNN --out NEW begins a new run from it.

A GPU is taken where there is one, and computes in the precision of the shape; the CPU computes in fp32. While a step
runs on a GPU the next one is already asked for, so that it is never idle; --steps-per-launch asks for more at once,
for steps so short that waiting shows. All memory is planned first: a batch that does not fit is refused before
anything runs, with the command of the largest that does. --batch auto takes that one, --batch fastest tries powers of
two up to it. --precision, --grad-dtype, --attention, --nondeterministic, --without, --with and --head-chunk say how a
step is planned; a run keeps them, and a resumed run repeats the bits of one that was not stopped, the algorithms of
matrix products included, unless --nondeterministic was given.

Ctrl-C finishes the steps under way, saves and says how to go on; a second one ends at once. A run keeps its last two
checkpoints, config.toml, shape.toml (where --shape or --set was given), metrics.jsonl (a line per step; losses in
nats per token) and loss.svg. A folder whose run ended before its first checkpoint may be given to --out again.")]
pub(super) struct Arguments {
    #[command(flatten)]
    shape: ChangedShape,
    #[command(flatten)]
    flags: Flags,
    /// Take flags left out from this TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Stop and save after N steps of this call; the schedule stays that of --steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    stop_after: Option<u64>,
    /// Folder of the run; it must be new [default: runs/<model>, then runs/<model>-2, ...]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the run in this folder [default: --out, else the newest in runs/]
    #[arg(long, value_name = "RUN", num_args = 0..=1)]
    resume: Option<Option<PathBuf>>,
    #[command(flatten)]
    device: DeviceArguments,
    /// Refuse what needs more memory than this, and fit --batch auto and fastest into it [default: what is free]
    #[arg(long, value_name = "MiB", value_parser = clap::value_parser!(u64).range(1..))]
    memory_budget: Option<u64>,
    /// Ask a GPU for K steps at once and wait for it once; the result is the same for any number
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    steps_per_launch: u64,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, environment: &Environment) -> Outcome {
    let begun = Instant::now();
    if cfg!(debug_assertions) {
        terminal::note("note: this is a debug build, up to a hundred times slower than one with --release");
    }
    let mut config = arguments.config.as_deref().map(Config::read).transpose()?;
    let (shape, mut flags) = match &mut config {
        Some(config) => {
            let (shape, file) = (arguments.shape.clone().over(config.shape.clone()), config.flags.clone());
            (shape, arguments.flags.clone().over(file, |key| config.overridden(key)))
        }
        None => (arguments.shape.clone(), arguments.flags.clone()),
    };
    let (resumed, checkpoint) = go_on(arguments)?.unzip();
    let checkpoint = checkpoint.as_ref();
    let model = choose_shape(&shape, declared, checkpoint)?;
    let mut settings = Settings::resolve(&flags, &model, checkpoint)?;
    let check = |settings: &Settings, flags: &Flags| {
        let checked = settings.train.check(&model.shape).and_then(|()| settings.check_schedule(flags));
        checked.map_err(|error| match &config {
            Some(config) => config.locate(error),
            None => error.into(),
        })
    };
    check(&settings, &flags)?;
    let in_place = matches!(resumed, Some(Resumed::Run(_)));
    check_begin(&settings, checkpoint, arguments.out.as_deref().filter(|_| !in_place))?;
    let split = settings.open_data(&model.shape)?;

    let order = settings.plan.order();
    let open = || device::choose(&arguments.device, &model.shape, declared, environment, order);
    let (mut device, why) = open()?;
    let plan_options = settings.plan.options(&device.options, &model.shape)?;
    let launches = if plan_options.runs_on == RunsOn::Gpu { Pace::AHEAD.launches } else { 1 };
    let pace = Pace { steps_per_launch: arguments.steps_per_launch, launches };
    let room = Room::on(&device, arguments.memory_budget);
    let (shape, options, room, beside) = (&model.shape, &plan_options, &room, &device.beside.clone());
    let arch = device.gpu.as_ref().map(|gpu| gpu.arch.clone());
    let candidate = Candidate { shape, settings: &settings, options, room, beside, arch: arch.as_ref() };
    let found = match flags.batch {
        Some(Batch::Auto) => Some(candidate.auto()?),
        Some(Batch::Fastest) => {
            // Each batch has the device for itself.
            device.executor = Box::new(Cpu::new(Some(1))?);
            let again = || -> Result<_, Box<dyn Error>> {
                let (device, why) = open()?;
                // Another device would be timed in its place.
                match why.filter(|_| options.runs_on == RunsOn::Gpu) {
                    Some(why) => Err(format!("the GPU cannot be opened again: {why}").into()),
                    None => Ok(device),
                }
            };
            let batch = candidate.fastest(&split, pace, &mut || Ok(again()?.executor))?;
            device = again()?;
            Some(batch)
        }
        _ => None,
    };
    if let Some(batch) = found {
        let data = settings.data.clone();
        flags.batch = Some(Batch::Of(batch));
        settings = Settings { data, ..Settings::resolve(&flags, &model, checkpoint)? };
        check(&settings, &flags)?;
        check_begin(&settings, checkpoint, None)?;
    }
    let candidate = Candidate { shape, settings: &settings, options, room, beside, arch: arch.as_ref() };
    candidate.check()?;
    let planned = candidate.need(settings.train.batch).total();
    let speed = Speed::of(&model.shape, &settings.train, device.gpu.as_ref().and_then(|gpu| gpu.card));
    report::describe(&model, &settings, &plan_options, (&device, why.as_deref()), planned, checkpoint)?;
    let executor = &mut *device.executor;
    let mut trainer =
        Trainer::new(executor, &model.shape, settings.train.clone(), &plan_options, &split, checkpoint)?;
    let mut baseline = Baseline::start(&split, trainer.cover());
    baseline.say()?;
    let destination = match resumed {
        Some(Resumed::Run(destination)) => destination,
        Some(Resumed::Branch(record)) => {
            let destination = Destination::create(arguments.out.as_deref(), &model.name)?;
            destination.take_record(&record)?;
            destination
        }
        None => Destination::create(arguments.out.as_deref(), &model.name)?,
    };
    let kept = resolved::shape(&model, declared);
    resolved::write(&destination.folder, &settings, &model, kept.as_deref())?;
    let rhythm = Rhythm {
        eval_every: settings.eval_every,
        save_every: settings.save_every,
        stop_after: arguments.stop_after,
        n_kept: 2,
        pace,
    };
    let options = serde_json::to_value(&settings)?;
    // Until here a signal simply ends the program: there is nothing to save.
    let stop = signals::watch("stopping after this step, then saving; once more to end at once")?;
    let (done, steps) = (trainer.step_number(), settings.train.steps);
    let mut bar = Bar::new(begun, done, steps, speed, &mut baseline, &stop, environment);
    let outcome = run::run(&mut trainer, &destination.folder, rhythm, &options, &model.name, &mut bar);
    bar.finish();
    let summary = outcome.inspect_err(|error| destination.say_what_is_left(error.is_divergence()))?;
    if !summary.stopped && settings.data.is_bytes {
        let seed = settings.train.seed;
        if let Err(error) = report::sample(&mut trainer, &model.shape, &plan_options, &split, seed, &stop) {
            terminal::note(&format!("no sample: {error}"));
        }
    }
    report::report(&summary, baseline.wait(), speed, &destination.folder)?;
    Ok(signals::exit_code(&stop, ExitCode::SUCCESS))
}

/// What to go on from, where that was asked for.
fn go_on(arguments: &Arguments) -> Result<Option<(Resumed, Checkpoint)>, Box<dyn Error>> {
    let Some(run) = &arguments.resume else { return Ok(None) };
    if let (Some(run), Some(out)) = (run, &arguments.out) {
        if folder::is_checkpoint(run) {
            return folder::branch(run).map(Some);
        }
        let (run, out) = (shell::path(run), shell::path(out));
        return Err(format!(
            "a resumed run stays in its folder: give --resume {run} or --out {out}, not both"
        )
        .into());
    }
    folder::resumed(run.as_deref().or(arguments.out.as_deref())).map(Some)
}

/// The Shape to train: that of the checkpoint, which must be the one asked for, where one was asked for. Without a Shape
/// changes are to that of the checkpoint: they may say again what it is, and nothing else.
fn choose_shape(
    arguments: &ChangedShape,
    declared: Option<Declared>,
    checkpoint: Option<&Checkpoint>,
) -> Result<Named, Box<dyn Error>> {
    let Some(checkpoint) = checkpoint else { return arguments.resolve(declared) };
    let text = &checkpoint.manifest.progress.shape;
    if arguments.base.is_given() || declared.is_some() {
        let model = arguments.resolve(declared)?;
        check_shape(text, &model.shape.text())?;
        return Ok(model);
    }
    let name = checkpoint.manifest.progress.options.get("model").and_then(|name| name.as_str());
    let model = Named { name: name.unwrap_or("model").to_owned(), shape: parse_text(text)? };
    check_shape(text, &arguments.of(model.clone())?.shape.text())?;
    Ok(model)
}

/// What would fail only after the data was read. `new` is the folder to be made, where it has a name.
fn check_begin(
    settings: &Settings,
    checkpoint: Option<&Checkpoint>,
    new: Option<&Path>,
) -> Result<(), Box<dyn Error>> {
    let done = checkpoint.map_or(0, |checkpoint| checkpoint.manifest.progress.step);
    if done >= settings.train.steps {
        let message = format!("the run has done its `{done}` steps: give `--steps` above that to go on");
        return Err(message.into());
    }
    new.map_or(Ok(()), folder::check_new)
}
