//! Every way of attention beside the others: the fused kernels lose no more than products and a softmax over scores in
//! memory do, both against f64. Kernels run on the emulator.

use crate::device::{device, options};
use crate::plans;
use kernwright_plan::Options;
use kernwright_plan::arch;
use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::case::{Case, Content, Fill, copy, finish, input};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, Values};
use kernwright_plan::ops::attention::{Attention, Form, Window};
use kernwright_plan::options::AttentionPath;
use kernwright_plan::passes::{attention, memory};
use kernwright_plan::plan::{Phase, Plan, Step};
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_plan::tape::{read, write};
use kernwright_runtime::emulator;

/// The most that a fused form's error may be, over the split form's: the root of its mean square.
const MOST: f64 = 1.5;

/// The same of the greatest error, which is one number's and chance's.
const MOST_OF_ONE: f64 = 2.0;

/// What is compared: results forward, then gradients.
const COMPARED: [&str; 5] = ["out", "lse", "d_q", "d_k", "d_v"];

/// Queries, keys and values side by side as in a model, or queries alone where there are other numbers of them; they, `out` and
/// its gradient are `dtype`, the gradients that come out fp32, so that they show what a form loses and not their own rounding.
fn case(op: &Attention, batch: usize, dtype: Dtype) -> Case {
    let (mut plan, mut fills) = (Plan::default(), Vec::new());
    let (q, kv) = (op.heads * op.head_dim, op.kv_heads * op.head_dim);
    let rows = batch * op.length;
    let mut given = |plan: &mut Plan, name: [&str; 2], shape: [usize; 2]| {
        let from = input(plan, &mut fills, name[0], &shape, &Fill::Normal(1.0));
        let to = copy(plan, from, name[1], Role::Activation);
        plan.buffers[to.0].dtype = dtype;
        to
    };
    let views = if op.length == op.key_length {
        let qkv = given(&mut plan, ["x", "qkv"], [rows, q + 2 * kv]);
        [("q", qkv, 0..q), ("k", qkv, q..q + kv), ("v", qkv, q + kv..q + 2 * kv)]
    } else {
        let queries = given(&mut plan, ["x", "queries"], [rows, q]);
        let keys = given(&mut plan, ["y", "keys"], [batch * op.key_length, 2 * kv]);
        [("q", queries, 0..q), ("k", keys, 0..kv), ("v", keys, kv..2 * kv)]
    };
    let reads = views.map(|(slot, of, columns)| read(slot, plan.add_view(slot, of, columns))).to_vec();
    let out = plan.add("out", vec![rows, q], dtype, Role::Output);
    let lse = plan.add("lse", vec![batch, op.heads, op.length], Dtype::Fp32, Role::Output);
    let writes = vec![write("out", out), write("lse", lse)];
    plan.steps.push(Step { op: op.clone().into(), reads, writes, phase: Phase::Forward });
    let label = format!(
        "{} {batch}x{}:{} {}/{}x{} {} softcap={:?}",
        dtype.name(),
        op.length,
        op.key_length,
        op.heads,
        op.kv_heads,
        op.head_dim,
        op.window,
        op.softcap
    );
    let mut case = finish(&label, plan, fills, out);
    case.plan.buffers[case.seed.0].dtype = dtype;
    case
}

fn cases() -> Vec<Case> {
    let op = |heads: usize, kv_heads: usize, head_dim: usize, length: usize, causal: bool| Attention {
        heads,
        kv_heads,
        head_dim,
        length,
        key_length: length,
        window: if causal { Window::CAUSAL } else { Window::FULL },
        softcap: None,
        scale: (head_dim as f64).sqrt().recip(),
        form: Form::Fused,
    };
    let window = |left: usize, right: usize, op: Attention| Attention {
        window: Window { left: Some(left), right: Some(right) },
        ..op
    };
    let keys = |key_length: usize, op: Attention| Attention { key_length, ..op };
    let capped = |softcap: f64, op: Attention| Attention { softcap: Some(softcap), ..op };
    vec![
        case(&op(4, 2, 64, 129, true), 1, Dtype::Bf16),
        case(&op(2, 1, 64, 127, false), 1, Dtype::Fp16),
        case(&window(49, 0, op(2, 2, 128, 130, true)), 1, Dtype::Bf16),
        case(&window(32, 20, keys(190, op(3, 1, 40, 130, false))), 1, Dtype::Fp16),
        case(&capped(2.5, op(2, 1, 80, 131, true)), 1, Dtype::Bf16),
        // The first 90 queries see nothing.
        case(&keys(110, op(1, 1, 8, 200, true)), 2, Dtype::Fp16),
    ]
}

