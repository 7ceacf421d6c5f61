//! How attention is to be computed: the form follows type and options, scratch is bounded and lives with its step.

use crate::{options, small};
use kernwright_plan::Options;
use kernwright_plan::arch;
use kernwright_plan::buffer::Role;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::launch::{Launch, Lowered};
use kernwright_plan::ops::Op;
use kernwright_plan::ops::attention::{BackwardForm, Form, score_stride};
use kernwright_plan::options::AttentionPath;
use kernwright_plan::passes::{attention, memory, split_heads};
use kernwright_plan::plan::{Plan, Step};
use kernwright_plan::shape::{Shape, presets};
use kernwright_plan::train_step;

/// Bytes of fp32 scores that may exist at once, where one sequence does not need more.
const SCORES: usize = 256 << 20;

fn shapes() -> impl Iterator<Item = (&'static str, Shape)> {
    let presets = presets::ALL.iter().map(|preset| (preset.name, preset.shape()));
    presets.map(|(name, shape)| (name, Shape { layers: shape.layers.min(2), ..shape })).chain(small::shapes())
}

/// Every precision and every way, on a GPU.
fn ways() -> Vec<Options> {
    let mut all = Vec::new();
    for precision in [Dtype::Fp32, Dtype::Bf16, Dtype::Fp16] {
        for path in [AttentionPath::Fused, AttentionPath::Split] {
            for deterministic in [true, false] {
                let plain = Options { attention: path, deterministic, ..options(precision) };
                if path == AttentionPath::Fused && precision != Dtype::Fp32 {
                    all.extend(split_heads::both(&plain));
                    all.push(Options { in_turns: true, ..plain.clone() });
                }
                all.push(plain);
            }
        }
    }
    all
}

/// The scratch of a step: slot, rows and columns, type, bytes.
fn scratch(plan: &Plan, step: &Step) -> Vec<(&'static str, (usize, usize), Dtype, usize)> {
    let writes = step.writes.iter().map(|write| (write.slot, plan.buffer(write.buffer)));
    let scratch = writes.filter(|(_, buffer)| buffer.role == Role::Scratch);
    scratch.map(|(slot, of)| (slot, (of.rows(), of.columns()), of.dtype, of.bytes())).collect()
}

fn is_attention(step: &Step) -> bool {
    matches!(step.op, Op::Attention(_) | Op::AttentionBackward(_))
}

