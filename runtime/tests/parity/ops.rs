//! Every op, in every case of the sweep.

use crate::comparison::Three;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::ops;

#[test]
fn every_op_matches_the_reference() {
    let mut n_cases = 0;
    for row in ops::ALL {
        let mut worst = 0.0_f64;
        for case in (row.cases)() {
            for seed in 1..4 {
                let mut three = Three::new(&case.plan, 2);
                for (buffer, content) in case.content(seed) {
                    three.write(buffer, content.values());
                }
                let label = format!("{}, seed {seed}", case.label);
                worst = worst.max(three.lockstep(&label, 0..case.plan.steps.len(), MicroStep::First));
            }
            n_cases += 1;
        }
        println!("{:20} at most {worst:.2} of the tolerance", row.name);
    }
    assert!(n_cases >= ops::ALL.len() / 2, "{n_cases} cases");
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
