//! `--batch`: a number, or one that is found out: the largest that fits, or the fastest.
//!
//! In: what was asked for, a model, the room on the device. Out: a number and why it is that one, or that nothing fits
//! and which command would. Memory is what plans say, before anything is allocated.

use super::options::Settings;
use crate::cli::device::Beside;
use crate::cli::memory::{Fit, Need, Room, launches};
use crate::cli::units;
use crate::terminal;
use kernwright_model::run::Pace;
use kernwright_model::split::Split;
use kernwright_model::trainer::{MOST_TOKENS, TrainError, TrainOptions, Trainer};
use kernwright_plan::Options as PlanOptions;
use kernwright_plan::arch::Arch;
use kernwright_plan::executor::Executor;
use kernwright_plan::shape::Shape;
use kernwright_plan::train_step;
use std::error::Error;
use std::time::{Duration, Instant};

/// Value of `--batch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    /// So many sequences.
    Of(usize),
    /// The most that fit.
    Auto,
    /// The power of two with the most tokens per second.
    Fastest,
}

/// Batches of at least twice this many are rounded down to a multiple of it.
const MULTIPLE: usize = 8;

/// A batch is timed for so long, and for so many steps at least, after so many that are not.
const TIME: Duration = Duration::from_millis(700);
const STEPS: u32 = 3;
const WARMUP: usize = 2;

/// A larger batch that gains less is not faster: its clock is not that good.
const GAIN: f64 = 1.01;

impl Batch {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "fastest" => Ok(Self::Fastest),
            _ => text
                .parse()
                .map(Self::Of)
                .map_err(|_| "allowed are a whole number, `auto` and `fastest`".to_owned()),
        }
    }

    /// The number; the smallest where it is to be found out.
    pub(super) fn number(self) -> usize {
        match self {
            Self::Of(number) => number,
            Self::Auto | Self::Fastest => 1,
        }
    }
}

/// A model that is to be trained in some room.
pub(super) struct Candidate<'a> {
    pub(super) shape: &'a Shape,
    pub(super) settings: &'a Settings,
    pub(super) options: &'a PlanOptions,
    pub(super) room: &'a Room,
    pub(super) beside: &'a Beside,
    /// What kernels are made for; none on a CPU.
    pub(super) arch: Option<&'a Arch>,
}

