//! Times by the clock of a device; that of this one counts commands, a second each.

use crate::cuda;
use crate::host::Host;
use kernwright_plan::arch;
use kernwright_plan::executor::{Executor, MicroStep};
use kernwright_plan::launch::Lowered;
use kernwright_plan::measure::Timed;
use kernwright_plan::plan::Plan;
use kernwright_plan::shape::parse_text;
use kernwright_plan::{Options, train_step};
use kernwright_runtime::driver::Layout;

fn plan() -> Plan {
    let fields = "model.vocab = 24\nmodel.context = 16\nmodel.d_model = 16\nmodel.layers = 1\nmodel.tied\n\
                  attention.heads = 2\nattention.head_dim = 8\nattention.rope\nfeed_forward.swiglu\n\
                  feed_forward.d_ff = 24\n";
    train_step(&parse_text(fields).expect("it is a shape"), &Options::default(), 1, 9)
}

#[test]
fn every_launch_of_a_step_is_timed_once_and_in_order() {
    let plan = plan();
    for micro in [MicroStep::First, MicroStep::Later] {
        let mut cuda = cuda(Host::new(Layout::Arena));
        let id = cuda.load(plan.clone()).unwrap();
        let timed = cuda.time_launches(id, 0..plan.steps.len(), micro).unwrap().unwrap();
        let mut expected = Vec::new();
        for (step, one) in plan.steps.iter().enumerate() {
            let one = one.at(micro);
            let Lowered::Launches(launches) = one.op.lower(&plan.io(&one), &arch::ALL[0]) else {
                panic!("step {step} has no kernel")
            };
            expected.extend((0..launches.len()).map(|launch| Timed { step, launch, seconds: 1.0 }));
        }
        assert_eq!(timed.launches, expected, "{micro:?}");
    }
}

#[test]
fn the_time_between_two_marks_is_that_of_what_was_asked_for_between_them() {
    let mut cuda = cuda(Host::new(Layout::Arena));
    let id = cuda.load(plan()).unwrap();
    let from = cuda.mark().unwrap().expect("it has a clock");
    let done = cuda.driver().done;
    cuda.run(id, 0..3, MicroStep::First).unwrap();
    let to = cuda.mark().unwrap().expect("it has a clock");
    let seconds = (cuda.driver().done - done) as f64;
    assert!(seconds >= 3.0);
    assert_eq!(cuda.seconds(from, to).unwrap(), seconds);
}
