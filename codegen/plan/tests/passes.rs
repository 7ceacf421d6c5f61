//! Whole plans: sound for every preset, placed tightly, and unchanged in their meaning by fusion, micro-batches and
//! narrow types.

use kernwright_plan::arch;
use kernwright_plan::buffer::Role;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, MicroStep, Values};
use kernwright_plan::launch::{Launch, Lowered};
use kernwright_plan::ops::head_loss::IGNORED;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::passes::memory;
use kernwright_plan::plan::{Phase, Plan};
use kernwright_plan::reference::Rounding;
use kernwright_plan::shape::{Shape, presets};
use kernwright_plan::{Options, forward_step, train_step};
use small::{Batch, Loaded};
use std::collections::HashSet;

mod small;

const BOTH: [Phase; 2] = [Phase::Forward, Phase::Backward];

/// Planned peak of the transient buffers over what no placement can go below.
const PEAK_OVER_FLOOR: f64 = 1.25;

fn options(precision: Dtype) -> Options {
    Options { precision: Some(precision), head_chunk: 3, ..Options::default() }
}

/// Checks a plan and returns its transient peak over the floor.
fn check_plan(name: &str, plan: &Plan) -> f64 {
    plan.check().unwrap_or_else(|error| panic!("{name}: {error}"));
    memory::check(plan).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut names = HashSet::new();
    for buffer in &plan.buffers {
        assert!(names.insert(&buffer.name), "{name}: two buffers are called `{}`", buffer.name);
    }
    let (peak, floor) = (plan.arena_bytes - plan.persistent_bytes, memory::transient_floor(plan));
    let ratio = peak as f64 / floor as f64;
    assert!(peak >= floor, "{name}: a peak of {peak} bytes is below the floor of {floor}");
    assert!(ratio <= PEAK_OVER_FLOOR, "{name}: a peak of {peak} bytes is {ratio:.3} of the floor, {floor}");
    ratio
}

#[test]
fn plans_of_every_preset_are_sound_and_placed_tightly() {
    let presets = presets::ALL.iter().map(|preset| (preset.name, preset.shape()));
    for (name, shape) in presets.chain(small::shapes()) {
        for precision in [Dtype::Fp32, Dtype::Bf16] {
            for (batch, length) in [(1, 1), (2, 7), (8, shape.context.min(1024))] {
                let name = format!("{name}, {}, {batch} x {length}", precision.name());
                let options = options(precision);
                let ratio = check_plan(&name, &train_step(&shape, &options, batch, length));
                eprintln!("{name}: peak {ratio:.3} of the floor");
                check_plan(&name, &forward_step(&shape, &options, batch, length, Head::Loss));
                check_plan(&name, &forward_step(&shape, &options, batch, length, Head::Logits(3)));
            }
        }
    }
}

/// What lies behind the limits has no kernel, and says so; a plan allocates nothing, so it may be as large as it likes.
#[test]
fn a_batch_of_any_size_lowers_without_a_panic() {
    let most = i32::MAX as usize;
    for (preset, batch, length) in [
        ("llama-1b", most / 1024, 1024),
        ("llama-1b", most / 2048, 2048),
        ("gpt2-124m", most / 1000, 1000),
        ("gpt2-124m", most, 1),
        ("gpt2-124m", most + 1, 1),
    ] {
        let name = format!("{preset}, {batch} x {length}");
        let shape = presets::find(preset).unwrap_or_else(|| panic!("there is no {preset}")).shape();
        let plan = train_step(&shape, &Options::default(), batch, length);
        let mut too_large = HashSet::new();
        for (step, arch) in plan.steps.iter().flat_map(|step| arch::ALL.iter().map(move |arch| (step, arch)))
        {
            match step.op.lower(&plan.io(step), arch) {
                Lowered::NoKernel(why) if why.contains("make the batch smaller") => {
                    too_large.insert(step.op.name());
                }
                Lowered::NoKernel(_) => {}
                Lowered::Launches(launches) => {
                    for launch in launches {
                        let Launch::Kernel { grid: [x, y, z], spec, .. } = launch else { continue };
                        let fits = x <= i32::MAX as u32 && y <= 65_535 && z <= 65_535;
                        assert!(fits, "{name}: {} has a grid of {x} x {y} x {z}", spec.name());
                    }
                }
            }
        }
        assert_eq!(too_large.contains("embedding"), batch * length > most, "{name}: {too_large:?}");
        assert!(!too_large.is_empty(), "{name}: some step is too large");
    }
}

