//! A run that goes on with another batch: which tokens it sees, at which learning rates.

mod small;

use std::path::Path;
use std::sync::Arc;

use kernwright_model::batches::{Position, Sampler, Share};
use kernwright_model::checkpoint::latest;
use kernwright_model::corpus::Tokens;
use kernwright_model::schedule::Form;
use kernwright_model::split::Split;
use kernwright_model::trainer::{Asked, TrainOptions, Trainer};
use kernwright_plan::Options as PlanOptions;
use kernwright_plan::buffer::BufferId;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId, Values};
use kernwright_plan::plan::Plan;
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_plan::shape::Shape;

/// Sequences of an epoch: 1000 tokens less a tenth, cut into sixes.
const LENGTH: usize = 6;

fn shape() -> Shape {
    small::shape(1, "model.tied")
}

/// No two tokens within 251 are the same, so that a sequence says where it comes from.
fn split() -> Split {
    let text: Vec<u8> = (0..1000_u32).map(|i| (i % 251) as u8).collect();
    let tokens = Tokens::embedded("numbers", text.leak(), 256).unwrap();
    Split::last(Arc::new(tokens), Split::FRACTION, LENGTH).unwrap()
}

fn options(batch: usize, accumulate: usize, steps: u64) -> TrainOptions {
    TrainOptions {
        batch,
        length: LENGTH,
        steps,
        warmup: 4,
        schedule: Form::Linear,
        final_rate: 0.0,
        weight_decay: 0.1,
        ..small::options(accumulate, 1e-3)
    }
}

/// The reference, writing down the tokens that it is given to train on.
struct Recorder {
    executor: Reference<f32>,
    tokens: Vec<i32>,
}

impl Executor for Recorder {
    fn load(&mut self, plan: Plan) -> Result<PlanId, ExecutorError> {
        self.executor.load(plan)
    }

    fn plan(&self, plan: PlanId) -> &Plan {
        self.executor.plan(plan)
    }

    fn write(&mut self, plan: PlanId, buffer: BufferId, values: Values<'_>) -> Result<(), ExecutorError> {
        let about = self.executor.plan(plan);
        let is_training = about.find("gradient_norm").is_some();
        if let (true, "tokens", Values::Int(tokens)) =
            (is_training, about.buffer(buffer).name.as_str(), values)
        {
            self.tokens.extend(tokens);
        }
        self.executor.write(plan, buffer, values)
    }

    fn read(&self, plan: PlanId, buffer: BufferId) -> Result<Vec<f32>, ExecutorError> {
        self.executor.read(plan, buffer)
    }

    fn run(
        &mut self,
        plan: PlanId,
        steps: std::ops::Range<usize>,
        micro: MicroStep,
    ) -> Result<(), ExecutorError> {
        self.executor.run(plan, steps, micro)
    }
}

/// What a stretch of a run did.
#[derive(Default)]
struct Seen {
    tokens: Vec<i32>,
    losses: Vec<f64>,
    rates: Vec<f64>,
}

/// Trains up to `until` steps in `run`, from its newest checkpoint if it has one, and saves.
fn train(run: &Path, options: TrainOptions, until: u64) -> Seen {
    let (shape, split) = (shape(), split());
    let plan_options = PlanOptions::host();
    let mut recorder = Recorder { executor: Reference::new(Rounding::None), tokens: Vec::new() };
    let checkpoint = latest(run).unwrap().map(|latest| latest.checkpoint);
    let mut seen = Seen::default();
    let mut trainer =
        Trainer::new(&mut recorder, &shape, options, &plan_options, &split, checkpoint.as_ref()).unwrap();
    while trainer.step_number() < until {
        let report = trainer.step().unwrap();
        assert_eq!(report.tokens, trainer.options().tokens_at(report.step));
        seen.losses.push(report.loss);
        seen.rates.push(report.learning_rate);
    }
    trainer.save(run, &serde_json::Value::Null).unwrap();
    seen.tokens = recorder.tokens;
    seen
}

