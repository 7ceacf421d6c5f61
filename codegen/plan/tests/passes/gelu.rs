//! The gelu between two products: where they take it in, and what that saves.

use crate::{options, small};
use kernwright_plan::Options;
use kernwright_plan::arch;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::launch::{Epilogue, Gemm, Launch, Lowered};
use kernwright_plan::ops::Op;
use kernwright_plan::ops::activation::ActivationKind;
use kernwright_plan::ops::linear::Linear;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::plan::{Phase, Plan};
use kernwright_plan::shape::{Shape, presets};
use kernwright_plan::{forward_step, train_step};

const BOTH: [&str; 2] = ["gelu_in_linear", "gelu_gradient_in_linear"];

fn without(names: &[&str], options: Options) -> Options {
    Options { without: names.iter().map(|name| (*name).to_owned()).collect(), ..options }
}

fn shapes() -> impl Iterator<Item = (&'static str, Shape)> {
    presets::ALL.iter().map(|preset| (preset.name, preset.shape())).chain(small::shapes())
}

fn gpt2() -> Shape {
    presets::find("gpt2-124m").unwrap_or_else(|| panic!("no gpt2-124m")).shape()
}

/// Steps whose product takes in a gelu, steps whose product takes in a slope, and steps that are a gelu or its gradient.
fn counts(plan: &Plan) -> [usize; 3] {
    let count = |is_it: &dyn Fn(&Op) -> bool| plan.steps.iter().filter(|step| is_it(&step.op)).count();
    let slopes = plan.steps.iter().filter(|step| {
        matches!(step.op, Op::LinearBackward(_)) && step.reads.iter().any(|read| read.slot == "gelu_input")
    });
    [
        count(&|op| matches!(op, Op::Linear(Linear { gelu: true }))),
        slopes.count(),
        count(&|op| matches!(op, Op::Activation(_) | Op::ActivationBackward(_))),
    ]
}

/// All launches of a plan, and of them the products.
fn launches(plan: &Plan) -> (usize, Vec<Gemm>) {
    let all = plan.steps.iter().flat_map(|step| match step.op.lower(&plan.io(step), &arch::ALL[0]) {
        Lowered::Launches(launches) => launches,
        Lowered::NoKernel(why) => panic!("{}: {why}", step.op.name()),
    });
    let all: Vec<Launch> = all.collect();
    let products = all.iter().filter_map(|launch| match launch {
        Launch::Gemm(gemm) => Some(gemm.clone()),
        _ => None,
    });
    (all.len(), products.collect())
}

#[test]
fn products_take_in_the_gelu_of_the_tanh_form_where_the_plan_is_narrow() {
    for (name, shape) in shapes() {
        let n = shape.layers;
        let is_it = shape.feed_forward.activation == ActivationKind::GeluTanh;
        for precision in [Dtype::Fp32, Dtype::Bf16, Dtype::Fp16] {
            let taken = is_it && precision != Dtype::Fp32;
            let train =
                |names: &[&str]| counts(&train_step(&shape, &without(names, options(precision)), 2, 7));
            let place = format!("{name}, {}", precision.name());
            assert_eq!(train(&[]), if taken { [n, n, 0] } else { [0, 0, 2 * n] }, "{place}");
            assert_eq!(train(&BOTH[..1]), if taken { [0, n, n] } else { [0, 0, 2 * n] }, "{place}");
            assert_eq!(train(&BOTH[1..]), if taken { [n, 0, n] } else { [0, 0, 2 * n] }, "{place}");
            assert_eq!(train(&BOTH), [0, 0, 2 * n], "{place}");
            assert_eq!(train(&["narrow_producers"]), [0, 0, 2 * n], "{place}: nothing writes narrow results");
            let logits = forward_step(&shape, &options(precision), 2, 7, Head::Logits(2));
            assert_eq!(counts(&logits), if taken { [n, 0, 0] } else { [0, 0, n] }, "{place}");
        }
    }
}

#[test]
fn a_step_of_gpt2_loses_two_launches_and_three_passes_over_the_hidden_rows_of_each_layer() {
    let shape = gpt2();
    let (layers, rows) = (shape.layers, 8 * 512);
    let hidden = (rows * shape.feed_forward.d_ff * Dtype::Bf16.bytes()) as f64;
    let plan = |names: &[&str]| train_step(&shape, &without(names, options(Dtype::Bf16)), 8, 512);
    let [all, forward, backward, none] =
        [plan(&[]), plan(&BOTH[1..]), plan(&BOTH[..1]), plan(&BOTH)].map(|plan| {
            let (n_launches, _) = launches(&plan);
            (plan.steps.len(), n_launches, plan.cost().bytes, plan.arena_bytes)
        });
    // Forward the gelu's input is not read again; backward its output's gradient is neither written nor read, nor the input
    // twice.
    for (name, found, n_steps, n_passes) in
        [("forward", forward, 1, 1), ("backward", backward, 1, 2), ("both", all, 2, 3)]
    {
        assert_eq!(none.0 - found.0, n_steps * layers, "{name}: steps");
        assert_eq!(none.1 - found.1, n_steps * layers, "{name}: launches");
        let saved = (none.2 - found.2) / (layers as f64 * hidden);
        assert!((saved - f64::from(n_passes)).abs() < 1e-6, "{name}: {saved} passes over the hidden rows");
        assert!(found.3 <= none.3, "{name}: a peak of {} bytes, {} without", found.3, none.3);
    }
}

