//! What `train` says on standard output: what is about to happen, a sample, and how it ended.

use super::options::Settings;
use crate::cli::device::Device;
use crate::cli::generate;
use crate::cli::shape::Named;
use crate::cli::shell;
use crate::terminal;
use kernwright_model::checkpoint::Checkpoint;
use kernwright_model::generator::Generator;
use kernwright_model::random::Random;
use kernwright_model::run::Summary;
use kernwright_model::sample::Sampling;
use kernwright_model::split::Split;
use kernwright_model::trainer::{TrainOptions, Trainer};
use kernwright_plan::card::Card;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::shape::Shape;
use kernwright_plan::{Options as PlanOptions, forward_step};
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a speed in tokens is as a share of a card's rate.
#[derive(Clone, Copy)]
pub(super) struct Speed {
    flops_per_token: f64,
    card: Option<&'static Card>,
}

impl Speed {
    /// Of training steps on a card, where it is known.
    pub(super) fn of(shape: &Shape, train: &TrainOptions, card: Option<&'static Card>) -> Self {
        // Every product of the forward pass has two in the backward pass. What a kernel computes again, and what it
        // computes of padding, does not count.
        let options = PlanOptions { padded: false, ..PlanOptions::host() };
        let forward = forward_step(shape, &options, train.batch, train.length, Head::Loss);
        let tokens = (train.batch * train.length) as f64;
        Self { flops_per_token: 3.0 * forward.cost().tensor_flops / tokens, card }
    }

    /// The share of the rate of its tensor cores that so many tokens per second are: `, MFU 0.412`; nothing on a CPU.
    pub(super) fn share(self, tokens_per_second: f64) -> String {
        let share = |card: &Card| tokens_per_second * self.flops_per_token / card.tensor_flops;
        self.card.map_or(String::new(), |card| format!(", MFU {:.3}", share(card)))
    }
}

/// Says what is about to happen.
pub(super) fn describe(
    model: &Named,
    settings: &Settings,
    plan_options: &PlanOptions,
    (device, why): (&Device, Option<&str>),
    planned: u64,
    checkpoint: Option<&Checkpoint>,
) -> Result<(), Box<dyn Error>> {
    let train = &settings.train;
    let parameters = model.shape.n_parameters() as f64 / 1e6;
    let mib = planned as f64 / f64::from(1 << 20);
    terminal::line(&format!("model: {} ({parameters:.2}M parameters)", model.name))?;
    let of_shape = model.shape.precision;
    let precision = plan_options.precision.unwrap_or(of_shape);
    let why = why.map_or(String::new(), |why| format!(" ({why})"));
    let says = match precision == of_shape {
        true => String::new(),
        false => format!(" (the shape says {})", of_shape.name()),
    };
    let (device, precision) = (&device.description, precision.name());
    terminal::line(&format!("device: {device}{why}, in {precision}{says}; {mib:.0} MiB planned"))?;
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
pub(super) fn sample(
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
    let sampling = Sampling { temperature: 0.8, top_k: Some(40), top_p: 1.0 };
    let mut random = Random::stream(seed, "sample");
    // From the last line end on, so that the sample begins with a line.
    if let Some(end) = tokens.iter().rposition(|token| *token == i32::from(b'\n')) {
        tokens.truncate(end + 1);
    }
    let n_given = tokens.len();
    let mut generator = Generator::new(shape, plan_options)?;
    generator.look_back(trainer.options().length);
    generator.draw_below(generate::N_BYTES);
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

/// Says how it ended.
pub(super) fn report(
    summary: &Summary,
    bigram: Option<f64>,
    of: Speed,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let number = |value: Option<f64>| value.map_or("n/a".to_owned(), |value| format!("{value:.4}"));
    let speed = format!("{:.0} tokens/s{}", summary.tokens_per_second, of.share(summary.tokens_per_second));
    if summary.stopped {
        terminal::line(&format!("stopped after step {}: {speed}", summary.step))?;
    } else {
        let (loss, validation, bigram) =
            (number(summary.loss), number(summary.validation_loss), number(bigram));
        terminal::line(&format!(
            "step {}: loss {loss}, validation {validation} (bigram {bigram}), {speed}",
            summary.step
        ))?;
    }
    if let Some(checkpoint) = &summary.checkpoint {
        terminal::line(&format!("checkpoint: {}", checkpoint.display()))?;
    }
    terminal::line(&format!("record: {}", folder.join("metrics.jsonl").display()))?;
    terminal::line(&format!("picture: {}", folder.join("loss.svg").display()))?;
    let (program, folder) = (crate::cli::program(), shell::path(folder));
    terminal::line(&match summary.stopped {
        true => format!("go on with: {program} train --resume {folder}"),
        false => format!("try it with: {program} generate --checkpoint {folder} --prompt \"The \""),
    })?;
    Ok(())
}
