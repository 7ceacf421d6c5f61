//! `train`: flags, data and folder become a run; the run's events become a progress bar.

mod bar;
mod folder;
mod options;

use super::generate;
use super::shape::{Named, ShapeArguments};
use super::{Declared, Outcome};
use crate::environment::Environment;
use crate::terminal;
use bar::Bar;
use clap::Args;
use folder::Destination;
use kernwright_model::checkpoint::{Checkpoint, check_shape};
use kernwright_model::generator::Generator;
use kernwright_model::random::Random;
use kernwright_model::run::{self, Rhythm, Summary};
use kernwright_model::sample::Sampling;
use kernwright_model::split::Split;
use kernwright_model::trainer::Trainer;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::shape::{Shape, parse_text};
use kernwright_plan::{Options as PlanOptions, train_step};
use kernwright_runtime::Cpu;
use options::Settings;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Flags of `train`. A flag left out takes its value from the resumed checkpoint, else its default.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kernwright train                                  a tiny model on the built-in text
  kernwright train --data book.txt --steps 2000     your own text: a file, or a folder of files
  kernwright train --data tokens.bin --preset gpt2-124m
                                                    u16 tokens as nanoGPT and llm.c write them
  kernwright train --resume runs/tiny --steps 4000  go on, for longer

Ctrl-C finishes the step, saves and says how to go on; a second one ends at once. A run keeps its last two
checkpoints, metrics.jsonl (a line per step; losses in nats per token) and loss.svg.")]
pub(super) struct Arguments {
    #[command(flatten)]
    shape: ShapeArguments,
    #[command(flatten)]
    settings: options::Flags,
    /// Folder of the run; it must be new [default: runs/<model>, then runs/<model>-2, ...]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with the run in this folder [default: --out, else the newest in runs/]
    #[arg(long, value_name = "RUN", num_args = 0..=1)]
    resume: Option<Option<PathBuf>>,
    /// Threads of the CPU; the result is the same for any number [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: Option<u16>,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, environment: &Environment) -> Outcome {
    if cfg!(debug_assertions) {
        terminal::note("note: this is a debug build, up to a hundred times slower than one with --release");
    }
    if let (Some(Some(run)), Some(out)) = (&arguments.resume, &arguments.out) {
        let (run, out) = (run.display(), out.display());
        return Err(format!(
            "a resumed run stays in its folder: give --resume {run} or --out {out}, not both"
        )
        .into());
    }
    let (resumed, checkpoint) = match &arguments.resume {
        Some(run) => {
            let (destination, checkpoint) = folder::resumed(run.as_deref().or(arguments.out.as_deref()))?;
            (Some(destination), Some(checkpoint))
        }
        None => (None, None),
    };
    let checkpoint = checkpoint.as_ref();
    let model = choose_shape(&arguments.shape, declared, checkpoint)?;
    let mut settings = Settings::resolve(&arguments.settings, &model, checkpoint)?;
    settings.train.check(&model.shape)?;
    check_begin(&settings, checkpoint, arguments)?;
    let split = settings.open_data(&model.shape)?;

    let plan_options = PlanOptions { precision: Some(Dtype::Fp32), ..PlanOptions::default() };
    let mut executor = Cpu::new(arguments.threads.map(usize::from))?;
    describe(&model, &settings, &plan_options, checkpoint)?;
    let mut trainer =
        Trainer::new(&mut executor, &model.shape, settings.train.clone(), &plan_options, &split, checkpoint)?;
    let bigram = run::bigram_loss(&trainer, &split)?;
    terminal::line(&format!("bigram baseline: {bigram:.4} nats per token, on what validation measures"))?;
    let destination = match resumed {
        Some(destination) => destination,
        None => Destination::create(arguments.out.as_deref(), &model.name)?,
    };
    let rhythm = Rhythm {
        eval_every: settings.eval_every,
        save_every: settings.save_every,
        stop_after: arguments.settings.stop_after,
        n_kept: 2,
    };
    let options = serde_json::to_value(&settings)?;
    // Until here a signal simply ends the program: there is nothing to save.
    let stop = watch_signals()?;
    let mut bar = Bar::new(trainer.step_number(), settings.train.steps, &stop, environment.no_color);
    let outcome =
        run::run(&mut trainer, &destination.folder, rhythm, &options, &model.name, Some(bigram), &mut bar);
    bar.finish();
    let summary = outcome.inspect_err(|error| destination.say_what_is_left(error.is_divergence()))?;
    if !summary.stopped && settings.data.is_bytes {
        let sampled = sample(&mut trainer, &model.shape, &plan_options, &split, settings.train.seed, &stop);
        if let Err(error) = sampled {
            terminal::note(&format!("no sample: {error}"));
        }
    }
    report(&summary, bigram, &destination.folder)?;
    Ok(match stop.load(Ordering::Relaxed) {
        0 => ExitCode::SUCCESS,
        signal => ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
    })
}

/// The number of the signal that arrived, 0 before. A second one ends the program at once.
fn watch_signals() -> Result<Arc<AtomicUsize>, Box<dyn Error>> {
    let (arrived, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&again))?;
        signal_hook::flag::register(signal, Arc::clone(&again))?;
        signal_hook::flag::register_usize(signal, Arc::clone(&arrived), usize::try_from(signal)?)?;
    }
    let seen = Arc::clone(&arrived);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while seen.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
        terminal::note("stopping after this step, then saving; once more to end at once");
    })?;
    Ok(arrived)
}