/// Loss and all gradients after one micro-batch, at full precision.
fn loss_and_gradients(
    name: &str,
    shape: &Shape,
    options: &Options,
    rounding: Rounding,
) -> Vec<(String, Vec<f64>)> {
    let data = Batch::new(shape, 14);
    let mut loaded = Loaded::<f64>::new(name, shape, train_step(shape, options, 2, 7), rounding);
    loaded.feed(&data, data.counted());
    loaded.run(&[Phase::Prepare, Phase::Forward, Phase::Backward], MicroStep::First);
    read(&loaded, shape)
}

fn read(loaded: &Loaded<f64>, shape: &Shape) -> Vec<(String, Vec<f64>)> {
    let gradients = shape.parameters().into_iter().map(|parameter| format!("d_{}", parameter.name));
    let names = std::iter::once("loss".to_owned()).chain(gradients);
    names.map(|name| (name.clone(), loaded.get(&name))).collect()
}

/// The order of a sum may differ where zeros stand between, so the comparison is not exact.
#[test]
fn padding_changes_nothing_that_is_not_padding() {
    let mut n_padded = 0;
    for (name, shape) in small::shapes().filter(|(_, shape)| shape.padded() != *shape) {
        let with = loss_and_gradients(name, &shape, &options(Dtype::Fp32), Rounding::None);
        let plain = Options { padded: false, ..options(Dtype::Fp32) };
        let without = loss_and_gradients(name, &shape, &plain, Rounding::None);
        for ((buffer, with), (_, without)) in with.iter().zip(&without) {
            assert_eq!(with.len(), without.len(), "{name}: `{buffer}`");
            let (error, size) = distance(with, without);
            assert!(error <= 1e-13 * size, "{name}: `{buffer}` is off by {:.1e}", error / size);
        }
        n_padded += 1;
    }
    assert!(n_padded >= 3, "{n_padded} shapes have something to pad");
}

#[test]
fn a_narrow_residual_stream_is_narrow_throughout() {
    let shapes = presets::ALL.iter().map(|preset| (preset.name, preset.shape())).chain(small::shapes());
    for (name, shape) in shapes {
        let shape = Shape { residual: Dtype::Bf16, ..shape };
        let plan = train_step(&shape, &options(Dtype::Bf16), 2, 7);
        let stream = |name: &str| name.ends_with(".residual") || name.trim_start_matches("d_") == "embedding";
        let mut n_stream = 0;
        for buffer in plan.buffers.iter().filter(|buffer| stream(&buffer.name)) {
            assert_eq!(buffer.dtype, Dtype::Bf16, "{name}: `{}`", buffer.name);
            n_stream += 1;
        }
        assert!(n_stream > 2 * shape.layers, "{name}");
        for parameter in shape.parameters() {
            for buffer in [parameter.name.clone(), format!("d_{}", parameter.name)] {
                let found = plan.find(&buffer).map(|id| plan.buffer(id).dtype);
                assert_eq!(found, Some(Dtype::Fp32), "{name}: `{buffer}`");
            }
        }
        let casts = plan.steps.iter().filter(|step| step.op.name() == "cast" && step.phase != Phase::Prepare);
        for step in casts {
            let source = &plan.buffer(step.reads[0].buffer).name;
            assert!(!stream(source), "{name}: `{source}` needs no narrow copy");
        }
    }
}

#[test]
fn a_residual_inside_the_linear_changes_no_bit() {
    for (name, shape) in small::shapes() {
        let with = options(Dtype::Fp32);
        let without = Options { without: vec!["residual_in_linear".to_owned()], ..with.clone() };
        let n_steps = |options| train_step(&shape, options, 2, 7).steps.len();
        // Behind a norm or a scale there is no linear to take the addition.
        let is_direct = !shape.norm.placement.after() && shape.residual_scale == 1.0;
        let n_fused = if is_direct { 2 * shape.layers } else { 0 };
        assert_eq!(n_steps(&without) - n_steps(&with), n_fused, "{name}: each addition is fused");
        let plan = train_step(&shape, &with, 2, 7);
        assert!(plan.steps.iter().all(|step| step.op.name() != "cast"), "{name}: a sum shares its gradient");
        let fused = loss_and_gradients(name, &shape, &with, Rounding::None);
        let plain = loss_and_gradients(name, &shape, &without, Rounding::None);
        assert!(fused == plain, "{name}");
    }
}

