//! Tokens per second of a training step of the `tiny` preset, and where the time goes. Run by hand:
//! `cargo test --release -p kernwright-runtime --test speed -- --ignored --nocapture`, with THREADS and BATCH.
#![allow(clippy::print_stdout)]

use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, MicroStep, Values};
use kernwright_plan::options::Options;
use kernwright_plan::plan::Phase;
use kernwright_plan::shape::presets;
use kernwright_plan::train_step;
use kernwright_runtime::Cpu;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const LENGTH: usize = 256;
const ROUNDS: usize = 30;

fn setting(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
#[ignore = "takes a quiet machine"]
fn tokens_per_second_of_the_tiny_preset() {
    let (threads, batch) = (setting("THREADS", 2), setting("BATCH", 8));
    let shape = presets::find("tiny").unwrap().shape();
    let options = Options { precision: Some(Dtype::Fp32), ..Options::default() };
    let mut cpu = Cpu::new(Some(threads)).unwrap();
    let id = cpu.load(train_step(&shape, &options, batch, LENGTH)).unwrap();
    let plan = cpu.plan(id).clone();
    for parameter in shape.parameters() {
        let n: usize = parameter.shape.iter().product();
        let centre = if parameter.decays() { 0.0 } else { 1.0 };
        let values: Vec<f32> =
            (0..n).map(|i| centre + ((i * 7919 % 1009) as f32 / 504.5 - 1.0) * 0.03).collect();
        cpu.write(id, plan.find(&parameter.name).unwrap(), Values::Float(&parameter.pad(&values))).unwrap();
    }
    let rows = batch * LENGTH;
    let tokens: Vec<i32> = (0..rows).map(|i| ((i * i + 31 * i) % 256) as i32).collect();
    let mut order: Vec<i32> = (0..rows as i32).collect();
    order.sort_by_key(|position| tokens[*position as usize]);
    for (name, values) in [("tokens", &tokens), ("targets", &tokens), ("token_order", &order)] {
        cpu.write(id, plan.find(name).unwrap(), Values::Int(values)).unwrap();
    }
    for (name, value) in [("inverse_count", 1.0 / rows as f32), ("learning_rate", 1e-4)] {
        cpu.write(id, plan.find(name).unwrap(), Values::Float(&[value])).unwrap();
    }
    cpu.write(id, plan.find("step").unwrap(), Values::Int(&[1])).unwrap();

    let mut rounds: Vec<Duration> = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for phase in [Phase::Forward, Phase::Backward, Phase::Update] {
            cpu.run_phase(id, phase, MicroStep::First).unwrap();
        }
        rounds.push(start.elapsed());
    }
    let mut steps = vec![Duration::MAX; plan.steps.len()];
    for _ in 0..ROUNDS {
        for (index, least) in steps.iter_mut().enumerate() {
            let start = Instant::now();
            cpu.run(id, index..index + 1, MicroStep::First).unwrap();
            *least = start.elapsed().min(*least);
        }
    }
    let mut ops: BTreeMap<&str, (Duration, f64)> = BTreeMap::new();
    for (step, time) in plan.steps.iter().zip(&steps) {
        let entry = ops.entry(step.op.name()).or_default();
        entry.0 += *time;
        entry.1 += step.op.cost(&plan.io(step)).tensor_flops;
    }
    rounds.sort();
    let (best, median) = (rounds[0].as_secs_f64(), rounds[ROUNDS / 2].as_secs_f64());
    let flops = plan.cost().tensor_flops;
    println!(
        "{threads} threads, batch {batch}: {:.0} tokens/s at the median, {:.0} at best, {:.0} GFLOP/s",
        rows as f64 / median,
        rows as f64 / best,
        flops / median / 1e9
    );
    let total: Duration = steps.iter().sum();
    let mut ops: Vec<_> = ops.into_iter().collect();
    ops.sort_by_key(|(_, (time, _))| std::cmp::Reverse(*time));
    println!("sum of the best times of each step: {:.0} tokens/s", rows as f64 / total.as_secs_f64());
    for (name, (time, flops)) in ops {
        let share = 100.0 * time.as_secs_f64() / total.as_secs_f64();
        let rate = flops / time.as_secs_f64() / 1e9;
        println!("  {name:20} {share:5.1}% {:8.2} ms {rate:5.0} GFLOP/s", 1e3 * time.as_secs_f64());
    }
    let loss = cpu.read(id, plan.find("loss").unwrap()).unwrap()[0];
    assert!(loss.is_finite(), "{loss}");
}
