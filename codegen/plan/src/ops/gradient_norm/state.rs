//! What a training step finds out about itself, and leaves to the next one: whether training goes on, and how the loss is
//! scaled.
//!
//! In: whether loss and norm were finite. Out: the number of the update, or none. Numbers only; no buffers.

use crate::options::LossScaling;

/// The greatest scale of the loss: far beyond what any gradient leaves room for, and all its squares are finite.
pub const GREATEST_SCALE: f32 = 16_777_216.0;

/// The state buffers of a plan, each one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// The step in which loss or norm was not finite, from 1; 0 while training goes on.
    pub halted: i32,
    /// What the gradients of the next step are multiplied by; 1 without loss scaling.
    pub loss_scale: f32,
    /// Updates since the scale last changed.
    pub good_steps: i32,
    /// Steps whose gradients overflowed, and that updated nothing.
    pub skipped_steps: i32,
}

impl State {
    /// Goes on after the gradients of step `step` (from 1). Returns which update this is, from 1, or 0 where weights and
    /// moments are to stay as they are. Steps that were skipped do not count as updates.
    pub fn advance(&mut self, is_finite: bool, step: i32, scaling: Option<LossScaling>) -> i32 {
        if self.halted != 0 {
            return 0;
        }
        let number = step.saturating_sub(self.skipped_steps).max(1);
        match scaling {
            None if is_finite => return number,
            Some(LossScaling { interval, .. }) if is_finite => {
                self.good_steps += 1;
                if self.good_steps >= interval {
                    self.good_steps = 0;
                    self.loss_scale = GREATEST_SCALE.min(2.0 * self.loss_scale);
                }
                return number;
            }
            Some(_) if self.loss_scale > 1.0 => {
                self.good_steps = 0;
                self.loss_scale = 1.0_f32.max(0.5 * self.loss_scale);
                self.skipped_steps += 1;
            }
            // There is nothing left to lower: it is not the scale.
            _ => self.halted = step.max(1),
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: State = State { halted: 0, loss_scale: 1.0, good_steps: 0, skipped_steps: 0 };

    #[test]
    fn the_first_step_that_is_not_finite_ends_training_for_good() {
        let mut state = START;
        assert_eq!(state.advance(true, 6, None), 6);
        assert_eq!(state.advance(false, 7, None), 0);
        assert_eq!(state, State { halted: 7, ..START });
        assert_eq!((state.advance(true, 8, None), state.advance(false, 9, None)), (0, 0));
        assert_eq!(state, State { halted: 7, ..START });
    }

    #[test]
    fn an_overflow_halves_the_scale_and_is_no_update_until_the_scale_is_1() {
        let scaling = Some(LossScaling { initial: 4.0, interval: 3 });
        let mut state = State { loss_scale: 4.0, ..START };
        let outcomes = [true, false, true, true, true, false, false, true, false, true];
        let updates = outcomes.map(|is_finite| state.advance(is_finite, 10, scaling));
        // Overflow at 4; at 2, three good ones; overflow at 4 and 2; at 1 a good one, and the end.
        assert_eq!(updates, [10, 0, 9, 9, 9, 0, 0, 7, 0, 0]);
        assert_eq!(state, State { halted: 10, loss_scale: 1.0, good_steps: 1, skipped_steps: 3 });
    }

    #[test]
    fn the_scale_stops_growing() {
        let scaling = Some(LossScaling { initial: 4.0, interval: 1 });
        let mut state = State { loss_scale: 0.75 * GREATEST_SCALE, ..START };
        state.advance(true, 1, scaling);
        state.advance(true, 2, scaling);
        assert_eq!(state.loss_scale, GREATEST_SCALE);
    }
}