#[test]
fn micro_batches_add_up_to_the_large_batch() {
    for (name, shape) in small::shapes() {
        let data = Batch::new(&shape, 15);
        let options = options(Dtype::Fp32);
        let mut whole = Loaded::<f64>::new(name, &shape, train_step(&shape, &options, 3, 5), Rounding::None);
        whole.feed(&data, data.counted());
        whole.run(&BOTH, MicroStep::First);
        let mut parts = Loaded::<f64>::new(name, &shape, train_step(&shape, &options, 1, 5), Rounding::None);
        // Twice, since the first micro-batch must also replace what an earlier step left.
        for at in [0, 1, 2, 0, 1, 2] {
            let rows = 5 * at..5 * at + 5;
            let part = Batch { tokens: data.tokens[rows.clone()].into(), targets: data.targets[rows].into() };
            parts.feed(&part, data.counted());
            parts.run(&BOTH, if at == 0 { MicroStep::First } else { MicroStep::Later });
        }
        for ((buffer, expected), (_, found)) in read(&whole, &shape).iter().zip(read(&parts, &shape)) {
            let (error, size) = distance(&found, expected);
            assert!(error <= 1e-13 * size, "{name}: `{buffer}` is off by {error:.2e} of {size:.2e}");
        }
    }
}

/// Root mean squares of the difference and of what is expected.
fn distance(found: &[f64], expected: &[f64]) -> (f64, f64) {
    let norm = |squares: f64| (squares / expected.len() as f64).sqrt();
    let difference = found.iter().zip(expected).map(|(a, b)| (a - b) * (a - b)).sum();
    (norm(difference), norm(expected.iter().map(|b| b * b).sum()))
}

#[test]
fn a_batch_without_targets_has_no_loss_and_no_gradient() {
    for (name, shape) in small::shapes() {
        let plan = train_step(&shape, &options(Dtype::Fp32), 2, 7);
        let mut loaded = Loaded::<f64>::new(name, &shape, plan, Rounding::None);
        let data = Batch { targets: vec![IGNORED; 14], ..Batch::new(&shape, 14) };
        loaded.feed(&data, 0);
        loaded.put("learning_rate", Values::Float(&[0.1]));
        loaded.put("step", Values::Int(&[1]));
        loaded.run(&[Phase::Forward, Phase::Backward, Phase::Update], MicroStep::First);
        for (buffer, values) in read(&loaded, &shape) {
            assert!(values.iter().all(|value| *value == 0.0), "{name}: `{buffer}` is not 0");
        }
        assert_eq!(loaded.get("gradient_norm"), [0.0], "{name}");
        for parameter in shape.parameters() {
            assert!(
                loaded.get(&parameter.name).iter().all(|p| p.is_finite()),
                "{name}: `{}`",
                parameter.name
            );
        }
    }
}

#[test]
fn operands_are_narrow_sums_are_not_and_working_copies_follow_the_weights() {
    let shapes = presets::ALL.iter().map(|preset| (preset.name, preset.shape())).chain(small::shapes());
    for (name, shape) in shapes {
        let plan = train_step(&shape, &options(Dtype::Bf16), 2, 7);
        let writes = |phase: Phase, id| {
            plan.steps[plan.phase(phase)]
                .iter()
                .any(|step| step.writes.iter().any(|write| write.buffer == id))
        };
        let mut n_copies = 0;
        for parameter in shape.parameters().iter().filter(|parameter| parameter.decays()) {
            // The embedding is read in fp32, but as a tied head it is an operand; learned positions never are.
            let is_operand = !parameter.name.starts_with("positions")
                && (shape.tied || !parameter.name.starts_with("embedding"));
            let copy = plan.find(&format!("{}.bf16", parameter.name));
            assert_eq!(copy.is_some(), is_operand, "{name}: `{}`", parameter.name);
            let Some(copy) = copy else { continue };
            assert_eq!((plan.buffer(copy).role, plan.buffer(copy).dtype), (Role::Working, Dtype::Bf16));
            assert!(
                writes(Phase::Prepare, copy) && writes(Phase::Update, copy),
                "{name}: `{}`",
                parameter.name
            );
            n_copies += 1;
        }
        let n_working = plan.buffers.iter().filter(|buffer| buffer.role == Role::Working).count();
        assert_eq!(n_working, n_copies, "{name}: only matrices have a working copy");
        for buffer in plan.buffers.iter().filter(|buffer| !buffer.dtype.is_integer()) {
            let lasts = !matches!(buffer.role, Role::Working | Role::Activation | Role::Scratch);
            let is_sum = buffer.name.ends_with(".residual") || buffer.name.ends_with("embedding");
            let wide = lasts || is_sum || buffer.name.ends_with(".rstd") || buffer.name.ends_with(".lse");
            assert!(!wide || buffer.dtype == Dtype::Fp32, "{name}: `{}` is narrow", buffer.name);
        }
        for step in &plan.steps {
            for read in step.reads.iter().filter(|read| step.op.narrow_slots().contains(&read.slot)) {
                let buffer = plan.buffer(read.buffer);
                assert_eq!(buffer.dtype, Dtype::Bf16, "{name}: {} reads `{}`", step.op.name(), buffer.name);
            }
        }
    }
}

