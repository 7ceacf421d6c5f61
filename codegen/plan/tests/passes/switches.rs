//! Passes that can be left out, and forms that can be asked for: what they change in a plan, and that its meaning stays.

use crate::{loss_and_gradients, options, small};
use kernwright_plan::Options;
use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::forward_step;
use kernwright_plan::ops::Op;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::passes::{ABLATIONS, SWITCHES};
use kernwright_plan::plan::{Mode, Phase, Plan, Step};
use kernwright_plan::reference::Rounding;
use kernwright_plan::shape::{Parallel, Shape, presets};
use kernwright_plan::train_step;

fn without(name: &str, options: Options) -> Options {
    Options { without: vec![name.to_owned()], ..options }
}

fn with(name: &str, options: Options) -> Options {
    Options { with: vec![name.to_owned()], ..options }
}

fn shapes() -> impl Iterator<Item = (&'static str, Shape)> {
    presets::ALL.iter().map(|preset| (preset.name, preset.shape())).chain(small::shapes())
}

/// Copies to another type that are made in every step.
fn casts(plan: &Plan) -> Vec<&Step> {
    let steps = plan.steps.iter().filter(|step| step.phase != Phase::Prepare);
    steps.filter(|step| matches!(step.op, Op::Cast(_))).collect()
}

fn writes(plan: &Plan, step: &Step, base: BufferId) -> bool {
    step.writes.iter().any(|write| plan.base(write.buffer).0 == base)
}

#[test]
fn no_switch_or_form_changes_a_bit_of_an_exact_step() {
    for (name, shape) in small::shapes() {
        for precision in [Dtype::Fp32, Dtype::Bf16] {
            let plain = loss_and_gradients(name, &shape, &options(precision), Rounding::None);
            let left_out = SWITCHES.iter().map(|(switch, _)| (switch, without(switch, options(precision))));
            let asked = ABLATIONS.iter().map(|(form, _)| (form, with(form, options(precision))));
            for (switch, options) in left_out.chain(asked) {
                let other = loss_and_gradients(name, &shape, &options, Rounding::None);
                assert!(other == plain, "{name}, {}: `{switch}`", precision.name());
            }
        }
    }
}

#[test]
fn plans_are_sound_whatever_is_left_out_or_asked_for() {
    for (name, shape) in shapes() {
        let shape = Shape { layers: shape.layers.min(2), ..shape };
        for precision in [Dtype::Fp32, Dtype::Bf16, Dtype::Fp16] {
            let left_out = SWITCHES.iter().map(|(switch, _)| without(switch, options(precision)));
            let asked = ABLATIONS.iter().map(|(form, _)| with(form, options(precision)));
            for options in left_out.chain(asked) {
                let heads = [Head::Loss, Head::Logits(3)];
                let forward = heads.map(|head| forward_step(&shape, &options, 2, 7, head));
                for plan in [train_step(&shape, &options, 2, 7)].iter().chain(&forward) {
                    plan.check().unwrap_or_else(|error| panic!("{name}, {options:?}: {error}"));
                }
            }
        }
    }
}

/// Some sums are copied by a cast: the gradient of a norm that serves both halves of a block, to which two products add, and a
/// stream that products read, not norms.
#[test]
fn no_step_only_casts_a_gradient_that_a_norm_makes() {
    for (name, shape) in shapes() {
        let plan = train_step(&shape, &options(Dtype::Bf16), 2, 7);
        let apart = train_step(&shape, &without("narrow_gradient", options(Dtype::Bf16)), 2, 7);
        let has_narrow = |plan: &Plan| plan.steps.iter().filter(|step| plan.io(step).has("narrow")).count();
        assert_eq!(has_narrow(&apart), 0, "{name}");
        let is_read_by_norms = shape.norm.placement.before() && shape.parallel != Parallel::OneNorm;
        if is_read_by_norms && shape.residual_scale == 1.0 {
            assert!(casts(&plan).is_empty(), "{name}: {}", plan.dump());
            assert!(has_narrow(&plan) >= shape.layers, "{name}");
        }
        assert_eq!(casts(&apart).len(), casts(&plan).len() + has_narrow(&plan), "{name}");
        let [less, more] = [&plan, &apart].map(|plan| plan.cost().bytes);
        assert_eq!(less < more, has_narrow(&plan) > 0, "{name}: {less} and {more} bytes");
    }
}

#[test]
fn a_norm_copies_the_residual_only_where_it_is_asked_to() {
    for (name, shape) in shapes() {
        let copies = |plan: &Plan| plan.steps.iter().filter(|step| plan.io(step).has("copy")).count();
        let plan = train_step(&shape, &options(Dtype::Bf16), 2, 7);
        let copied = train_step(&shape, &with("residual_copy", options(Dtype::Bf16)), 2, 7);
        let adds = |step: &&Step| {
            matches!(step.op, Op::Linear(_)) && step.writes.iter().any(|write| write.mode == Mode::Accumulate)
        };
        let n_adding = copied.steps.iter().filter(adds).count();
        assert_eq!((copies(&plan), copies(&copied)), (0, n_adding), "{name}");
        let is_direct = !shape.norm.placement.after() && shape.residual_scale == 1.0;
        if is_direct && shape.parallel == Parallel::No {
            assert_eq!(n_adding, 2 * shape.layers, "{name}: each addition is one in place");
        }
    }
}

