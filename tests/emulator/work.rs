//! What the sweep runs: a plan, its content, and which of its steps run when; and plans of a case in every type.

use kernwright_plan::buffer::BufferId;
use kernwright_plan::case::{Case, Content};
use kernwright_plan::dtype::{self, Dtype};
use kernwright_plan::executor::MicroStep;
use kernwright_plan::ops::Op;
use kernwright_plan::ops::linear::Linear;
use kernwright_plan::options::{AttentionPath, Options};
use kernwright_plan::passes::{attention, memory, narrow, split_heads};
use kernwright_plan::plan::{Plan, Step};
use kernwright_plan::shape::presets;
use std::collections::BTreeSet;
use std::ops::Range;

/// Steps to run, and what is written before.
pub(crate) struct Run {
    pub(crate) content: Vec<(BufferId, Content)>,
    pub(crate) steps: Range<usize>,
    pub(crate) micro: MicroStep,
}

/// A plan to run.
pub(crate) struct Work {
    pub(crate) label: String,
    pub(crate) plan: Plan,
    pub(crate) runs: Vec<Run>,
}

/// Slots that may be narrow whatever the rest is, so that a kernel meets each type in each place.
const GROUPS: [&[&str]; 5] = [
    &["x", "copy", "table", "a"],
    &["y", "narrow", "b"],
    &["d_y"],
    &["d_x", "d_table"],
    &["d_weight", "d_bias", "gradient"],
];
/// Which groups are narrow together.
const SETS: [&[usize]; 3] = [&[], &[1, 2, 4], &[0, 1, 2, 3]];
/// Slots that have one type in a fused attention; and those that may have it.
const OPERANDS: &[&str] = &["q", "k", "v", "out", "d_out"];
const GRADIENTS: &[&str] = &["d_q", "d_k", "d_v"];
/// The same of products.
const FACTORS: &[&str] = &["x", "weight", "d_y"];
const RESULTS: &[&str] = &["y", "d_x", "bias", "residual", "gelu_input"];

/// Element types that Shapes may ask for and that are not fp32.
pub(crate) fn narrow_types() -> impl Iterator<Item = Dtype> {
    dtype::ALL.iter().filter(|row| row.is_precision && row.bytes < 4).map(|row| row.dtype)
}

/// The base buffers that some steps name in one of these slots.
fn bases(plan: &Plan, slots: &[&str], of: impl Fn(&Op) -> bool) -> BTreeSet<BufferId> {
    let named = |step: &Step| -> Vec<BufferId> {
        let reads = step.reads.iter().map(|read| (read.slot, read.buffer));
        let writes = step.writes.iter().map(|write| (write.slot, write.buffer));
        let all = reads.chain(writes).filter(|(slot, _)| slots.contains(slot));
        all.map(|(_, buffer)| plan.base(buffer).0).collect()
    };
    plan.steps.iter().filter(|step| of(&step.op)).flat_map(named).collect()
}

fn with(mut plan: Plan, bases: &BTreeSet<BufferId>, dtype: Dtype) -> Plan {
    for index in 0..plan.buffers.len() {
        let is_float = !plan.buffers[index].dtype.is_integer();
        if is_float && bases.contains(&plan.base(BufferId(index)).0) {
            plan.buffers[index].dtype = dtype;
        }
    }
    plan
}

/// The plan of a case in fp32 and, for each narrow type: as a model has it, and with each set of slots narrow.
fn plans(case: &Case) -> Vec<(String, Plan)> {
    let attends = |op: &Op| matches!(op, Op::Attention(_) | Op::AttentionBackward(_));
    let has_attention = case.plan.steps.iter().any(|step| attends(&step.op));
    let multiplies = |op: &Op| matches!(op, Op::Linear(_) | Op::LinearBackward(_));
    let has_product = case.plan.steps.iter().any(|step| multiplies(&step.op));
    // No plan has a product that takes in a gelu unless all its types are narrow.
    let takes_in = |step: &Step| match step.op {
        Op::Linear(Linear { gelu }) => gelu,
        Op::LinearBackward(_) => step.reads.iter().any(|read| read.slot == "gelu_input"),
        _ => false,
    };
    let has_gelu = case.plan.steps.iter().any(takes_in);
    // The types of these are tied to each other.
    let is_tied = |op: &Op| attends(op) || matches!(op, Op::HeadLoss(_) | Op::Head(_));
    let mut all = if has_gelu { Vec::new() } else { vec![("fp32".to_owned(), case.plan.clone())] };
    for precision in narrow_types() {
        let name = precision.name();
        let options = Options { precision: Some(precision), ..Options::default() };
        let shape = presets::ALL[0].shape();
        let as_in_a_model = narrow::apply(case.plan.clone(), &shape, &options);
        if has_attention {
            let operands = bases(&case.plan, OPERANDS, attends);
            let plan = with(case.plan.clone(), &operands, precision);
            let gradients = bases(&case.plan, GRADIENTS, attends);
            let narrower = with(plan.clone(), &gradients, precision);
            for (label, plan) in [("", plan), (" with its gradients", narrower)] {
                for (path, order) in [
                    (AttentionPath::Fused, "ordered"),
                    (AttentionPath::Fused, "in turns"),
                    (AttentionPath::Fused, "free"),
                    (AttentionPath::Split, "ordered"),
                ] {
                    let (deterministic, in_turns) = (order != "free", order == "in turns");
                    let options = Options { attention: path, deterministic, in_turns, ..options.clone() };
                    for (heads, options) in ["split", "together"].iter().zip(split_heads::both(&options)) {
                        let label = format!("{name}{label} {path:?} {order}, heads {heads}");
                        all.push((label, attention::choose(plan.clone(), &options)));
                    }
                }
            }
            continue;
        }
        if has_product {
            // What multiplies wants operands of one type, and adds only what has the type of the result.
            let operands = bases(&case.plan, FACTORS, multiplies);
            let results = bases(&case.plan, RESULTS, multiplies);
            let plan = with(case.plan.clone(), &operands, precision);
            all.push((format!("{name} with narrow results"), with(plan.clone(), &results, precision)));
            all.extend((!has_gelu).then(|| (name.to_owned(), plan)));
            continue;
        }
        all.push((name.to_owned(), as_in_a_model));
        let gradients = Options { gradient: precision, ..options.clone() };
        all.push((format!("{name} gradients"), narrow::apply(case.plan.clone(), &shape, &gradients)));
        for set in SETS {
            let slots: Vec<&str> = set.iter().flat_map(|group| GROUPS[*group]).copied().collect();
            let narrow = bases(&case.plan, &slots, |op| !is_tied(op));
            all.push((format!("{name} {set:?}"), with(case.plan.clone(), &narrow, precision)));
        }
    }
    let mut seen: Vec<(Vec<Step>, Vec<Dtype>)> = Vec::new();
    all.retain(|(_, plan)| {
        let key = (plan.steps.clone(), plan.buffers.iter().map(|buffer| buffer.dtype).collect());
        let is_new = !seen.contains(&key);
        seen.push(key);
        is_new
    });
    all
}

/// A case in every type, twice: what replaces in the first micro-batch adds in the second.
pub(crate) fn of_case(case: &Case) -> Vec<Work> {
    let works = plans(case).into_iter().map(|(label, plan)| {
        let plan = memory::place(plan);
        let runs = [(7, MicroStep::First), (8, MicroStep::Later)];
        let n_steps = plan.steps.len();
        let runs = runs.map(|(seed, micro)| Run { content: case.content(seed), steps: 0..n_steps, micro });
        Work { label: format!("{} {label}", case.label), plan, runs: runs.into() }
    });
    works.collect()
}