/// One rounding to bf16 is off by at most half an epsilon of it. Behind a layer's two dozen of them the gradient as a
/// whole stays within four epsilons in the root mean square (found: 2.4), one tensor alone, whose few sums may cancel,
/// within eight (found: 3.8). Which buffers are narrow is checked by name above.
#[test]
fn a_bf16_plan_stays_near_the_exact_one() {
    for (name, shape) in small::shapes() {
        let exact = loss_and_gradients(name, &shape, &options(Dtype::Fp32), Rounding::None);
        let rounding = Rounding::Follow(Dtype::Bf16);
        let rounded = loss_and_gradients(name, &shape, &options(Dtype::Bf16), rounding);
        let epsilons = |found: &[f64], expected: &[f64]| {
            let (error, size) = distance(found, expected);
            assert!(error > 0.0, "{name}: nothing is rounded");
            error / size / Dtype::Bf16.epsilon()
        };
        let mut worst = (0.0, "");
        for ((buffer, expected), (_, found)) in exact.iter().zip(&rounded) {
            let error = epsilons(found, expected);
            worst = if error > worst.0 { (error, buffer.as_str()) } else { worst };
        }
        // The loss comes first.
        let all = |tensors: &[(String, Vec<f64>)]| {
            tensors[1..].iter().flat_map(|(_, t)| t.clone()).collect::<Vec<_>>()
        };
        let whole = epsilons(&all(&rounded), &all(&exact));
        let (loss, exact_loss) = (rounded[0].1[0], exact[0].1[0]);
        eprintln!(
            "{name}: off by {whole:.2} epsilons of bf16, `{}` by {:.2}; loss {loss:.5}, exactly {exact_loss:.5}",
            worst.1, worst.0
        );
        assert!(whole <= 4.0, "{name}: the gradient is off by {whole:.2} epsilons");
        assert!(worst.0 <= 8.0, "{name}: `{}` is off by {:.2} epsilons", worst.1, worst.0);
        assert!(epsilons(&rounded[0].1, &exact[0].1) <= 1.0, "{name}: loss {loss}, exactly {exact_loss}");
    }
}

