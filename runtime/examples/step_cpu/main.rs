//! Times training steps of a model on the CPU executor and prints its speed as one line of JSON, as
//! `benches/peers/step_cpu.py` does for PyTorch; with `--profile`, also where the time goes.
//!
//! `cargo run --release -p kernwright-runtime --example step_cpu -- --help`
#![allow(clippy::print_stdout)]

mod system;
mod training;

use kernwright_plan::executor::Executor;
use kernwright_plan::shape::{Shape, parse_text, presets};
use kernwright_runtime::Profile;
use std::error::Error;
use std::time::{Duration, Instant};
use training::{Clock, Training};

const HELP: &str = "\
times training steps on the CPU executor
  --preset NAME   a named shape [default: tiny]
  --shape FILE    a shape as lines of `path = value` instead
  --batch N       sequences per step [default: 8]
  --length N      tokens per sequence [default: 256]
  --steps N       measured steps, after three that are not [default: 20]
  --threads N     [default: 2]
  --profile CLOCK adds a table of the least time of each op; `wall`, or `processor` on a busy machine";

/// What the command line says.
struct Options {
    shape: Shape,
    batch: usize,
    length: usize,
    steps: usize,
    threads: usize,
    profile: Option<Clock>,
}

fn options() -> Result<Option<Options>, Box<dyn Error>> {
    let tiny = presets::find("tiny").ok_or("no preset `tiny`")?.shape();
    let mut options = Options { shape: tiny, batch: 8, length: 256, steps: 20, threads: 2, profile: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("`{name}` takes a value"));
        match name.as_str() {
            "--help" => return Ok(None),
            "--profile" => match value()?.as_str() {
                "wall" => options.profile = Some(system::wall_time),
                "processor" => options.profile = Some(system::processor_time),
                clock => return Err(format!("no clock `{clock}`").into()),
            },
            "--preset" => {
                let name = value()?;
                options.shape = presets::find(&name).ok_or_else(|| format!("no preset `{name}`"))?.shape();
            }
            "--shape" => {
                let text = std::fs::read_to_string(value()?)?;
                options.shape = parse_text(&text).map_err(|problems| format!("{problems:?}"))?;
            }
            "--batch" => options.batch = value()?.parse()?,
            "--length" => options.length = value()?.parse()?,
            "--steps" => options.steps = value()?.parse::<usize>()?.max(1),
            "--threads" => options.threads = value()?.parse()?,
            _ => return Err(format!("unknown option `{name}`\n{HELP}").into()),
        }
    }
    Ok(Some(options))
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

fn main() -> Result<(), Box<dyn Error>> {
    let Some(Options { shape, batch, length, steps, threads, profile }) = options()? else {
        println!("{HELP}");
        return Ok(());
    };
    system::forget_peak();
    let start_up = system::resident();
    let mut training = Training::new(&shape, batch, length, threads)?;
    let (mut seconds, mut processor, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..steps + 3 {
        let tokens = training.batch();
        let (start, used) = (Instant::now(), system::processor_time());
        losses.push(training.step(&tokens, None)?);
        seconds.push(start.elapsed());
        processor.push(system::processor_time().saturating_sub(used));
    }
    let peak = system::peak().saturating_sub(start_up);
    let planned = training.cpu.plan(training.id).arena_bytes;
    let (median, processor) = (median(&mut seconds[3..]), median(&mut processor[3..]));
    let flops = training.cpu.plan(training.id).cost().tensor_flops;
    println!(
        "{{\"peer\": \"kernwright {}\", \"tokens_per_second\": {:.0}, \"median_step_ms\": {:.2}, \
         \"processor_ms\": {:.2}, \"gflops\": {:.1}, \"parameters\": {}, \"loss\": [{:.4}, {:.4}], \
         \"planned_mib\": {:.1}, \"peak_mib\": {:.1}, \"batch\": {batch}, \"length\": {length}, \
         \"steps\": {steps}, \"threads\": {threads}}}",
        env!("CARGO_PKG_VERSION"),
        (batch * length) as f64 / median,
        1e3 * median,
        1e3 * processor,
        flops / median / 1e9,
        shape.n_parameters(),
        losses[0],
        losses[losses.len() - 1],
        planned as f64 / f64::from(1 << 20),
        peak as f64 / f64::from(1 << 20),
    );
    if let Some(clock) = profile {
        table(&mut training, steps, clock)?;
    }
    Ok(())
}

fn table(training: &mut Training, steps: usize, clock: Clock) -> Result<(), Box<dyn Error>> {
    let mut profile = Profile::default();
    for _ in 0..steps {
        let tokens = training.batch();
        training.step(&tokens, Some((&mut profile, clock)))?;
    }
    let total = profile.total().as_secs_f64();
    println!("{:20} {:>5} {:>9} {:>6} {:>8} {:>7}", "op", "steps", "ms", "share", "GFLOP/s", "GB/s");
    for row in profile.by_op(training.cpu.plan(training.id)) {
        let time = row.time.as_secs_f64();
        println!(
            "{:20} {:5} {:9.2} {:5.1}% {:8.1} {:7.2}",
            row.op,
            row.steps,
            1e3 * time,
            100.0 * time / total,
            row.cost.flops() / time / 1e9,
            row.cost.bytes / time / 1e9
        );
    }
    println!("{:20} {:>5} {:9.2}", "sum", "", 1e3 * total);
    Ok(())
}
