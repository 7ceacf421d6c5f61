//! `generate`: continues a prompt with a trained model.

use super::device::{self, Device, DeviceArguments};
use super::{Declared, Outcome};
use crate::environment::Environment;
use crate::terminal;
use clap::Args;
use kernwright_model::checkpoint::{self, Checkpoint, check_shape};
use kernwright_model::generator::Generator;
use kernwright_model::random::Random;
use kernwright_model::sample::Sampling;
use kernwright_model::weights;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::plan::Phase;
use kernwright_plan::shape::{Shape, parse_text};
use kernwright_runtime::gpu::products::Order;
use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Flags of `generate`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kernwright generate --checkpoint runs/tiny --prompt \"A Plan is\"
  kernwright generate --checkpoint runs/tiny/step-000500 --prompt \"fn \" --temperature 0

A model trained on .bin tokens takes and prints token numbers: --prompt \"15 2 980\"")]
pub(super) struct Arguments {
    /// A run (its newest checkpoint is taken) or the folder of one checkpoint
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    /// What to continue
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: String,
    /// Tokens to generate
    #[arg(long, value_name = "N", default_value_t = 256)]
    tokens: usize,
    /// Divides the logits: below 1 is safer, 0 always takes the most likely token
    #[arg(long, value_name = "X", default_value_t = 0.8, allow_negative_numbers = true)]
    temperature: f64,
    /// Choose among the K most likely tokens only
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Of those, choose among the fewest most likely tokens that together have probability P (nucleus sampling)
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    top_p: f64,
    /// Seed of the choice
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    device: DeviceArguments,
}

/// What tokens stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vocabulary {
    /// Bytes of text.
    Bytes,
    /// Numbers of somebody's tokenizer.
    Tokens,
}

/// The tokens of a text: those past them, where a model has any, stand for nothing.
pub(super) const N_BYTES: usize = 1 << 8;

/// Tokens that are bytes, as bytes; others have none.
pub(super) fn bytes(tokens: &[i32]) -> Vec<u8> {
    tokens.iter().filter_map(|token| u8::try_from(*token).ok()).collect()
}

impl Vocabulary {
    fn read(self, prompt: &str, shape: &Shape) -> Result<Vec<i32>, Box<dyn Error>> {
        if self == Self::Bytes {
            return Ok(prompt.bytes().map(i32::from).collect());
        }
        let vocab = shape.vocab;
        let number = |word: &str| match word.parse::<usize>() {
            Ok(token) if token < vocab => Ok(i32::try_from(token)?),
            _ => Err(format!("`--prompt` must be token numbers below {vocab}, found `{word}`").into()),
        };
        prompt.split_whitespace().map(number).collect()
    }

    fn show(self, token: i32) -> Vec<u8> {
        if self == Self::Bytes { bytes(&[token]) } else { format!("{token} ").into_bytes() }
    }
}

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, environment: &Environment) -> Outcome {
    let Arguments { temperature, top_k, top_p, .. } = *arguments;
    let sampling = Sampling { temperature, top_k, top_p };
    sampling.check()?;
    let checkpoint = open(&arguments.checkpoint)?;
    let progress = &checkpoint.manifest.progress;
    if let Some(declared) = declared {
        check_shape(&progress.shape, declared.shape)?;
    }
    let shape = parse_text(&progress.shape)?;
    let is_bytes = progress.options.pointer("/data/is_bytes").and_then(serde_json::Value::as_bool);
    let vocabulary = if is_bytes.unwrap_or(true) { Vocabulary::Bytes } else { Vocabulary::Tokens };
    let mut tokens = vocabulary.read(&arguments.prompt, &shape)?;
    if tokens.is_empty() {
        return Err("`--prompt` is empty: generation needs a token to continue".into());
    }

    let device = device::executor(&arguments.device, &shape, declared, environment, Order::Fixed)?;
    let Device { mut executor, options, .. } = device;
    let executor = executor.as_mut();
    let mut generator = Generator::new(&shape, &options)?;
    let trained = progress.options.pointer("/train/length").and_then(serde_json::Value::as_u64);
    if let Some(length) = trained.and_then(|length| usize::try_from(length).ok()) {
        generator.look_back(length);
    }
    if vocabulary == Vocabulary::Bytes {
        generator.draw_below(N_BYTES);
    }
    let (_, plan) = generator.plan(executor, tokens.len())?;
    weights::load(executor, plan, &shape, &checkpoint)?;
    executor.run_phase(plan, Phase::Prepare, MicroStep::First)?;

    let mut random = Random::stream(arguments.seed, "generate");
    let mut out = io::stdout().lock();
    let mut written = match vocabulary {
        Vocabulary::Bytes => out.write_all(arguments.prompt.as_bytes()),
        Vocabulary::Tokens => Ok(()),
    };
    let outcome =
        generator.generate(executor, &mut tokens, arguments.tokens, sampling, &mut random, &mut |token| {
            if written.is_ok() {
                written = out.write_all(&vocabulary.show(token)).and_then(|()| out.flush());
            }
            written.is_ok()
        });
    outcome?;
    match written.and_then(|()| out.write_all(b"\n")) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(terminal::unwritable(&error).into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn open(path: &Path) -> Result<Checkpoint, Box<dyn Error>> {
    if path.join("checkpoint.json").exists() {
        let checkpoint = Checkpoint::open(path)?;
        checkpoint.verify()?;
        return Ok(checkpoint);
    }
    if !path.is_dir() {
        return Err(format!("`{}` is not a folder: give a run or a checkpoint", path.display()).into());
    }
    let latest = checkpoint::latest(path)?;
    let latest = latest.ok_or_else(|| format!("there is no checkpoint in `{}`", path.display()))?;
    Ok(latest.checkpoint)
}
