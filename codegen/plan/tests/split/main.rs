//! The launches of attention with its scores in memory, walked in f64 by loops and compared with the op's reference: any
//! wrong row, stride, batch, size or argument shows at full precision, without a compiler.

use kernwright_plan::arch;
use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::case::Case;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, MicroStep};
use kernwright_plan::launch::{Launch, Lowered};
use kernwright_plan::ops::attention::{Attention, AttentionBackward, BackwardForm, Form};
use kernwright_plan::ops::{self, Op};
use kernwright_plan::options::{AttentionPath, Options};
use kernwright_plan::passes::{attention, memory};
use kernwright_plan::plan::{Mode, Plan, Step};
use kernwright_plan::reference::{Reference, Rounding};
use walk::Memory;

mod walk;

/// What differs by less is the order of sums.
const TOLERANCE: f64 = 1e-11;

fn cases() -> Vec<Case> {
    let row = ops::ALL.iter().find(|row| row.name == "attention").expect("attention is an op");
    (row.cases)()
}

fn attention(op: &Op) -> Option<&Attention> {
    match op {
        Op::Attention(op) | Op::AttentionBackward(AttentionBackward { attention: op, .. }) => Some(op),
        _ => None,
    }
}

/// The plan of a case on the split path, with operands of `dtype` and so many sequences at once.
fn split(case: &Case, dtype: Dtype, at_once: usize) -> Plan {
    let mut plan = case.plan.clone();
    // Queries have a buffer of their own where there are other numbers of them.
    let operands = if plan.find("qkv").is_some() {
        ["x", "qkv", "d_qkv"].to_vec()
    } else {
        vec!["x", "queries", "d_queries", "y", "keys", "d_keys"]
    };
    for name in operands.into_iter().chain(["out", "seed"]) {
        let base = plan.find(name).unwrap_or_else(|| panic!("{}: no `{name}`", case.label));
        for index in 0..plan.buffers.len() {
            if plan.base(BufferId(index)).0 == base {
                plan.buffers[index].dtype = dtype;
            }
        }
    }
    let options = Options { attention: AttentionPath::Split, ..Options::default() };
    let mut plan = attention::choose(plan, &options);
    for index in 0..plan.steps.len() {
        let Some(op) = attention_of(&mut plan.steps[index].op, at_once) else { continue };
        let rows = at_once * op.heads * op.length;
        for write in plan.steps[index].writes.clone() {
            let buffer = &mut plan.buffers[write.buffer.0];
            if buffer.role == Role::Scratch {
                buffer.shape[0] = rows;
            }
        }
    }
    memory::place(plan)
}

/// Sets the sequences of a chunk.
fn attention_of(op: &mut Op, at_once: usize) -> Option<Attention> {
    match op {
        Op::Attention(op) => op.form = Form::Split { sequences: at_once },
        Op::AttentionBackward(op) => op.form = BackwardForm::Split { sequences: at_once },
        _ => return None,
    }
    attention(op).cloned()
}

fn launches(plan: &Plan, step: &Step) -> Vec<Launch> {
    match step.op.lower(&plan.io(step), &arch::ALL[0]) {
        Lowered::Launches(launches) => launches,
        Lowered::NoKernel(why) => panic!("{}: {why}", step.op.name()),
    }
}

/// The greatest difference, over the greatest number expected.
fn distance(found: &[f64], expected: &[f64]) -> f64 {
    let most = |values: &mut dyn Iterator<Item = f64>| {
        values.fold(0.0, |most: f64, value| if value <= most { most } else { value })
    };
    // Of what is infinite there is no difference.
    let off = most(&mut found.iter().zip(expected).map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() }));
    off / most(&mut expected.iter().filter(|value| value.is_finite()).map(|value| value.abs())).max(1.0)
}

/// Runs each attention step of the plan from what the reference says was there, and compares what it writes. Buffers are
/// written twice in the second of the two modes, the second time on top of the first.
fn check(name: &str, case: &Case, plan: &Plan) {
    let mut truth = Reference::<f64>::new(Rounding::None);
    let id = case.load(&mut truth, 7).unwrap_or_else(|error| panic!("{name}: {error}"));
    truth
        .run(id, 0..case.plan.steps.len(), MicroStep::First)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut n_steps = 0;
    for step in plan.steps.iter().filter(|step| attention(&step.op).is_some()) {
        n_steps += 1;
        let mut memory = Memory::new(plan);
        for read in &step.reads {
            memory.set(read.buffer, &truth.values(id, read.buffer));
        }
        let mut step = step.clone();
        for (mode, times) in [(Mode::Overwrite, 1.0), (Mode::Accumulate, 2.0)] {
            if matches!(step.op, Op::Attention(_)) && mode == Mode::Accumulate {
                continue;
            }
            for write in step.writes.iter_mut().filter(|write| write.slot.starts_with("d_")) {
                write.mode = mode;
            }
            for launch in launches(plan, &step) {
                memory.run(&launch);
            }
            for write in step.writes.iter().filter(|write| plan.buffer(write.buffer).role != Role::Scratch) {
                let expected: Vec<f64> =
                    truth.values(id, write.buffer).iter().map(|value| value * times).collect();
                let off = distance(&memory.get(write.buffer), &expected);
                assert!(off <= TOLERANCE, "{name}: `{}`, {mode:?}: off by {off:.1e}", write.slot);
            }
        }
    }
    assert_eq!(n_steps, 2, "{name}: forward and backward");
}

#[test]
fn launches_compute_the_op_in_chunks_of_any_size() {
    for case in &cases() {
        for dtype in [Dtype::Fp32, Dtype::Bf16] {
            for at_once in [1, 2, 3] {
                let plan = split(case, dtype, at_once);
                plan.check().unwrap_or_else(|error| panic!("{}: {error}", case.label));
                check(&format!("{}, {}, {at_once} at once", case.label, dtype.name()), case, &plan);
            }
        }
    }
}

/// What a driver makes one product of, it need not make many of.
#[test]
fn a_product_takes_all_heads_and_sequences_of_a_chunk() {
    for case in &cases() {
        let plan = split(case, Dtype::Fp32, 3);
        for step in &plan.steps {
            let Some(op) = attention(&step.op) else { continue };
            let sequences = plan.io(step).rows("q") / op.length;
            let group = op.heads / op.kv_heads;
            // Scores and out; backward scores, d_scores and d_q, and d_v and d_k once per member of a group.
            let expected = if matches!(step.op, Op::Attention(_)) { 2 } else { 3 + 2 * group };
            let all = launches(&plan, step);
            let products: Vec<_> = all
                .iter()
                .filter_map(|one| if let Launch::Gemm(gemm) = one { Some(gemm) } else { None })
                .collect();
            assert_eq!((products.len(), all.len()), (expected, expected + 1), "{}", case.label);
            let n: usize = products
                .iter()
                .map(|one| one.batches.iter().map(|batch| batch.count).product::<usize>())
                .sum();
            let once = sequences * op.heads;
            assert_eq!(n, if expected == 2 { 2 * once } else { 5 * once }, "{}", case.label);
        }
    }
}
