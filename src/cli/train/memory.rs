//! The memory that training takes, before it takes any.
//!
//! In: a Shape, a batch, plans. Out: bytes by what they are for, the room there is for them, and the largest batch that
//! fits. A plan is a pure function and cheap, so a batch is tried by planning it.

use crate::cli::units;
use kernwright_plan::buffer::Role;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::passes::memory;
use kernwright_plan::shape::Shape;
use kernwright_plan::{Options as PlanOptions, forward_step, train_step};
use std::fmt;

/// The memory there is.
pub(super) struct Room {
    /// Bytes; `None` where nobody knows.
    pub(super) bytes: Option<u64>,
    /// Who says so, in words that a number follows.
    pub(super) of: String,
}

impl Room {
    /// What is free on a device, or what of it may be used.
    pub(super) fn new(free: Option<u64>, device: &str, budget: Option<u64>) -> Self {
        match (free, budget.map(|mebibytes| mebibytes.saturating_mul(1 << 20))) {
            (free, Some(budget)) if free.is_none_or(|free| budget <= free) => {
                Self { bytes: Some(budget), of: "`--memory-budget` allows".to_owned() }
            }
            (free, _) => Self { bytes: free, of: format!("{device} has free") },
        }
    }
}

/// What training needs, by what for.
pub(super) struct Need {
    /// What lasts, by role; roles without any are left out.
    lasting: Vec<(Role, u64)>,
    /// What steps use in turn.
    transient: u64,
}

impl Need {
    /// Of training and validation with this batch.
    pub(super) fn of(shape: &Shape, options: &PlanOptions, batch: usize, length: usize) -> Self {
        let training = train_step(shape, options, batch, length);
        let evaluation = forward_step(shape, options, batch, length, Head::Loss);
        let transient = [&training, &evaluation].map(|plan| plan.arena_bytes - plan.persistent_bytes);
        let lasting = Role::ALL.into_iter().filter(|role| role.is_persistent()).map(|role| {
            // Weights and what belongs to them are shared.
            let own = if role.is_shared() { 0 } else { memory::bytes(&evaluation, role) };
            (role, (memory::bytes(&training, role) + own) as u64)
        });
        Self {
            lasting: lasting.filter(|(_, bytes)| *bytes > 0).collect(),
            transient: transient.into_iter().max().unwrap_or(0) as u64,
        }
    }

    /// All of it.
    pub(super) fn total(&self) -> u64 {
        self.lasting.iter().map(|(_, bytes)| bytes).sum::<u64>() + self.transient
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |bytes: u64| units::bytes(bytes as f64);
        write!(f, "`{}` (", bytes(self.total()))?;
        for (role, of_role) in &self.lasting {
            write!(f, "{} {}, ", role.name(), bytes(*of_role))?;
        }
        write!(f, "activations {})", bytes(self.transient))
    }
}

/// The largest number from 1 to `most` that fits; 0 where none does. What is above one that does not fit does not fit.
pub(super) fn largest(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    let mut next = 1;
    while next <= most && fits(next) {
        next = next.saturating_mul(2);
    }
    // The last one that fitted, and one that did not or may not be asked for.
    let (mut largest, mut end) = (next / 2, next.min(most + 1));
    while end - largest > 1 {
        let middle = largest + (end - largest) / 2;
        *if fits(middle) { &mut largest } else { &mut end } = middle;
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::shape::presets;

    #[test]
    fn the_largest_that_fits_is_found() {
        for most in [0, 1, 2, 3, 8, 100] {
            for limit in 0..=most + 3 {
                assert_eq!(largest(most, |n| n <= limit), limit.min(most), "{limit} of {most}");
            }
        }
    }

    #[test]
    fn a_larger_batch_needs_no_less_and_the_weights_the_same() {
        for options in [PlanOptions::default(), PlanOptions::host()] {
            let shape = presets::find("tiny").map(|preset| preset.shape()).unwrap_or_else(|| unreachable!());
            let needs: Vec<Need> = (1..=20).map(|batch| Need::of(&shape, &options, batch, 96)).collect();
            for pair in needs.windows(2) {
                assert!(pair[0].total() < pair[1].total());
                assert!(pair[0].lasting[0] == pair[1].lasting[0], "parameters");
            }
            let text = needs[0].to_string();
            assert!(text.contains("(parameter ") && text.contains("moment "), "{text}");
        }
    }

    #[test]
    fn a_budget_counts_where_it_is_less_than_what_is_free() {
        let room = Room::new(Some(5 << 20), "CPU", Some(3));
        assert_eq!((room.bytes, room.of.as_str()), (Some(3 << 20), "`--memory-budget` allows"));
        let room = Room::new(Some(2 << 20), "CPU", Some(3));
        assert_eq!((room.bytes, room.of.as_str()), (Some(2 << 20), "CPU has free"));
        assert_eq!(Room::new(None, "CPU", Some(3)).bytes, Some(3 << 20));
        assert_eq!(Room::new(None, "CPU", None).bytes, None);
    }
}