#[test]
fn the_form_follows_type_and_options_and_scratch_follows_the_form() {
    for (name, shape) in shapes() {
        for options in ways() {
            let precision = options.precision.unwrap_or(Dtype::Fp32);
            let (batch, length) = (5, 137.min(shape.context));
            let plan = train_step(&shape, &options, batch, length);
            let is_split = precision == Dtype::Fp32 || options.attention == AttentionPath::Split;
            for step in plan.steps.iter().filter(|step| is_attention(step)) {
                let place = format!("{name}, {options:?}: {}", step.op.name());
                let mut expected = Vec::new();
                let add = |all: &mut Vec<_>, slot, rows, columns, dtype: Dtype| {
                    all.push((slot, (rows, columns), dtype, rows * columns * dtype.bytes()));
                };
                let heads = match &step.op {
                    Op::Attention(op) => op.heads,
                    Op::AttentionBackward(op) => op.attention.heads,
                    _ => 0,
                };
                let (rows, stride) = (batch * heads * length, score_stride(length));
                match &step.op {
                    Op::Attention(op) if is_split => {
                        assert_eq!(op.form, Form::Split { sequences: batch }, "{place}");
                        add(&mut expected, "scores", rows, stride, Dtype::Fp32);
                        if precision != Dtype::Fp32 {
                            add(&mut expected, "probabilities", rows, stride, precision);
                        }
                    }
                    Op::AttentionBackward(op) if is_split => {
                        assert_eq!(op.form, BackwardForm::Split { sequences: batch }, "{place}");
                        add(&mut expected, "scores", rows, stride, Dtype::Fp32);
                        add(&mut expected, "d_scores", rows, stride, Dtype::Fp32);
                        if precision != Dtype::Fp32 {
                            add(&mut expected, "probabilities", rows, stride, precision);
                            add(&mut expected, "d_scores_narrow", rows, stride, precision);
                        }
                    }
                    Op::Attention(op) => assert_eq!(op.form, Form::Fused, "{place}"),
                    Op::AttentionBackward(op) => {
                        add(&mut expected, "delta", batch * heads, length, Dtype::Fp32);
                        let form =
                            if options.deterministic { BackwardForm::Ordered } else { BackwardForm::Free };
                        assert_eq!(op.form, form, "{place}");
                        let of = &op.attention;
                        // What a GPU that takes turns has one pass for.
                        let in_one_pass = of.head_dim <= if of.softcap.is_some() { 112 } else { 128 };
                        if if options.in_turns { in_one_pass } else { !options.deterministic } {
                            // Whole fragments of 16 rows of each sequence and head, and a count for each tile of queries.
                            let turns =
                                if options.deterministic { batch * heads * length.div_ceil(64) } else { 0 };
                            let rows = batch * heads * length.next_multiple_of(16);
                            let rows = rows + turns.div_ceil(op.attention.head_dim);
                            add(&mut expected, "d_q_sum", rows, op.attention.head_dim, Dtype::Fp32);
                        }
                        let is_always = options.asks_for("always_split_heads") && of.heads > of.kv_heads;
                        let pays = split_heads::pays(of, batch, &options);
                        assert!(pays || !is_always, "{place}");
                        assert!(!pays || options.runs("split_heads"), "{place}");
                        if pays {
                            for slot in ["d_k_shares", "d_v_shares"] {
                                add(&mut expected, slot, batch * length, heads * of.head_dim, Dtype::Fp32);
                            }
                        }
                    }
                    _ => {}
                }
                assert_eq!(scratch(&plan, step), expected, "{place}");
            }
        }
    }
}

#[test]
fn choosing_again_changes_nothing_and_the_last_options_count() {
    for (name, shape) in shapes() {
        for first in ways() {
            let plan = train_step(&shape, &first, 2, 7);
            let again = memory::place(attention::choose(plan.clone(), &first));
            assert!(plan == again, "{name}, {first:?}");
            // Options that leave types as they are: a plan made for one way and changed to another is that of the other.
            for deterministic in [true, false] {
                let second = Options { deterministic, attention: AttentionPath::Split, ..first.clone() };
                let changed = memory::place(attention::choose(plan.clone(), &second));
                let other = train_step(&shape, &second, 2, 7);
                changed.check().unwrap_or_else(|error| panic!("{name}, {first:?} to {second:?}: {error}"));
                assert_eq!(changed.arena_bytes, other.arena_bytes, "{name}, {first:?} to {second:?}");
                for (one, other_step) in changed.steps.iter().zip(&other.steps) {
                    assert_eq!(one.op, other_step.op, "{name}, {first:?} to {second:?}");
                    assert_eq!(scratch(&changed, one), scratch(&other, other_step));
                }
            }
        }
    }
}

#[test]
fn a_plan_for_the_host_has_no_scratch_for_attention() {
    for (name, shape) in shapes() {
        let plan = train_step(&shape, &Options::host(), 2, 7);
        for step in plan.steps.iter().filter(|step| is_attention(step)) {
            assert_eq!(scratch(&plan, step), [], "{name}");
        }
    }
}