#[test]
fn an_update_is_adamw_on_clipped_gradients() {
    let (rate, clip) = (0.03_f32, 0.05_f32);
    for (name, shape) in small::shapes() {
        let options = Options { clip: Some(clip), ..options(Dtype::Bf16) };
        let plan = train_step(&shape, &options, 2, 7);
        let mut loaded = Loaded::<f64>::new(name, &shape, plan, Rounding::None);
        let data = Batch::new(&shape, 14);
        loaded.feed(&data, data.counted());
        loaded.put("learning_rate", Values::Float(&[rate]));
        loaded.run(&[Phase::Prepare], MicroStep::First);
        let (b1, b2) = (f64::from(options.adamw.beta1), f64::from(options.adamw.beta2));
        let mut moments = vec![(0.0, 0.0); shape.n_parameters()];
        for step in 1..=3 {
            loaded.put("step", Values::Int(&[step]));
            let before: Vec<f64> = shape.parameters().iter().flat_map(|p| loaded.get(&p.name)).collect();
            loaded.run(&[Phase::Forward, Phase::Backward, Phase::Update], MicroStep::First);
            let gradients = shape.parameters().into_iter().map(|p| loaded.get(&format!("d_{}", p.name)));
            let gradient: Vec<f64> = gradients.flatten().collect();
            let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
            assert!(norm > f64::from(clip), "{name}: the test is to clip");
            assert!((loaded.get("gradient_norm")[0] / norm - 1.0).abs() < 1e-13, "{name}");
            let factor = f64::from(clip) / (norm + f64::from(1e-6_f32));
            let mut at = 0;
            for parameter in shape.parameters() {
                let decay =
                    if parameter.shape.len() > 1 { f64::from(options.adamw.weight_decay) } else { 0.0 };
                for (index, found) in loaded.get(&parameter.name).into_iter().enumerate() {
                    let ((m, v), g) = (moments[at], factor * gradient[at]);
                    let (m, v) = (b1 * m + (1.0 - b1) * g, b2 * v + (1.0 - b2) * g * g);
                    let (fair_m, fair_v) = (m / (1.0 - b1.powi(step)), v / (1.0 - b2.powi(step)));
                    let direction = fair_m / (fair_v.sqrt() + f64::from(options.adamw.epsilon));
                    let expected = before[at] - f64::from(rate) * (direction + decay * before[at]);
                    let buffer = &parameter.name;
                    assert!(
                        (found - expected).abs() <= 1e-12,
                        "{name}: `{buffer}` at {index} after step {step}: found {found}, expected {expected}"
                    );
                    moments[at] = (m, v);
                    at += 1;
                }
                if loaded.executor.plan(loaded.plan).find(&format!("{}.bf16", parameter.name)).is_some() {
                    let copy = loaded.get(&format!("{}.bf16", parameter.name));
                    assert!(copy == loaded.get(&parameter.name), "{name}: `{}` is stale", parameter.name);
                }
            }
        }
    }
}

#[test]
fn one_batch_is_learnt_by_heart() {
    for (name, shape) in small::shapes() {
        let plan = train_step(&shape, &options(Dtype::Fp32), 2, 6);
        let mut loaded = Loaded::<f32>::new(name, &shape, plan, Rounding::None);
        // Targets that a causal model can tell from what it saw.
        let tokens: Vec<i32> = (0..12).map(|i| (i * 5 + i / 6) % shape.vocab as i32).collect();
        let targets = tokens.iter().map(|token| (token * 3 + 1) % shape.vocab as i32).collect();
        loaded.feed(&Batch { tokens, targets }, 12);
        loaded.put("learning_rate", Values::Float(&[0.01]));
        let mut losses = Vec::new();
        for step in 1..=120 {
            loaded.put("step", Values::Int(&[step]));
            loaded.run(&[Phase::Forward, Phase::Backward, Phase::Update], MicroStep::First);
            losses.push(loaded.get("loss")[0]);
        }
        eprintln!("{name}: loss {:.3} to {:.4}", losses[0], losses[119]);
        assert!(losses[119] < 0.05, "{name}: loss {:.3} to {:.4}", losses[0], losses[119]);
    }
}

#[test]
fn plans_of_other_sizes_share_weights_and_nothing_else() {
    for (name, shape) in small::shapes() {
        let options = options(Dtype::Fp32);
        let mut train = Loaded::<f64>::new(name, &shape, train_step(&shape, &options, 2, 7), Rounding::None);
        let data = Batch::new(&shape, 14);
        train.feed(&data, data.counted());
        let plan = forward_step(&shape, &options, 1, 3, Head::Logits(2));
        let mut alone = Loaded::<f64>::new(name, &shape, plan.clone(), Rounding::None);
        let mut both = train;
        let of_training = both.plan;
        both.plan = both.executor.load(plan).unwrap_or_else(|error| panic!("{name}: {error}"));
        for loaded in [&mut alone, &mut both] {
            loaded.put("tokens", Values::Int(&[1, 0, 3]));
            loaded.put("positions", Values::Int(&[2, 0]));
            loaded.run(&[Phase::Prepare, Phase::Forward], MicroStep::First);
        }
        assert!(alone.get("asked_logits") == both.get("asked_logits"), "{name}");
        both.plan = of_training;
        assert_eq!(both.get("tokens").len(), 14, "{name}: the other plan's tokens are as they were");
    }
}
