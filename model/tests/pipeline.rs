//! Steps that are launched before the outcome of earlier ones is known: nothing but the waiting changes.

mod lazy;
mod small;

use std::cell::Cell;
use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

use kernwright_model::checkpoint::{Checkpoint, latest};
use kernwright_model::corpus::Tokens;
use kernwright_model::metrics;
use kernwright_model::run::{self, Observer, Pace, Rhythm, RunError, Summary};
use kernwright_model::schedule::Form;
use kernwright_model::split::Split;
use kernwright_model::trainer::{Divergence, StepReport, TrainError, TrainOptions, Trainer};
use kernwright_plan::Options as PlanOptions;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, PlanId, Values};
use kernwright_plan::options::LossScaling;
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_plan::shape::Shape;
use lazy::Lazy;
use small::text;

fn shape() -> Shape {
    small::shape(1, "model.tied")
}

/// With a rise, a decay of the rate and one of the weights.
fn options(accumulate: usize, learning_rate: f64) -> TrainOptions {
    TrainOptions {
        steps: 20,
        warmup: 2,
        schedule: Form::Wsd,
        decay_fraction: 0.25,
        weight_decay: 0.1,
        eval_batches: 3,
        ..small::options(accumulate, learning_rate)
    }
}

fn rhythm(pace: Pace) -> Rhythm {
    Rhythm { eval_every: 6, save_every: 7, stop_after: None, n_kept: 2, pace }
}

const PACES: [Pace; 4] = [
    Pace { steps_per_launch: 1, launches: 2 },
    Pace { steps_per_launch: 3, launches: 1 },
    Pace { steps_per_launch: 4, launches: 3 },
    Pace { steps_per_launch: 100, launches: 2 },
];

/// Watches a run and stops it after a step.
struct Watch {
    stop_at: u64,
    seen: Cell<u64>,
    validations: Vec<(u64, f64)>,
}

impl Watch {
    fn until(stop_at: u64) -> Self {
        Self { stop_at, seen: Cell::new(0), validations: Vec::new() }
    }
}

impl Observer for Watch {
    fn step(&mut self, report: &StepReport, _: f64) {
        self.seen.set(report.step);
    }
    fn validating(&mut self, _: usize, _: usize) {}
    fn validated(&mut self, step: u64, loss: f64) {
        self.validations.push((step, loss));
    }
    fn saved(&mut self, _: &Path) {}
    fn bigram(&mut self) -> Option<f64> {
        None
    }
    fn wants_stop(&self) -> bool {
        self.seen.get() >= self.stop_at
    }
}

/// Goes on with the run in `folder`, or begins it.
fn train(
    executor: &mut dyn Executor,
    folder: &Path,
    options: TrainOptions,
    rhythm: Rhythm,
    split: &Split,
    watch: &mut Watch,
) -> Result<Summary, RunError> {
    let shape = shape();
    let checkpoint = latest(folder).unwrap().map(|latest| latest.checkpoint);
    let plan_options = PlanOptions::host();
    let mut trainer =
        Trainer::new(executor, &shape, options, &plan_options, split, checkpoint.as_ref()).unwrap();
    run::run(&mut trainer, folder, rhythm, &serde_json::Value::Null, "a run", watch)
}

/// Everything that a run leaves, but for its times.
fn left(folder: &Path) -> (Vec<u8>, Vec<u8>, String, Vec<[u64; 5]>) {
    let Checkpoint { folder: last, manifest, .. } = latest(folder).unwrap().unwrap().checkpoint;
    let file = |name: &str| fs::read(last.join(name)).unwrap();
    let records = metrics::read(&folder.join("metrics.jsonl")).unwrap();
    let numbers = records.iter().map(|record| {
        let validation = record.validation_loss.unwrap_or(-1.0);
        [record.step, record.tokens]
            .into_iter()
            .chain([record.loss, record.grad_norm, validation].map(f64::to_bits))
            .collect::<Vec<_>>()
            .try_into()
            .unwrap()
    });
    let numbers = numbers.collect();
    (file("weights.safetensors"), file("moments.safetensors"), format!("{:?}", manifest.progress), numbers)
}

