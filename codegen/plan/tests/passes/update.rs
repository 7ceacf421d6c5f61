//! The optimizer's step, and many of them.

use crate::{options, small, small::Batch, small::Loaded};
use kernwright_plan::Options;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::Executor;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::executor::Values;
use kernwright_plan::plan::Phase;
use kernwright_plan::reference::Rounding;
use kernwright_plan::train_step;

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