/// Scores of all sequences would not fit: 64 sequences of 1024 tokens have 3 GiB of them in each layer of `seed-102m`.
#[test]
fn scores_exist_for_a_chunk_of_sequences_only() {
    for (name, shape) in shapes() {
        for options in ways() {
            let (batch, length) = (64, shape.context.min(1024));
            let plan = train_step(&shape, &options, batch, length);
            for step in plan.steps.iter().filter(|step| is_attention(step)) {
                let Some((_, (rows, stride), ..)) =
                    scratch(&plan, step).into_iter().find(|(slot, ..)| *slot == "scores")
                else {
                    continue;
                };
                let (sequences, heads) = match &step.op {
                    Op::Attention(op) => (op.form, op.heads),
                    Op::AttentionBackward(op) => match op.form {
                        BackwardForm::Split { sequences } => (Form::Split { sequences }, op.attention.heads),
                        _ => continue,
                    },
                    _ => continue,
                };
                let Form::Split { sequences } = sequences else { continue };
                assert_eq!(rows, sequences * heads * length, "{name}");
                let bytes = |sequences: usize| 4 * sequences * heads * length * stride;
                assert!(sequences == 1 || bytes(sequences) <= SCORES, "{name}: {sequences} sequences");
                assert!(sequences == batch || bytes(sequences + 1) > SCORES, "{name}: {sequences} sequences");
                let Lowered::Launches(launches) = step.op.lower(&plan.io(step), &arch::ALL[0]) else {
                    panic!("{name}: {} has no launches", step.op.name());
                };
                let n_kernels = launches.iter().filter(|one| matches!(one, Launch::Kernel { .. })).count();
                assert_eq!(n_kernels, batch.div_ceil(sequences), "{name}: one softmax per chunk");
            }
        }
    }
}

/// The plan without what attention asked for.
fn bare(plan: &Plan) -> Plan {
    let mut bare = plan.clone();
    for step in bare.steps.iter_mut().filter(|step| is_attention(step)) {
        step.writes.retain(|write| plan.buffer(write.buffer).role != Role::Scratch);
    }
    memory::place(bare)
}

#[test]
fn memory_grows_by_the_scratch_of_one_step_at_most() {
    for preset in presets::ALL {
        let shape = preset.shape();
        for options in ways() {
            let plan = train_step(&shape, &options, 8, shape.context.min(1024));
            let bare = bare(&plan);
            let of_step = |step: &Step| -> usize {
                let sizes = scratch(&plan, step);
                sizes.iter().map(|(.., bytes)| bytes.next_multiple_of(memory::ALIGNMENT)).sum()
            };
            let most = plan.steps.iter().filter(|step| is_attention(step)).map(of_step).max().unwrap_or(0);
            let grown = plan.arena_bytes.saturating_sub(bare.arena_bytes);
            let place = format!("{}, {options:?}", preset.name);
            assert_eq!(plan.persistent_bytes, bare.persistent_bytes, "{place}");
            assert!(grown <= most, "{place}: {grown} bytes for a scratch of {most}");
            if options.precision == Some(Dtype::Bf16) {
                eprintln!(
                    "{}, {:?}, deterministic {}: {:.2} GiB, {:.2} MiB more than without scratch",
                    preset.name,
                    options.attention,
                    options.deterministic,
                    plan.arena_bytes as f64 / (1_u64 << 30) as f64,
                    grown as f64 / (1 << 20) as f64
                );
            }
        }
    }
}