/// The first `n` sequences of the order of training, one after the other.
fn order(n: usize) -> Vec<i32> {
    let sampler = Sampler::new(split().training, 3, 1, LENGTH, Share::WHOLE).unwrap();
    let (mut position, mut tokens) = (Position::default(), Vec::new());
    for _ in 0..n {
        let (batch, next) = sampler.read(position).unwrap();
        tokens.extend(batch.tokens);
        position = next;
    }
    tokens
}

#[test]
fn smaller_micro_batches_see_the_same_tokens_at_the_same_rates() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let whole = train(whole.path(), options(8, 1, 20), 20);
    let first = train(parts.path(), options(8, 1, 20), 10);
    let now = options(4, 2, 20).going_on(&options(8, 1, 20), 10, 10 * 48, Asked::default());
    let second = train(parts.path(), now, 20);
    assert_eq!([&first.tokens[..], &second.tokens].concat(), whole.tokens);
    assert_eq!(whole.tokens, order(160), "160 of about 149 sequences: an epoch and a bit");
    assert_eq!([&first.rates[..], &second.rates].concat(), whole.rates);
    assert_eq!(first.losses, whole.losses[..10]);
    for (found, expected) in second.losses.iter().zip(&whole.losses[10..]) {
        assert!((found - expected).abs() < 1e-4 * expected, "{found}, expected {expected}");
    }
}

#[test]
fn larger_steps_go_on_with_the_next_token_and_end_at_the_same_one() {
    // (batch, accumulate) after ten steps of 8: the last step takes at most a part of a batch more than 160 sequences.
    for (batch, accumulate, steps, sequences) in
        [(16, 1, 15, 160), (3, 1, 37, 161), (5, 3, 16, 170), (100, 1, 11, 180)]
    {
        let run = tempfile::tempdir().unwrap();
        let before = options(8, 1, 20);
        let first = train(run.path(), before.clone(), 10);
        let now = options(batch, accumulate, 0).going_on(&before, 10, 480, Asked::default());
        assert_eq!(now.steps, steps, "{batch} x {accumulate}");
        let second = train(run.path(), now.clone(), steps);
        let seen = [&first.tokens[..], &second.tokens].concat();
        assert_eq!(seen, order(sequences), "{batch} x {accumulate}: nothing skipped, nothing twice");
        // The curve goes on: a straight line in tokens from the end of the warm-up to the last step's beginning.
        let n = (batch * accumulate * LENGTH) as f64;
        let end = (sequences * LENGTH) as f64 - n;
        for (step, rate) in second.rates.iter().enumerate() {
            let done = 480.0 + step as f64 * n;
            let expected = 1e-3 * (1.0 - (done - 192.0) / (end - 192.0));
            assert!(
                (rate - expected).abs() < 1e-12,
                "{batch} x {accumulate}, step {step}: {rate} {expected}"
            );
        }
        // And once more from there, with the first batch again.
        let again = options(8, 1, 0);
        let again = again.going_on(
            &now,
            steps,
            now.tokens_at(steps),
            Asked { steps: Some(steps + 3), ..Asked::default() },
        );
        let third = train(run.path(), again, steps + 3);
        assert_eq!([seen, third.tokens].concat(), order(sequences + 24));
    }
}

#[test]
fn options_that_forget_the_smaller_steps_are_refused() {
    let run = tempfile::tempdir().unwrap();
    train(run.path(), options(8, 1, 20), 10);
    let checkpoint = latest(run.path()).unwrap().unwrap().checkpoint;
    let mut executor = Reference::<f32>::new(Rounding::None);
    let plan_options = PlanOptions::host();
    let (shape, split) = (shape(), split());
    let trainer =
        Trainer::new(&mut executor, &shape, options(16, 1, 20), &plan_options, &split, Some(&checkpoint));
    let error = trainer.err().unwrap().to_string();
    assert_eq!(error, "the checkpoint has 480 tokens in 10 steps, and the options say 960");
}
