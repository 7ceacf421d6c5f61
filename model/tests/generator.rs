//! Logits of a generator, which pads and cuts, against those of a plan that is exactly as long as what it sees.

use kernwright_model::generator::{GenerateError, Generator};
use kernwright_model::random::Random;
use kernwright_plan::executor::{Executor, MicroStep, PlanId, Values};
use kernwright_plan::passes::forward::Head;
use kernwright_plan::plan::Phase;
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_plan::shape::{Shape, parse_text};
use kernwright_plan::{Options, forward_step};

/// The context is no power of two, and above the generator's shortest plan.
const SHAPES: &[(&str, &str)] = &[
    (
        "learned positions",
        "model.vocab = 29\nmodel.context = 41\nmodel.d_model = 16\nmodel.layers = 2\nmodel.tied\n\
         model.norm = layer\nmodel.positions = learned\nmodel.biases = all\n\
         attention.heads = 2\nfeed_forward.gelu_tanh\nfeed_forward.d_ff = 24\n",
    ),
    (
        "rope, own head",
        "model.vocab = 31\nmodel.context = 43\nmodel.d_model = 16\nmodel.layers = 2\nattention.heads = 2\n\
         attention.kv_heads = 1\nattention.head_dim = 8\nattention.rope\nfeed_forward.swiglu\n\
         feed_forward.d_ff = 24\n",
    ),
];

fn put(executor: &mut Reference<f64>, plan: PlanId, name: &str, values: Values<'_>) {
    let buffer = executor.plan(plan).find(name).unwrap();
    executor.write(plan, buffer, values).unwrap();
}

/// Weights large enough for positions and all earlier tokens to matter; none is zero.
fn loaded(shape: &Shape) -> Reference<f64> {
    let mut executor = Reference::new(Rounding::None);
    let plan = executor.load(forward_step(shape, &Options::default(), 1, 1, Head::Logits(1))).unwrap();
    for parameter in shape.parameters() {
        let mut values = vec![0.0; parameter.shape.iter().product()];
        Random::stream(5, &parameter.name).normals_at(0, 0.4, &mut values);
        put(&mut executor, plan, &parameter.name, Values::Float(&parameter.pad(&values)));
    }
    executor.run_phase(plan, Phase::Prepare, MicroStep::First).unwrap();
    executor
}

/// The logits after the last of `seen`, by a plan of that very length.
fn expected(executor: &mut Reference<f64>, shape: &Shape, seen: &[i32]) -> Vec<f32> {
    let n = seen.len();
    let plan = executor.load(forward_step(shape, &Options::default(), 1, n, Head::Logits(1))).unwrap();
    put(executor, plan, "tokens", Values::Int(seen));
    put(executor, plan, "positions", Values::Int(&[i32::try_from(n - 1).unwrap()]));
    executor.run_phase(plan, Phase::Forward, MicroStep::First).unwrap();
    let logits = executor.plan(plan).find("asked_logits").unwrap();
    executor.read(plan, logits).unwrap()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().chain(b).all(|value| value.is_finite()), "{a:?} {b:?}");
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn logits_are_those_of_the_window_that_ends_with_the_last_token() {
    for (name, text) in SHAPES {
        let shape = parse_text(text).unwrap();
        let mut executor = loaded(&shape);
        let mut generator = Generator::new(&shape, &Options::default()).unwrap();
        let vocab = i32::try_from(shape.vocab).unwrap();
        let context = shape.context;
        let tokens: Vec<i32> = (0..90).map(|i| (i * i + 3 * i + 1) % vocab).collect();
        // Below, at and past the shortest plan, the context, and twice that; few are powers of two.
        for n in [1, 2, 13, 31, 32, 33, context - 1, context, context + 1, 64, 77, 90] {
            let found = generator.logits(&mut executor, &tokens[..n]).unwrap();
            let window = &tokens[n.saturating_sub(context)..n];
            let right = expected(&mut executor, &shape, window);
            let difference = largest_difference(&found, &right);
            assert!(difference < 1e-5, "{name}, {n} tokens: logits differ by {difference}");
            if window.len() > 1 {
                let other = expected(&mut executor, &shape, &window[1..]);
                let difference = largest_difference(&found, &other);
                assert!(difference > 1e-2, "{name}, {n} tokens: the first makes no difference, {difference}");
            }
        }
        let empty = generator.logits(&mut executor, &[]);
        assert!(matches!(empty, Err(GenerateError::Empty)), "{name}");
    }
}

#[test]
fn a_model_that_sees_what_follows_is_refused() {
    let shape = parse_text(&format!("{}attention.full\n", SHAPES[1].1)).unwrap();
    assert!(matches!(Generator::new(&shape, &Options::default()), Err(GenerateError::Full)));
}

#[test]
fn a_generator_told_to_look_back_less_sees_only_the_last_tokens() {
    for (name, text) in SHAPES {
        let shape = parse_text(text).unwrap();
        let mut executor = loaded(&shape);
        let tokens: Vec<i32> = (0..30).map(|i| i * 7 % 29).collect();
        let mut generator = Generator::new(&shape, &Options::default()).unwrap();
        let whole = generator.logits(&mut executor, &tokens).unwrap();
        generator.look_back(11);
        let found = generator.logits(&mut executor, &tokens).unwrap();
        let right = expected(&mut executor, &shape, &tokens[19..]);
        assert!(largest_difference(&found, &right) < 1e-5, "{name}: {found:?} {right:?}");
        assert!(largest_difference(&found, &whole) > 1e-2, "{name}: the window must matter");
    }
}