fn whole(accumulate: usize) -> (Vec<u8>, Vec<u8>, String, Vec<[u64; 5]>) {
    let folder = tempfile::tempdir().unwrap();
    let mut executor = Reference::<f32>::new(Rounding::None);
    let mut watch = Watch::until(u64::MAX);
    let rhythm = rhythm(Pace::SINGLE);
    train(&mut executor, folder.path(), options(accumulate, 1e-2), rhythm, &text(), &mut watch).unwrap();
    left(folder.path())
}

#[test]
fn launching_waits_for_nothing_and_one_wait_serves_many_steps() {
    let mut executor = Lazy::new(Rounding::None);
    let waits = executor.counter();
    let (shape, split) = (shape(), text());
    let plan_options = PlanOptions::host();
    let mut trainer =
        Trainer::new(&mut executor, &shape, options(2, 1e-2), &plan_options, &split, None).unwrap();
    waits.take();
    for n in [1, 2, 5] {
        (0..n).for_each(|_| trainer.launch().unwrap());
        assert_eq!(waits.take(), 0, "{n} launches");
        trainer.wait_for(n).unwrap();
        assert_eq!(waits.take(), 1, "{n} launches");
        (0..n).for_each(|_| _ = trainer.finish().unwrap());
        assert_eq!(waits.take(), 0, "the outcome of {n} launches");
    }
    assert_eq!((trainer.step_number(), trainer.launched()), (8, 8));
    assert!(matches!(trainer.finish(), Err(TrainError::NotLaunched)));
    // A validation waits for each of its batches once, while the next one is under way.
    trainer.evaluate(&mut |_, _| {}).unwrap();
    assert_eq!(waits.take(), trainer.cover().n_batches());
    trainer.step().unwrap();
    assert_eq!(waits.take(), 1);
}

#[test]
fn a_run_leaves_the_same_whatever_is_under_way() {
    for accumulate in [1, 2] {
        let expected = whole(accumulate);
        for pace in PACES {
            let folder = tempfile::tempdir().unwrap();
            let mut executor = Lazy::new(Rounding::None);
            let mut watch = Watch::until(u64::MAX);
            let options = options(accumulate, 1e-2);
            train(&mut executor, folder.path(), options, rhythm(pace), &text(), &mut watch).unwrap();
            assert!(left(folder.path()) == expected, "{pace:?}");
            assert_eq!(watch.validations.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [6, 12, 18, 20]);
            assert_eq!(executor.forgotten(), 0, "{pace:?}");
        }
    }
}

#[test]
fn a_run_that_was_stopped_or_killed_goes_on_to_the_same_end() {
    let expected = whole(1);
    for pace in PACES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        // By `stop_after`; by a signal, which the steps under way outlive; and once the last checkpoint alone is left.
        let stopped = Rhythm { stop_after: Some(5), ..rhythm(pace) };
        let mut watch = Watch::until(u64::MAX);
        let summary =
            train(&mut Lazy::new(Rounding::None), path, options(1, 1e-2), stopped, &text(), &mut watch)
                .unwrap();
        assert_eq!((summary.step, summary.stopped), (5, true), "{pace:?}");
        let mut watch = Watch::until(8);
        let summary =
            train(&mut Lazy::new(Rounding::None), path, options(1, 1e-2), rhythm(pace), &text(), &mut watch)
                .unwrap();
        assert!(summary.stopped && (8..=12).contains(&summary.step), "{pace:?}: {summary:?}");
        let records = metrics::read(&path.join("metrics.jsonl")).unwrap();
        assert_eq!(records.last().unwrap().step, summary.step, "{pace:?}");
        assert_eq!(
            latest(path).unwrap().unwrap().checkpoint.manifest.progress.step,
            summary.step,
            "{pace:?}"
        );
        fs::remove_dir_all(path.join(format!("step-{:06}", summary.step))).unwrap();
        let mut watch = Watch::until(u64::MAX);
        train(&mut Lazy::new(Rounding::None), path, options(1, 1e-2), rhythm(pace), &text(), &mut watch)
            .unwrap();
        let (found, mut wanted) = (left(path), expected.clone());
        // A stop is no time for a validation.
        for (found, wanted) in found.3.iter().zip(&mut wanted.3).filter(|(found, _)| found[0] == summary.step)
        {
            wanted[4] = found[4];
        }
        assert!(found == wanted, "{pace:?}");
    }
}

