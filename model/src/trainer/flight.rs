//! A step that was launched and not finished.
//!
//! In: what it was given. Out: its outcome, once it is there. Its batches are kept, to look for a fault in them.

use kernwright_plan::executor::{Executor, ExecutorError, Fetch, PlanId};

use super::slots::StepSlots;
use crate::batches::{Batch, Position};

/// A step under way.
#[derive(Debug)]
pub(super) struct Flight {
    /// Tokens trained on, this step included.
    pub(super) tokens: u64,
    /// Where the step after it begins in the corpus.
    pub(super) position: Position,
    pub(super) learning_rate: f64,
    pub(super) batches: Vec<Batch>,
    pub(super) n_counted: usize,
    pub(super) outcome: Outcome,
}

/// What a step yields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Numbers {
    pub(super) loss: f64,
    pub(super) gradient_norm: f64,
    /// Where the loss is scaled.
    pub(super) scaling: Option<Scaling>,
}

/// How a scaled loss fared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scaling {
    /// Were weights left alone for good, since there is no scale left to lower?
    pub(super) halted: bool,
    /// The scale after the step.
    pub(super) scale: f64,
    /// Steps that were skipped so far.
    pub(super) skipped: u64,
}

/// The same, there or on its way.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Loss, norm and, where the loss is scaled, `halted`, `loss_scale` and `skipped_steps`, in the order of asking.
    UnderWay(Vec<Fetch>),
    Here(Numbers),
}

impl Outcome {
    /// Asks for what the step yields that was asked for last.
    pub(super) fn ask(
        executor: &mut dyn Executor,
        plan: PlanId,
        slots: StepSlots,
    ) -> Result<Self, ExecutorError> {
        let asked =
            [slots.inputs.loss, slots.gradient_norm].into_iter().chain(slots.scaling.into_iter().flatten());
        let fetches = asked.map(|buffer| executor.fetch(plan, buffer));
        Ok(Self::UnderWay(fetches.collect::<Result<_, _>>()?))
    }

    /// What the step yields, once it is there.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn arrive(&mut self, executor: &mut dyn Executor) -> Result<Numbers, ExecutorError> {
        let fetches = match self {
            Self::Here(numbers) => return Ok(*numbers),
            Self::UnderWay(fetches) => fetches,
        };
        let mut values = vec![f64::NAN; fetches.len()];
        // With the one that was asked for last, the others are there too: only one is waited for.
        for (value, fetch) in values.iter_mut().zip(fetches).rev() {
            *value = scalar(&executor.take(fetch.clone())?);
        }
        let scaling = values.get(2..5).map(|values| Scaling {
            halted: values[0] != 0.0,
            scale: values[1],
            skipped: values[2] as u64,
        });
        let numbers = Numbers { loss: values[0], gradient_norm: values[1], scaling };
        *self = Self::Here(numbers);
        Ok(numbers)
    }
}

/// The only element of a buffer; no number where there is none.
pub(super) fn scalar(values: &[f32]) -> f64 {
    values.first().map_or(f64::NAN, |value| f64::from(*value))
}
