//! What it says when something fails.

use crate::host::Host;
use crate::{cuda, narrowed};
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::case::{Fill, case};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, MicroStep};
use kernwright_plan::ops::add::Add;
use kernwright_plan::ops::norm::{Norm, NormKind, NormWeight};
use kernwright_plan::plan::Plan;
use kernwright_runtime::Cuda;
use kernwright_runtime::driver::Layout;
use std::error::Error;

fn sum(columns: usize) -> Plan {
    let shapes = ["a", "b"].map(|slot| (slot, vec![2, columns], Fill::Normal(1.0)));
    case("", Add, &shapes, &[("y", vec![2, columns])]).plan
}

/// An error and its causes.
fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}

#[test]
fn a_failed_launch_names_its_step_op_kernel_and_shape() {
    let mut host = Host::new(Layout::Separate);
    host.broken = Some("add_");
    let mut cuda = cuda(host);
    let id = cuda.load(sum(24)).unwrap();
    let n = cuda.plan(id).steps.len();
    let name = cuda.kernels()[0].to_owned();
    let expected = format!(
        "cannot run step 0 (`add`), kernel `{name}` on 1x1x1 blocks of 256 threads and 0 bytes of shared memory: an \
         illegal address was used"
    );
    // Replayed as a phase, and launched as some steps.
    for steps in [0..1, 0..n] {
        let error = cuda.run(id, steps, MicroStep::First).unwrap_err();
        assert_eq!(chain(&error), expected);
    }
    let error = cuda.run(id, n..n + 1, MicroStep::First).unwrap_err().to_string();
    assert_eq!(error, format!("the plan is not sound: it has {n} steps, asked for {n}..{}", n + 1));
}

#[test]
fn a_kernel_without_text_is_named() {
    let no_text: Result<String, String> = Err("`sm_80` was not generated".to_owned());
    let host = Host::new(Layout::Separate);
    let mut cuda = Cuda::new(host, arch::ALL[0].clone(), Box::new(move |_| no_text.clone()));
    let error = chain(&cuda.load(sum(24)).unwrap_err());
    assert!(error.starts_with("cannot find the text of kernel `add_"), "{error}");
    assert!(error.ends_with(", which step 0 launches: `sm_80` was not generated"), "{error}");
}

#[test]
fn a_step_without_kernel_is_named_when_it_is_run() {
    let mut cuda = cuda(Host::new(Layout::Separate));
    let mut plan = sum(12);
    plan.buffers.iter_mut().for_each(|buffer| buffer.offset = None);
    let plan = narrowed(plan, &[], Dtype::Fp32);
    let mut view = plan.clone();
    let wide = view.find("a").unwrap();
    let part = view.add_view("a.part", wide, 1..9);
    for slot in ["b", "y"] {
        let id = view.find(slot).unwrap();
        view.buffers[id.0].shape = vec![2, 8];
    }
    view.steps.truncate(1);
    view.steps[0].reads[0].buffer = part;
    let view = narrowed(view, &[], Dtype::Fp32);
    let id = cuda.load(view).unwrap();
    let error = cuda.run(id, 0..1, MicroStep::First).unwrap_err();
    assert_eq!(
        error.to_string(),
        "step 0 (`add`) cannot run on `sm_80`: rows must be a multiple of 8 columns wide"
    );
}

#[test]
fn a_kernel_that_wants_more_shared_memory_than_there_is_is_named() {
    let op = Norm { kind: NormKind::Rms, epsilon: 1e-5, weight: NormWeight::W, groups: 1, count: 2048 };
    let shapes = [("x", vec![3, 2048], Fill::Normal(1.0)), ("weight", vec![2048], Fill::Around(1.0))];
    let plan = case("", op, &shapes, &[("y", vec![3, 2048]), ("rstd", vec![3, 1])]).plan;
    let tight = Arch { shared_memory: 0, ..arch::ALL[0].clone() };
    let mut cuda = Cuda::new(Host::new(Layout::Separate), tight, Box::new(|_| Ok(String::new())));
    let error = cuda.load(plan).unwrap_err().to_string();
    assert!(error.contains("step 0 launches `norm_forward_rms_"), "{error}");
    assert!(error.ends_with("bytes of shared memory, and a block may have 0 on `sm_80`"), "{error}");
}
