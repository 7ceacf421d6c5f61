//! Passes that replace neighbouring steps by one op that does both.

use crate::ops::Op;
use crate::options::Options;
use crate::plan::{Plan, Read};

/// `t = linear(x)`, `y = add(r, t)` becomes `y = linear(x, residual = r)` where nothing else reads `t`. The backward
/// steps stay: the gradient of a sum is that of its parts.
#[must_use]
pub fn residual_in_linear(mut plan: Plan, options: &Options) -> Plan {
    if options.without.iter().any(|name| name == "residual_in_linear") {
        return plan;
    }
    let mut index = 0;
    while index + 1 < plan.steps.len() {
        let (linear, add) = (&plan.steps[index], &plan.steps[index + 1]);
        let plain = matches!(linear.op, Op::Linear(_)) && linear.reads.iter().all(|r| r.slot != "residual");
        if plain && matches!(add.op, Op::Add(_)) {
            let made = linear.writes[0].buffer;
            let n_readers = plan.steps.iter().flat_map(|s| &s.reads).filter(|r| r.buffer == made).count();
            let residual = add.reads.iter().find(|read| read.buffer != made).copied();
            if let (1, Some(residual)) = (n_readers, residual) {
                let y = add.writes[0];
                plan.steps[index].reads.push(Read { slot: "residual", buffer: residual.buffer });
                plan.steps[index].writes[0] = y;
                plan.steps.remove(index + 1);
            }
        }
        index += 1;
    }
    plan
}
