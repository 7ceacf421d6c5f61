//! What an executor can say of its device: times by the device's own clock, and memory.
//!
//! In: nothing. Out: plain data; see `Executor::mark`, `Executor::usage` and `Executor::time_launches`.

/// A point in the order of what an executor does, on the clock of its device; a number of the executor's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark(pub usize);

/// What an executor has taken of its device's memory; `None` where nobody counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Allocations made so far. It stands still once a step has run.
    pub allocations: Option<usize>,
    /// Bytes held by allocations, those of no plan included.
    pub allocated: Option<u64>,
    /// Bytes that the device says are in use now and were free when it was opened, for whatever purpose.
    pub taken: Option<u64>,
}

/// The launches of some steps in order, and how it is known how long each ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// In words: `events between commands`.
    pub by: &'static str,
    /// In the order of the steps.
    pub launches: Vec<Timed>,
}

/// One launch of a step, and how long it ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// Index of the step in its plan.
    pub step: usize,
    /// Index of the launch among those of the step.
    pub launch: usize,
    /// By the device's clock.
    pub seconds: f64,
}