#[test]
fn chunks_of_logits_are_few_and_equal_and_follow_the_option() {
    let chunk = |shape: &Shape, options: &Options, batch: usize| {
        let plan = train_step(shape, options, batch, 1024);
        let found = plan.steps.iter().find_map(|step| match &step.op {
            Op::HeadLoss(op) => Some(op.chunk),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("a step without a loss"))
    };
    let preset = |name| presets::find(name).unwrap_or_else(|| panic!("no {name}")).shape();
    let free = Options::default();
    for (name, batch, rows) in [
        ("seed-102m", 32, 8192),
        ("seed-102m", 4, 4096),
        ("seed-102m", 9, 4608),
        ("gemma-2-2b", 2, 1024),
        ("tiny", 3, 3072),
    ] {
        assert_eq!(chunk(&preset(name), &free, batch), rows, "{name}, batch {batch}");
    }
    let asked = Options { head_chunk: Some(77), ..free };
    assert_eq!(chunk(&preset("seed-102m"), &asked, 4), 77);
    assert_eq!(chunk(&preset("seed-102m"), &Options::host(), 4), 512, "caches of a host are small");
}

/// What the whole step may take: 0.85 of what its peer does, 14.4 GiB.
#[test]
fn the_102m_step_of_batch_32_has_room_for_its_logits() {
    let preset = presets::find("seed-102m").unwrap_or_else(|| panic!("no seed-102m"));
    let shape = Shape { residual: Dtype::Bf16, ..preset.shape() };
    let plan = train_step(&shape, &Options::default(), 32, 1024);
    let gib = plan.arena_bytes as f64 / f64::from(1 << 30);
    assert!(gib <= 0.85 * 14.4, "{gib:.2} GiB");
}

#[test]
fn without_the_rule_of_the_first_write_each_gradient_is_set_to_zero_once() {
    for (name, shape) in shapes() {
        let plan = train_step(&shape, &without("first_write_overwrites", options(Dtype::Bf16)), 2, 7);
        let zeros: Vec<_> = plan.steps.iter().filter(|step| matches!(step.op, Op::Zero(_))).collect();
        assert_eq!(zeros.len(), shape.parameters().len(), "{name}");
        for step in plan.steps.iter().filter(|step| !matches!(step.op, Op::Zero(_))) {
            for write in &step.writes {
                let buffer = plan.buffer(plan.base(write.buffer).0);
                let adds = buffer.role != Role::Gradient || write.mode == Mode::Accumulate;
                assert!(adds, "{name}: {} replaces `{}`", step.op.name(), buffer.name);
            }
        }
    }
}

#[test]
fn without_narrow_producers_products_read_casts() {
    for (name, shape) in shapes() {
        let plan = train_step(&shape, &without("narrow_producers", options(Dtype::Bf16)), 2, 7);
        let attends = |base| {
            let mut makers = plan.steps.iter().filter(|step| writes(&plan, step, base));
            makers.any(|step| matches!(step.op, Op::Attention(_) | Op::AttentionBackward(_)))
        };
        let products =
            plan.steps.iter().filter(|step| matches!(step.op, Op::Linear(_) | Op::LinearBackward(_)));
        for (step, read) in products.flat_map(|step| step.reads.iter().map(move |read| (step, read))) {
            let base = plan.base(read.buffer).0;
            if !step.op.narrow_slots().contains(&read.slot) || attends(base) {
                continue;
            }
            assert_eq!(plan.buffer(base).dtype, Dtype::Bf16, "{name}: {}", step.op.name());
            for maker in plan.steps.iter().filter(|step| writes(&plan, step, base)) {
                let copies = matches!(maker.op, Op::Cast(_) | Op::AdamW(_)) || plan.io(maker).has("narrow");
                assert!(copies, "{name}: {} writes `{}`", maker.op.name(), plan.buffer(base).name);
            }
        }
        let direct = train_step(&shape, &options(Dtype::Bf16), 2, 7);
        assert!(casts(&plan).len() > casts(&direct).len() + 4 * shape.layers, "{name}");
    }
}

#[test]
fn partial_sums_of_norms_are_as_many_as_multiprocessors_work_on() {
    let preset = presets::find("seed-102m").unwrap_or_else(|| panic!("no seed-102m"));
    for (multiprocessors, batch, expected) in
        [(None, 1, 128), (Some(132), 1, 132), (Some(132), 2, 132), (Some(7), 3, 7)]
    {
        let options = Options { multiprocessors, ..Options::default() };
        let plan = train_step(&preset.shape(), &options, batch, 200);
        let norms = plan.steps.iter().filter(|step| matches!(step.op, Op::NormBackward(_)));
        let found: Vec<_> = norms.map(|step| plan.io(step).buffer("partials").shape[0]).collect();
        assert_eq!(found, vec![expected; 33], "{multiprocessors:?}");
    }
    let options = Options { multiprocessors: Some(132), ..options(Dtype::Bf16) };
    for (name, shape) in small::shapes() {
        let plan = train_step(&shape, &options, 2, 7);
        plan.check().unwrap_or_else(|error| panic!("{name}: {error}"));
        for step in plan.steps.iter().filter(|step| matches!(step.op, Op::NormBackward(_))) {
            let io = plan.io(step);
            let has_too_many = io.has("partials") && io.buffer("partials").shape[0] > io.buffer("rstd").len();
            assert!(!has_too_many, "{name}: more sums than vectors");
        }
    }
}