/// A model in fp16 whose loss is scaled, up to where some gradients overflow.
fn train_scaled(executor: &mut dyn Executor, run: &Path, until: u64, n: u64) -> Vec<StepReport> {
    let (shape, split) = (shape(), text());
    let scaling = LossScaling { initial: 65_536.0, interval: 2 };
    let precision = Some(Dtype::Fp16);
    let plan_options = PlanOptions { precision, loss_scaling: scaling, ..PlanOptions::default() };
    let checkpoint = latest(run).unwrap().map(|latest| latest.checkpoint);
    let options = options(2, 1e-2);
    let mut trainer =
        Trainer::new(executor, &shape, options, &plan_options, &split, checkpoint.as_ref()).unwrap();
    let mut reports = Vec::new();
    while trainer.step_number() < until {
        while trainer.launched() < until.min(trainer.step_number() + n) {
            trainer.launch().unwrap();
        }
        reports.push(trainer.finish().unwrap());
    }
    trainer.save(run, &serde_json::Value::Null).unwrap();
    reports
}

#[test]
fn the_scale_of_the_loss_is_part_of_the_run() {
    let rounding = || Rounding::Follow(Dtype::Fp16);
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = train_scaled(&mut Reference::<f32>::new(rounding()), whole.path(), 20, 1);
    let mut found = train_scaled(&mut Lazy::new(rounding()), parts.path(), 9, 4);
    found.extend(train_scaled(&mut Lazy::new(rounding()), parts.path(), 20, 3));
    // A norm that overflowed is no number, and equal to none.
    let text =
        |reports: &[StepReport]| reports.iter().map(|report| format!("{report:?}\n")).collect::<String>();
    assert_eq!(text(&found), text(&expected));
    let skipped: Vec<u64> = expected.iter().filter_map(|report| report.skipped_steps).collect();
    let scales: Vec<f64> = expected.iter().filter_map(|report| report.loss_scale).collect();
    assert!(skipped.len() == 20 && skipped[19] > 0 && skipped[19] < 15, "{skipped:?}");
    assert!(scales.windows(2).any(|pair| pair[1] == 2.0 * pair[0]), "{scales:?}");
    assert!(scales.windows(2).any(|pair| pair[1] == 0.5 * pair[0]), "{scales:?}");
    assert!(expected.iter().all(|report| report.loss.is_finite()));
    let file = |run: &Path, name: &str| {
        fs::read(latest(run).unwrap().unwrap().checkpoint.folder.join(name)).unwrap()
    };
    for name in ["weights.safetensors", "moments.safetensors", "checkpoint.json"] {
        assert!(file(whole.path(), name) == file(parts.path(), name), "{name}");
    }
}

#[test]
fn a_checkpoint_in_the_middle_of_launches_is_of_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let (shape, split) = (shape(), text());
    let plan_options = PlanOptions::host();
    let mut executor = Lazy::new(Rounding::None);
    let mut trainer =
        Trainer::new(&mut executor, &shape, options(1, 1e-2), &plan_options, &split, None).unwrap();
    (0..5).for_each(|_| trainer.launch().unwrap());
    let saved = trainer.save(folder.path(), &serde_json::Value::Null).unwrap();
    let checkpoint = Checkpoint::open(&saved).unwrap();
    assert_eq!((checkpoint.manifest.progress.step, checkpoint.manifest.progress.tokens), (5, 80));
    let mut other = Reference::<f32>::new(Rounding::None);
    let mut single = Trainer::new(&mut other, &shape, options(1, 1e-2), &plan_options, &split, None).unwrap();
    (0..5).for_each(|_| _ = single.step().unwrap());
    let expected = single.save(&folder.path().join("single"), &serde_json::Value::Null).unwrap();
    for name in ["weights.safetensors", "moments.safetensors", "checkpoint.json"] {
        let read = |folder: &Path| fs::read(folder.join(name)).unwrap();
        assert!(read(&saved) == read(&expected), "{name}");
    }
}