/// The Shape to train: that of the checkpoint, which must be the one asked for, where one was asked for.
fn choose_shape(
    arguments: &ShapeArguments,
    declared: Option<Declared>,
    checkpoint: Option<&Checkpoint>,
) -> Result<Named, Box<dyn Error>> {
    let Some(checkpoint) = checkpoint else { return arguments.resolve(declared) };
    let text = &checkpoint.manifest.progress.shape;
    if arguments.is_given() || declared.is_some() {
        let model = arguments.resolve(declared)?;
        check_shape(text, &model.shape.text())?;
        return Ok(model);
    }
    let name = checkpoint.manifest.progress.options.get("model").and_then(|name| name.as_str());
    Ok(Named { name: name.unwrap_or("model").to_owned(), shape: parse_text(text)? })
}

/// What would fail only after the data was read.
fn check_begin(
    settings: &Settings,
    checkpoint: Option<&Checkpoint>,
    arguments: &Arguments,
) -> Result<(), Box<dyn Error>> {
    let done = checkpoint.map_or(0, |checkpoint| checkpoint.manifest.progress.step);
    if done >= settings.train.steps {
        let message = format!("the run has done its `{done}` steps: give `--steps` above that to go on");
        return Err(message.into());
    }
    match (&arguments.out, checkpoint) {
        (Some(out), None) => folder::check_new(out),
        _ => Ok(()),
    }
}

/// Says what is about to happen.
fn describe(
    model: &Named,
    settings: &Settings,
    plan_options: &PlanOptions,
    checkpoint: Option<&Checkpoint>,
) -> Result<(), Box<dyn Error>> {
    let train = &settings.train;
    let parameters = model.shape.n_parameters() as f64 / 1e6;
    let plan = train_step(&model.shape, plan_options, train.batch, train.length);
    let mib = plan.arena_bytes as f64 / f64::from(1 << 20);
    terminal::line(&format!("model: {} ({parameters:.2}M parameters)", model.name))?;
    if model.shape.precision != Dtype::Fp32 {
        let precision = model.shape.precision.name();
        terminal::line(&format!("device: CPU, in fp32 (the shape says {precision}); {mib:.0} MiB planned"))?;
    } else {
        terminal::line(&format!("device: CPU, in fp32; {mib:.0} MiB planned"))?;
    }
    terminal::line(&format!("data: {}, the last tenth held out for validation", settings.data))?;
    let tokens = train.batch * train.length * train.accumulate;
    terminal::line(&format!(
        "steps: {} of {tokens} tokens ({} x {} x {})",
        train.steps, train.batch, train.length, train.accumulate
    ))?;
    if let Some(checkpoint) = checkpoint {
        let step = checkpoint.manifest.progress.step;
        terminal::line(&format!("resuming after step {step} from {}", checkpoint.folder.display()))?;
    }
    Ok(())
}

/// Continues the first words of the held-out part.
fn sample(
    trainer: &mut Trainer<'_>,
    shape: &Shape,
    plan_options: &PlanOptions,
    split: &Split,
    seed: u64,
    stop: &AtomicUsize,
) -> Result<(), Box<dyn Error>> {
    if !shape.attention.causal {
        return Ok(());
    }
    let mut tokens = vec![0; split.validation.len().min(128)];
    split.validation.fill(0..tokens.len(), &mut tokens)?;
    let sampling = Sampling { temperature: 0.8, top_k: Some(40) };
    let mut random = Random::stream(seed, "sample");
    // From the last line end on, so that the sample begins with a line.
    if let Some(end) = tokens.iter().rposition(|token| *token == i32::from(b'\n')) {
        tokens.truncate(end + 1);
    }
    let n_given = tokens.len();
    let mut generator = Generator::new(shape, plan_options)?;
    generator.look_back(trainer.options().length);
    generator.generate(trainer.executor(), &mut tokens, 256, sampling, &mut random, &mut |_| {
        stop.load(Ordering::Relaxed) == 0
    })?;
    let (given, made) = tokens.split_at(n_given);
    let text = |tokens: &[i32]| {
        let text = String::from_utf8_lossy(&generate::bytes(tokens)).into_owned();
        text.replace(|c: char| c.is_control() && c != '\n' && c != '\t', "\u{fffd}")
    };
    let (given, made) = (text(given), text(made));
    terminal::line(&format!("\n--- held-out text, then (>>>) the model's own ---\n{given}>>>{made}\n---\n"))?;
    Ok(())
}

fn report(summary: &Summary, bigram: f64, folder: &Path) -> Result<(), Box<dyn Error>> {
    let number = |value: Option<f64>| value.map_or("n/a".to_owned(), |value| format!("{value:.4}"));
    let speed = summary.tokens_per_second;
    if summary.stopped {
        terminal::line(&format!("stopped after step {}: {speed:.0} tokens/s", summary.step))?;
    } else {
        let (loss, validation) = (number(summary.loss), number(summary.validation_loss));
        terminal::line(&format!(
            "step {}: loss {loss}, validation {validation} (bigram {bigram:.4}), {speed:.0} tokens/s",
            summary.step
        ))?;
    }
    if let Some(checkpoint) = &summary.checkpoint {
        terminal::line(&format!("checkpoint: {}", checkpoint.display()))?;
    }
    terminal::line(&format!("record: {}", folder.join("metrics.jsonl").display()))?;
    terminal::line(&format!("picture: {}", folder.join("loss.svg").display()))?;
    let (program, folder) = (super::program(), folder.display());
    terminal::line(&match summary.stopped {
        true => format!("go on with: {program} train --resume {folder}"),
        false => format!("try it with: {program} generate --checkpoint {folder} --prompt \"The \""),
    })?;
    Ok(())
}
