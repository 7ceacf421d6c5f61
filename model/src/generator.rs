//! Logits of the next token, over any executor.
//!
//! In: tokens so far. Out: the logits of what follows. It looks at most at the last `context` tokens. Lengths are
//! rounded up to a power of two, so that a few plans serve all of them; what stands behind the last token is
//! invisible to it under a causal mask.

use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId, Values};
use kernwright_plan::passes::forward::Head;
use kernwright_plan::plan::Phase;
use kernwright_plan::shape::Shape;
use kernwright_plan::{Options as PlanOptions, forward_step};

use crate::random::Random;
use crate::sample::{SampleError, Sampling};

/// The shortest plan: below it a step costs the same.
const SHORTEST: usize = 32;

/// What can go wrong in generation.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum GenerateError {
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    #[error(transparent)]
    Sample(#[from] SampleError),
    #[error("generation needs a `causal` model: this one is `full`, and sees what follows")]
    Full,
    #[error("generation needs a token to continue")]
    Empty,
}

/// Plans of several lengths over one executor's weights.
#[derive(Debug)]
pub struct Generator<'a> {
    shape: &'a Shape,
    options: PlanOptions,
    /// Most tokens it looks back on.
    window: usize,
    /// Only tokens below it are drawn.
    n_drawable: usize,
    /// (length, plan), as they were needed.
    plans: Vec<(usize, PlanId)>,
}

impl<'a> Generator<'a> {
    /// A generator; plans are made when first needed.
    ///
    /// # Errors
    /// When the model is not causal.
    pub fn new(shape: &'a Shape, options: &PlanOptions) -> Result<Self, GenerateError> {
        if !shape.attention.causal {
            return Err(GenerateError::Full);
        }
        Ok(Self {
            shape,
            options: options.clone(),
            window: shape.context,
            n_drawable: shape.vocab,
            plans: Vec::new(),
        })
    }

    /// Looks back on `window` tokens at most: the length it was trained on, beyond which it knows no positions.
    pub fn look_back(&mut self, window: usize) {
        self.window = window.clamp(1, self.shape.context);
    }

    /// Draws only tokens below `n`: those that stand for something.
    pub fn draw_below(&mut self, n: usize) {
        self.n_drawable = n.clamp(1, self.shape.vocab);
    }

    /// The plan for `n` tokens, and its length.
    ///
    /// # Errors
    /// When the executor cannot hold it.
    pub fn plan(&mut self, executor: &mut dyn Executor, n: usize) -> Result<(usize, PlanId), ExecutorError> {
        let length = n.next_power_of_two().max(SHORTEST).min(self.shape.context);
        if let Some(plan) = self.plans.iter().find(|(other, _)| *other == length) {
            return Ok(*plan);
        }
        let plan = executor.load(forward_step(self.shape, &self.options, 1, length, Head::Logits(1)))?;
        self.plans.push((length, plan));
        Ok((length, plan))
    }

    /// Logits [vocab] of the token after `tokens`.
    ///
    /// # Errors
    /// When there is no token, a token is out of range, or a device fails.
    pub fn logits(&mut self, executor: &mut dyn Executor, tokens: &[i32]) -> Result<Vec<f32>, GenerateError> {
        let seen = &tokens[tokens.len().saturating_sub(self.window)..];
        if seen.is_empty() {
            return Err(GenerateError::Empty);
        }
        let (length, plan) = self.plan(executor, seen.len())?;
        let mut padded = seen.to_vec();
        padded.resize(length, 0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
        let position = [(seen.len() - 1) as i32];
        for (name, values) in [("tokens", &padded[..]), ("positions", &position[..])] {
            let missing = || ExecutorError::Plan(format!("it has no buffer `{name}`"));
            let buffer = executor.plan(plan).find(name).ok_or_else(missing)?;
            executor.write(plan, buffer, Values::Int(values))?;
        }
        executor.run_phase(plan, Phase::Forward, MicroStep::First)?;
        let missing = || ExecutorError::Plan("it has no logits".to_owned());
        let logits = executor.plan(plan).find("asked_logits").ok_or_else(missing)?;
        Ok(executor.read(plan, logits)?)
    }

    /// Appends `n` tokens to `tokens`, handing each to `emit` as it comes; `emit` returns false to end.
    ///
    /// # Errors
    /// As [`Generator::logits`], or when a logit is not a number.
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
    pub fn generate(
        &mut self,
        executor: &mut dyn Executor,
        tokens: &mut Vec<i32>,
        n: usize,
        sampling: Sampling,
        random: &mut Random,
        emit: &mut dyn FnMut(i32) -> bool,
    ) -> Result<(), GenerateError> {
        for _ in 0..n {
            let mut logits = self.logits(executor, tokens)?;
            logits.truncate(self.n_drawable);
            let token = sampling.choose(&logits, random)? as i32;
            tokens.push(token);
            if !emit(token) {
                break;
            }
        }
        Ok(())
    }
}
