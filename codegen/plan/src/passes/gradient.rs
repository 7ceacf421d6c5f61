//! Forward steps -> forward and backward steps.

use crate::plan::Plan;
use crate::tape::Tape;

/// Adds the backward steps of everything that leads to a loss.
#[must_use]
pub fn add(plan: Plan) -> Plan {
    Tape::new(plan).walk()
}