#[test]
fn scores_in_memory_cost_bytes_and_products_over_all_pairs() {
    for (name, shape) in shapes() {
        let (batch, length) = (3, 57.min(shape.context));
        let [fused, split] = [AttentionPath::Fused, AttentionPath::Split].map(|attention| {
            let [_, together] = split_heads::both(&Options { attention, ..options(Dtype::Bf16) });
            train_step(&shape, &together, batch, length)
        });
        for (step, other) in split.steps.iter().zip(&fused.steps).filter(|(step, _)| is_attention(step)) {
            let (op, backward) = match &step.op {
                Op::Attention(op) => (op, false),
                Op::AttentionBackward(op) => (&op.attention, true),
                _ => continue,
            };
            let (cost, of_fused) = (step.op.cost(&split.io(step)), other.op.cost(&fused.io(other)));
            let pairs = (batch * op.heads * length * length) as f64;
            // fp32 scores in and out, bf16 probabilities in and out; backward both and their gradients, the latter read twice.
            let per_pair = if backward { 26.0 } else { 12.0 };
            assert_eq!(cost.bytes - of_fused.bytes, per_pair * pairs, "{name}");
            let products = if backward { 5.0 } else { 2.0 };
            assert_eq!(cost.tensor_flops, products * 2.0 * pairs * op.head_dim as f64, "{name}");
            assert_eq!(cost.vector_flops, of_fused.vector_flops, "{name}");
            assert!(
                cost.tensor_flops > of_fused.tensor_flops || op.window.right.is_none(),
                "{name}: the mask saves nothing"
            );
        }
    }
}

#[test]
fn sums_that_blocks_share_cost_the_bytes_that_pass_through_memory() {
    for (name, shape) in shapes() {
        let (batch, length) = (3, 57.min(shape.context));
        for deterministic in [true, false] {
            let [split, together] = split_heads::both(&Options { deterministic, ..options(Dtype::Bf16) })
                .map(|options| train_step(&shape, &options, batch, length));
            let [_, together_ordered] = split_heads::both(&options(Dtype::Bf16));
            let ordered = train_step(&shape, &together_ordered, batch, length);
            for (index, step) in split.steps.iter().enumerate() {
                let Op::AttentionBackward(backward) = &step.op else { continue };
                let op = &backward.attention;
                let bytes = |plan: &Plan| plan.steps[index].op.cost(&plan.io(&plan.steps[index])).bytes;
                // In fp32, of every query head: shares of keys and of values, written and read.
                let shares = 2.0 * 2.0 * 4.0 * (batch * length * op.heads * op.head_dim) as f64;
                let shares = if op.heads > op.kv_heads { shares } else { 0.0 };
                assert_eq!(bytes(&split) - bytes(&together), shares, "{name}");
                // Of whole fragments of queries: set to zero, added to, read.
                let sums = 4.0 * 4.0 * (batch * length.next_multiple_of(16) * op.heads * op.head_dim) as f64;
                let sums = if deterministic { 0.0 } else { sums };
                assert_eq!(bytes(&together) - bytes(&ordered), sums, "{name}");
            }
        }
    }
}

/// Sums over few rows are set to zero by a kernel that runs anyway, and shares are added up by one that rounds anyway.
#[test]
fn a_gradient_takes_three_launches_or_four_where_it_is_ordered_and_split() {
    for (name, shape) in shapes() {
        for (deterministic, split) in [(true, true), (true, false), (false, true), (false, false)] {
            let [always, never] = split_heads::both(&Options { deterministic, ..options(Dtype::Bf16) });
            let options = if split { always } else { never };
            let plan = train_step(&shape, &options, 3, 7);
            for step in &plan.steps {
                let Op::AttentionBackward(op) = &step.op else { continue };
                let Lowered::Launches(launches) = step.op.lower(&plan.io(step), &arch::ALL[0]) else {
                    panic!("{name}: {} has no launches", step.op.name());
                };
                let templates = launches.iter().map(|launch| match launch {
                    Launch::Kernel { spec, .. } => spec.template,
                    other => panic!("{name}: {other:?}"),
                });
                let templates: Vec<_> =
                    templates.map(|path| path.trim_start_matches("attention/backward_")).collect();
                let is_split = split && op.attention.heads > op.attention.kv_heads;
                let expected: &[&str] = match (deterministic, is_split) {
                    (false, _) => &["delta", "keys", "round"],
                    (true, true) => &["delta", "keys", "round", "queries"],
                    (true, false) => &["delta", "keys", "queries"],
                };
                assert_eq!(templates, expected, "{name}, {options:?}");
            }
        }
    }
}