impl Candidate<'_> {
    /// What training with a batch needs.
    pub(super) fn need(&self, batch: usize) -> Need {
        let train = &self.settings.train;
        let options = train.plan_options(self.options);
        Need::of_run(self.shape, &options, self.beside, batch, train.length)
    }

    /// Can a GPU launch all of its steps?
    fn launches(&self, batch: usize) -> bool {
        let Some(arch) = self.arch else { return true };
        let train = &self.settings.train;
        launches(&train_step(self.shape, &train.plan_options(self.options), batch, train.length), arch)
    }

    fn fit(&self) -> Fit<'_> {
        let train = &self.settings.train;
        let limit = MOST_TOKENS / (train.length * train.accumulate).max(1);
        let (need, launches) = (Box::new(|batch| self.need(batch)), Box::new(|batch| self.launches(batch)));
        Fit { room: self.room, need, limit, launches }
    }

    /// Is there room for the batch that was asked for?
    pub(super) fn check(&self) -> Result<(), Box<dyn Error>> {
        Ok(self.fit().check(self.settings.train.batch)?)
    }

    /// The largest batch that fits, and what is to be said of it.
    pub(super) fn auto(&self) -> Result<usize, Box<dyn Error>> {
        let batch = self.largest("auto")?;
        let kind = if batch >= 2 * MULTIPLE { "the largest multiple of 8" } else { "the largest" };
        let (of, needed) = (&self.room.of, units::bytes(self.need(batch).total() as f64));
        let bytes = units::bytes(self.room.bytes.unwrap_or(0) as f64);
        terminal::line(&format!("batch: {batch}, {kind} that fits: it needs {needed}, and {of} {bytes}"))?;
        Ok(batch)
    }

    /// The largest batch, as flag `--batch value` needs it.
    fn largest(&self, value: &str) -> Result<usize, Box<dyn Error>> {
        let Some(bytes) = self.room.bytes else {
            return Err(format!(
                "`--batch {value}` must know how much memory is free, which cannot be found out here: give \
                 `--memory-budget` or a number"
            )
            .into());
        };
        let fit = self.fit();
        match rounded(fit.most()) {
            0 => Err(fit.refusal(&self.need(1), bytes).into()),
            batch => Ok(batch),
        }
    }

    /// The power of two with the most tokens per second, of those that fit; each is trained with for some steps, on an
    /// executor of its own, and forgotten.
    pub(super) fn fastest(
        &self,
        split: &Split,
        pace: Pace,
        open: &mut dyn FnMut() -> Result<Box<dyn Executor>, Box<dyn Error>>,
    ) -> Result<usize, Box<dyn Error>> {
        let most = self.largest("fastest")?;
        let (mut best, mut speed, mut worse) = (1, 0.0, 0);
        let mut batch = 1;
        // Once two in a row were no faster, larger ones are not either.
        while batch <= most && worse < 2 {
            let options =
                TrainOptions { batch, warmup: 0, history: Vec::new(), ..self.settings.train.clone() };
            let found = tokens_per_second(&mut *open()?, self.shape, options, self.options, split, pace)?;
            terminal::line(&format!("batch {batch}: {} tokens/s", units::grouped(found.round() as usize)))?;
            worse = if found > GAIN * speed { 0 } else { worse + 1 };
            if found > GAIN * speed {
                (best, speed) = (batch, found);
            }
            batch *= 2;
        }
        terminal::line(&format!("batch: {best}, the fastest of these; up to {most} fit"))?;
        Ok(best)
    }
}

/// A batch that is easy to cut, at most `most`.
fn rounded(most: usize) -> usize {
    if most >= 2 * MULTIPLE { most / MULTIPLE * MULTIPLE } else { most }
}

/// The speed of a few steps.
fn tokens_per_second(
    executor: &mut dyn Executor,
    shape: &Shape,
    options: TrainOptions,
    plan_options: &PlanOptions,
    split: &Split,
    pace: Pace,
) -> Result<f64, TrainError> {
    let tokens = options.tokens_per_step() as f64;
    let mut trainer = Trainer::new(executor, shape, options, plan_options, split, None)?;
    for _ in 0..WARMUP {
        trainer.step()?;
    }
    let (begun, mut n_steps) = (Instant::now(), 0);
    for _ in 1..pace.launches {
        trainer.launch()?;
    }
    while n_steps < STEPS || begun.elapsed() < TIME {
        trainer.launch()?;
        trainer.finish()?;
        n_steps += 1;
    }
    while trainer.launched() > trainer.step_number() {
        trainer.finish()?;
        n_steps += 1;
    }
    Ok(tokens * f64::from(n_steps) / begun.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_a_number_or_a_way_to_find_one() {
        assert_eq!(Batch::parse("0"), Ok(Batch::Of(0)));
        assert_eq!(Batch::parse("12"), Ok(Batch::Of(12)));
        assert_eq!(Batch::parse("auto"), Ok(Batch::Auto));
        assert_eq!(Batch::parse("fastest"), Ok(Batch::Fastest));
        for wrong in ["", "-1", "1.5", "Auto", "many", "18446744073709551616"] {
            assert!(Batch::parse(wrong).is_err_and(|error| error.contains("`fastest`")), "{wrong}");
        }
    }

    #[test]
    fn large_batches_are_multiples_of_8_and_small_ones_what_fits() {
        for (most, batch) in [(0, 0), (1, 1), (7, 7), (15, 15), (16, 16), (23, 16), (1001, 1000)] {
            assert_eq!(rounded(most), batch, "{most}");
        }
    }
}
