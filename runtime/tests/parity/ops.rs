//! Every op, in every case of the sweep.

use crate::comparison::{Shares, Three};
use kernwright_plan::executor::MicroStep;
use kernwright_plan::ops;

#[test]
fn every_op_matches_the_reference() {
    let mut worst = Shares::new();
    for case in ops::ALL.iter().flat_map(|row| (row.cases)()) {
        for seed in 1..4 {
            let mut three = Three::new(&case.plan, 2);
            for (buffer, content) in case.content(seed) {
                three.write(buffer, content.values());
            }
            let label = format!("{}, seed {seed}", case.label);
            for (op, share) in three.lockstep(&label, 0..case.plan.steps.len(), MicroStep::First) {
                let worst = worst.entry(op).or_insert(0.0);
                *worst = share.max(*worst);
            }
        }
    }
    for row in ops::ALL {
        match worst.get(row.name) {
            Some(share) => println!("{:20} at most {share:.2} of the tolerance", row.name),
            None => panic!("no case runs `{}`", row.name),
        }
    }
}

/// The other value of every mode: what adds in a later micro-batch does add.
#[test]
fn every_op_matches_the_reference_in_later_micro_batches() {
    for case in ops::ALL.iter().flat_map(|row| (row.cases)()) {
        let mut three = Three::new(&case.plan, 3);
        for (buffer, content) in case.content(9) {
            three.write(buffer, content.values());
        }
        for micro in [MicroStep::First, MicroStep::Later, MicroStep::Later] {
            three.lockstep(&case.label, 0..case.plan.steps.len(), micro);
        }
    }
}
