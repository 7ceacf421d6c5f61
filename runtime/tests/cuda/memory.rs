//! What plans share, and what becomes of recordings.

use crate::host::Host;
use crate::{LAYOUTS, cuda, narrowed};
use kernwright_plan::buffer::Role;
use kernwright_plan::case::{Fill, case};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, Values};
use kernwright_plan::ops::linear::Linear;
use kernwright_plan::plan::{Phase, Plan};
use kernwright_runtime::driver::Layout;

/// A product of `rows` rows, whose result is an activation.
fn plan(rows: usize, columns: usize) -> Plan {
    let shapes = [("x", vec![rows, 8], Fill::Normal(1.0)), ("weight", vec![columns, 8], Fill::Normal(1.0))];
    let mut plan = case("", Linear::default(), &shapes, &[("y", vec![rows, columns])]).plan;
    for buffer in plan.buffers.iter_mut().filter(|buffer| buffer.name != "weight") {
        buffer.role = if buffer.name == "x" { Role::Input } else { Role::Activation };
    }
    plan.steps.truncate(1);
    narrowed(plan, &[], Dtype::Fp32)
}

#[test]
fn plans_share_weights_and_nothing_else() {
    for layout in LAYOUTS {
        let mut cuda = cuda(Host::new(layout));
        let (small, large) = (cuda.load(plan(2, 3)).unwrap(), cuda.load(plan(5, 3)).unwrap());
        let find = |name| plan(2, 3).find(name).unwrap();
        assert_eq!(cuda.read(small, find("weight")).unwrap(), [0.0; 24], "new weights are zero");
        cuda.write(small, find("weight"), Values::Float(&[0.5; 24])).unwrap();
        cuda.write(small, find("x"), Values::Float(&[1.0; 16])).unwrap();
        cuda.write(large, find("x"), Values::Float(&[2.0; 40])).unwrap();
        for (id, expected) in [(large, vec![8.0; 15]), (small, vec![4.0; 6])] {
            cuda.run_phase(id, Phase::Forward, MicroStep::First).unwrap();
            assert_eq!(cuda.read(id, find("y")).unwrap(), expected, "{layout:?}");
        }
        let error = cuda.load(plan(2, 4)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "buffer `weight` is 3x8 of fp32 in an earlier plan and 4x8 of fp32 in this one"
        );
    }
}

#[test]
fn a_phase_is_recorded_once_and_anew_when_its_memory_moves() {
    let mut cuda = cuda(Host::new(Layout::Arena));
    let small = cuda.load(plan(2, 3)).unwrap();
    let find = |name| plan(2, 3).find(name).unwrap();
    cuda.write(small, find("weight"), Values::Float(&[0.5; 24])).unwrap();
    cuda.write(small, find("x"), Values::Float(&[1.0; 16])).unwrap();
    for _ in 0..3 {
        cuda.run_phase(small, Phase::Forward, MicroStep::First).unwrap();
    }
    assert_eq!((cuda.driver().recordings.len(), cuda.driver().replays), (1, 3));
    cuda.load(plan(2, 3)).unwrap();
    assert!(cuda.driver().recordings[0].is_some(), "the same room will do");
    cuda.load(plan(500, 3)).unwrap();
    assert!(cuda.driver().recordings[0].is_none(), "its addresses are void");
    cuda.run_phase(small, Phase::Forward, MicroStep::First).unwrap();
    assert_eq!(cuda.read(small, find("y")).unwrap(), [4.0; 6]);
    assert_eq!(cuda.driver().recordings.len(), 2);
}

/// A plan whose first step is of one phase and whose second is of the next.
fn two_phases(rows: usize) -> Plan {
    let mut plan = plan(rows, 3);
    let mut second = plan.steps[0].clone();
    second.phase = Phase::Backward;
    plan.steps.push(second);
    narrowed(plan, &[], Dtype::Fp32)
}

#[test]
fn whole_phases_that_run_together_are_one_recording() {
    let mut cuda = cuda(Host::new(Layout::Arena));
    let id = cuda.load(two_phases(2)).unwrap();
    for _ in 0..2 {
        cuda.run(id, 0..2, MicroStep::First).unwrap();
        cuda.run(id, 0..2, MicroStep::Later).unwrap();
    }
    assert_eq!((cuda.driver().recordings.len(), cuda.driver().replays), (2, 4));
    cuda.run_phase(id, Phase::Backward, MicroStep::First).unwrap();
    assert_eq!(cuda.driver().recordings.len(), 3);
}

#[test]
fn only_the_plans_that_ran_last_keep_their_recordings() {
    let mut cuda = cuda(Host::new(Layout::Arena));
    let ids: Vec<_> = (2..9).map(|rows| cuda.load(plan(rows, 3)).unwrap()).collect();
    let kept = |cuda: &kernwright_runtime::Cuda<Host>| cuda.driver().recordings.iter().flatten().count();
    for id in &ids[..4] {
        cuda.run_phase(*id, Phase::Forward, MicroStep::First).unwrap();
    }
    assert_eq!(kept(&cuda), 4);
    cuda.run_phase(ids[0], Phase::Forward, MicroStep::First).unwrap();
    cuda.run_phase(ids[4], Phase::Forward, MicroStep::First).unwrap();
    let has = |number: usize| cuda.driver().recordings[number].is_some();
    assert_eq!([0, 1, 2, 3, 4].map(has), [true, false, true, true, true]);
}

#[test]
fn a_cleared_executor_has_given_everything_back_and_may_be_used_again() {
    for layout in LAYOUTS {
        let mut cuda = cuda(Host::new(layout));
        for columns in [3, 4] {
            for rows in [2, 500] {
                let id = cuda.load(plan(rows, columns)).unwrap();
                cuda.run_phase(id, Phase::Forward, MicroStep::First).unwrap();
            }
            cuda.clear().unwrap();
            assert_eq!(cuda.driver().used(), 0, "{layout:?}");
            assert_eq!(cuda.driver().recordings.iter().flatten().count(), 0);
        }
    }
}

#[test]
fn a_plan_that_does_not_fit_leaves_nothing_behind() {
    for layout in LAYOUTS {
        let mut host = Host::new(layout);
        host.room = 10_000;
        let mut cuda = cuda(host);
        let id = cuda.load(plan(2, 3)).unwrap();
        let used = cuda.driver().used();
        let error = cuda.load(plan(1000, 3)).unwrap_err();
        assert!(matches!(error, ExecutorError::Memory { .. }), "{error}");
        assert_eq!(cuda.driver().used(), used, "{layout:?}");
        cuda.run_phase(id, Phase::Forward, MicroStep::First).unwrap();
    }
}