/// In training it lives until its slope is taken, and so does the gelu until the gradient of the weight is: no room is saved.
#[test]
fn logits_of_gpt2_need_less_memory_by_the_input_of_a_gelu() {
    let shape = gpt2();
    let plan =
        |names: &[&str]| forward_step(&shape, &without(names, options(Dtype::Bf16)), 8, 512, Head::Logits(8));
    let (with, apart) = (plan(&[]), plan(&BOTH));
    // Instead of the gelu's input, what the product reads lives beside the gelu.
    let [input, read] = [shape.feed_forward.d_ff, shape.d_model].map(|n| 8 * 512 * n * Dtype::Bf16.bytes());
    assert_eq!(apart.arena_bytes - with.arena_bytes, input - read);
}

#[test]
fn logits_need_no_input_of_a_gelu_and_training_writes_it_for_the_gradient() {
    let shape = gpt2();
    let options = options(Dtype::Bf16);
    let plan = train_step(&shape, &options, 2, 7);
    let (_, products) = launches(&plan);
    let of = |is_it: fn(&Epilogue<_>) -> bool| products.iter().filter(move |gemm| is_it(&gemm.epilogue));
    let (gelus, slopes): (Vec<&Gemm>, Vec<&Gemm>) = (
        of(|epilogue| matches!(epilogue, Epilogue::Gelu(Some(_)))).collect(),
        of(|epilogue| matches!(epilogue, Epilogue::GeluSlope(_))).collect(),
    );
    assert_eq!((gelus.len(), slopes.len()), (shape.layers, shape.layers));
    let d_ff = shape.feed_forward.d_ff;
    for gemm in gelus {
        assert!(gemm.bias.is_some() && gemm.c.is_none() && gemm.n == d_ff, "{gemm:?}");
        let [input, y] =
            [gemm.epilogue.matrix().copied(), Some(gemm.d)].map(|id| id.map(|id| plan.buffer(id)));
        let (Some(input), Some(y)) = (input, y) else { panic!("{gemm:?}") };
        assert!(input.name.ends_with(".up") && y.name.ends_with(".hidden"), "{} and {}", input.name, y.name);
        assert_eq!((input.dtype, y.dtype), (Dtype::Bf16, Dtype::Bf16));
        // The slope of each is taken backwards, from where it was written.
        let is_read = slopes.iter().any(|slope| slope.epilogue.matrix() == gemm.epilogue.matrix());
        assert!(is_read, "{}", input.name);
    }
    for gemm in slopes {
        let to = &plan.buffer(gemm.d).name;
        assert!(
            gemm.bias.is_none() && gemm.c.is_none() && gemm.n == d_ff && to.ends_with(".up"),
            "{to}: {gemm:?}"
        );
    }
    for head in [Head::Loss, Head::Logits(3)] {
        let plan = forward_step(&shape, &options, 2, 7, head);
        let (_, products) = launches(&plan);
        let n = products.iter().filter(|gemm| gemm.epilogue == Epilogue::Gelu(None)).count();
        assert_eq!(n, shape.layers, "{head:?}");
        let is_placed =
            plan.buffers.iter().any(|buffer| buffer.name.ends_with(".up") && buffer.offset.is_some());
        assert!(!is_placed, "{head:?}: what nobody reads has no room");
        let steps = &plan.steps[plan.phase(Phase::Forward)];
        assert!(steps.iter().all(|step| step.writes.iter().all(|write| write.slot != "gelu_input")));
    }
}

#[test]
fn a_product_that_no_library_does_with_a_gelu_has_no_kernel_and_says_why() {
    let mut plan = train_step(&gpt2(), &options(Dtype::Bf16), 1, 5);
    let of = |plan: &Plan, backward: bool| {
        let is_it = |op: &Op| match op {
            Op::Linear(Linear { gelu }) => *gelu && !backward,
            Op::LinearBackward(_) => backward,
            _ => false,
        };
        let has = |step: &&kernwright_plan::plan::Step| is_it(&step.op) && plan.io(step).has("gelu_input");
        let step = plan.steps.iter().find(has).unwrap_or_else(|| panic!("there is none"));
        step.op.lower(&plan.io(step), &arch::ALL[0])
    };
    assert!([false, true].iter().all(|backward| matches!(of(&plan, *backward), Lowered::Launches(_))));
    for buffer in &mut plan.buffers {
        buffer.dtype = if buffer.dtype.is_integer() { buffer.dtype } else { Dtype::Fp32 };
    }
    for backward in [false, true] {
        let Lowered::NoKernel(why) = of(&plan, backward) else { panic!("fp32 has one") };
        assert!(why.contains("of one narrow type"), "{why}");
    }
}