/// Contents that the errors are taken over: one of them alone tells more of itself than of a form.
const SEEDS: std::ops::Range<u64> = 3..6;

/// The content of what a case reads, in numbers of `dtype`.
fn inputs(case: &Case, dtype: Dtype, seed: u64) -> Vec<(BufferId, Vec<f32>)> {
    let content = case.content(seed).into_iter();
    let floats = content.filter_map(|(buffer, content)| match content {
        Content::Float(values) => Some((buffer, values)),
        Content::Int(_) => None,
    });
    let round = |value: f32| dtype.round(f64::from(value)) as f32;
    floats.map(|(buffer, values)| (buffer, values.into_iter().map(round).collect())).collect()
}

/// What a plan's steps make of each seed's inputs, in the order of `COMPARED`, one seed after the other.
fn results(
    executor: &mut dyn Executor,
    plan: &Plan,
    inputs: &[Vec<(BufferId, Vec<f32>)>],
) -> Result<Vec<Vec<f64>>, ExecutorError> {
    let id = executor.load(plan.clone())?;
    let mut results = vec![Vec::new(); COMPARED.len()];
    for inputs in inputs {
        for (buffer, values) in inputs {
            executor.write(id, *buffer, Values::Float(values))?;
        }
        executor.run(id, 0..plan.steps.len(), MicroStep::First)?;
        for (name, result) in COMPARED.iter().zip(&mut results) {
            let buffer = plan.find(name).unwrap_or_else(|| panic!("the plan has no `{name}`"));
            result.extend(executor.read(id, buffer)?.into_iter().map(f64::from));
        }
    }
    Ok(results)
}

/// Root of the mean square of the differences, and the greatest.
fn errors(found: &[f64], truth: &[f64]) -> [f64; 2] {
    // Of what is infinite there is no difference.
    let off = || found.iter().zip(truth).map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() });
    let most = off().fold(0.0, |most: f64, one| if one <= most { most } else { one });
    [(off().map(|one| one * one).sum::<f64>() / truth.len() as f64).sqrt(), most]
}

#[test]
fn a_fused_attention_loses_little_more_than_a_split_one() {
    let Some(options) = options("comparing forms of attention") else { return };
    let options = emulator::Options { workers: 2, ..options };
    let mut faults = Vec::new();
    for case in cases() {
        let label = &case.label;
        let dtype = case.plan.buffer(case.seed).dtype;
        let inputs: Vec<_> = SEEDS.map(|seed| inputs(&case, dtype, seed)).collect();
        let done = |result: Result<_, ExecutorError>| result.unwrap_or_else(|why| panic!("{label}: {why:?}"));
        let mut reference = Reference::<f64>::new(Rounding::None);
        let truth = done(results(&mut reference, &case.plan, &inputs));
        let of = |attention: AttentionPath, deterministic: bool, split_heads: bool| {
            let options_of_plan = Options { attention, deterministic, ..plans::heads(split_heads) };
            let plan = memory::place(attention::choose(case.plan.clone(), &options_of_plan));
            let mut device = device(&options, &arch::ALL[0]);
            done(results(&mut device, &plan, &inputs))
        };
        let split = of(AttentionPath::Split, true, false);
        let forms = [("ordered", true, false), ("free", false, false), ("free, split heads", false, true)];
        for (form, deterministic, split_heads) in forms {
            let fused = of(AttentionPath::Fused, deterministic, split_heads);
            let mut line = format!("{label}, {form}:");
            for (index, name) in COMPARED.iter().enumerate() {
                let truth = &truth[index];
                let sizes = truth.iter().map(|one| one.abs()).filter(|one| one.is_finite());
                let size = sizes.fold(0.0, f64::max);
                // What is exact to its last bit may be off by that bit.
                let least = Dtype::Fp32.epsilon() * size;
                let [mean, greatest]: [f64; 2] = std::array::from_fn(|which| {
                    errors(&fused[index], truth)[which] / errors(&split[index], truth)[which].max(least)
                });
                line += &format!("  {name} {mean:.2} ({greatest:.2})");
                // Neither is within that when it is no number.
                if !(0.0..=MOST).contains(&mean) || !(0.0..=MOST_OF_ONE).contains(&greatest) {
                    let error = format!("{mean:.2} of the split form's error, {greatest:.2} of its greatest");
                    faults.push(format!("{label}, {form}: `{name}` has {error}"));
                }
            }
            eprintln!("{line}");
        }
    }
    let faults = faults.join("\n");
    assert!(faults.is_empty(), "at most {MOST} and {MOST_OF_ONE} are allowed:\n{faults}");
}