/// Trains until a step fails, with `n` steps under way, and returns what it says and all weights and moments.
fn fail(
    executor: &mut dyn Executor,
    rate: f64,
    poison: Option<f32>,
    n: usize,
) -> (Divergence, Vec<Vec<u32>>) {
    let (shape, split) = (shape(), text());
    let plan_options = PlanOptions::host();
    let mut trainer = Trainer::new(executor, &shape, options(2, rate), &plan_options, &split, None).unwrap();
    if let Some(value) = poison {
        (0..3).for_each(|_| _ = trainer.step().unwrap());
        let executor = trainer.executor();
        let buffer = executor.plan(PlanId(0)).find("final_norm.weight").unwrap();
        let mut values = executor.read(PlanId(0), buffer).unwrap();
        values[5] = value;
        executor.write(PlanId(0), buffer, Values::Float(&values)).unwrap();
    }
    let error = loop {
        while trainer.launched() < trainer.step_number() + n as u64 {
            trainer.launch().unwrap();
        }
        if let Err(error) = trainer.finish() {
            break error;
        }
    };
    assert_eq!(trainer.launched(), trainer.step_number(), "what came after it is forgotten");
    let TrainError::Diverged(divergence) = error else { panic!("{error}") };
    assert_eq!(divergence.step, trainer.step_number() + 1);
    let executor = trainer.executor();
    let names =
        shape.parameters().into_iter().flat_map(|p| ["", "m.", "v."].map(|kind| format!("{kind}{}", p.name)));
    let weights = names.map(|name| {
        let buffer = executor.plan(PlanId(0)).find(&name).unwrap();
        executor.read(PlanId(0), buffer).unwrap().into_iter().map(f32::to_bits).collect()
    });
    let weights = weights.collect();
    (*divergence, weights)
}

#[test]
fn divergence_is_of_the_step_that_it_began_in_and_leaves_the_weights_of_before() {
    for (rate, poison) in [(1e-2, Some(f32::NAN)), (1e-2, Some(1e38)), (1e15, None), (1e38, None)] {
        let (expected, weights) = fail(&mut Reference::<f32>::new(Rounding::None), rate, poison, 1);
        assert!(expected.fault.is_some(), "{expected}");
        for n in [1, 2, 5] {
            let mut executor = Lazy::new(Rounding::None);
            let (found, after) = fail(&mut executor, rate, poison, n);
            assert_eq!(found.to_string(), expected.to_string(), "{n} under way");
            assert!(after == weights, "{n} under way: the weights are others");
            assert_eq!(executor.forgotten(), 0);
        }
    }
}

#[test]
fn steps_before_data_that_cannot_be_read_are_finished_and_saved() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a.bin");
    // Behind what is checked when a corpus is opened, every token is a bad one.
    let n_checked = 1 << 24;
    let mut file = fs::File::create(&data).unwrap();
    file.set_len(2 * n_checked).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(&vec![255; 1 << 21]).unwrap();
    let split = Split::last(Arc::new(Tokens::open(&data, 256).unwrap()), 0.01, 8).unwrap();
    let long = TrainOptions { steps: 1000, ..options(1, 1e-3) };
    let mut steps = Vec::new();
    for pace in [Pace::SINGLE, PACES[2]] {
        let path = folder.path().join(format!("{}", pace.launches));
        let mut watch = Watch::until(u64::MAX);
        let rhythm = Rhythm { eval_every: 0, save_every: 0, ..rhythm(pace) };
        fs::create_dir(&path).unwrap();
        let error = train(&mut Lazy::new(Rounding::None), &path, long.clone(), rhythm, &split, &mut watch)
            .unwrap_err();
        assert!(matches!(error, RunError::Train(TrainError::Loader(_))), "{error}");
        let records = metrics::read(&path.join("metrics.jsonl")).unwrap();
        let saved = latest(&path).unwrap().unwrap().checkpoint.manifest.progress;
        assert_eq!((records.len() as u64, watch.seen.get()), (saved.step, saved.step));
        steps.push(saved);
    }
    assert_eq!(steps[0], steps[1]);
    assert!(steps[0].step > 3, "{:?}", steps[0]);
}
