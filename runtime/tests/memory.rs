//! What training takes of the machine's memory, against what the plan says it needs.
#![allow(clippy::print_stdout)]

#[allow(dead_code)]
#[path = "../examples/step_cpu/system.rs"]
mod system;
#[allow(dead_code)]
#[path = "../examples/step_cpu/training.rs"]
mod training;

use kernwright_plan::executor::Executor;
use kernwright_plan::shape::{Shape, parse_text, presets};
use training::Training;

/// Peak resident memory above start-up may be this many times the planned peak.
const MOST: f64 = 1.3;

/// The shape of `benches/peers/compare_cpu.py` with ten million parameters.
fn ten_million() -> Shape {
    let fields = "model.vocab = 4096\nmodel.context = 256\nmodel.d_model = 384\nmodel.layers = 6\nmodel.tied\n\
                  attention.heads = 6\nattention.kv_heads = 2\nattention.head_dim = 64\nattention.rope\n\
                  feed_forward.swiglu\nfeed_forward.d_ff = 896\n";
    match parse_text(fields) {
        Ok(shape) => shape,
        Err(problems) => panic!("{problems:?}"),
    }
}

/// One test for both shapes, since what is resident belongs to the whole process.
#[test]
fn training_stays_near_the_planned_peak() {
    if system::resident() == 0 || !system::forget_peak() {
        println!("skipped: this system does not say how much memory is resident");
        return;
    }
    for (name, shape, batch, length) in
        [("tiny", presets::find("tiny").unwrap().shape(), 8, 256), ("10M", ten_million(), 2, 128)]
    {
        assert!(system::forget_peak());
        let before = system::resident();
        let mut training = Training::new(&shape, batch, length, 2).unwrap();
        for _ in 0..2 {
            let tokens = training.batch();
            training.step(&tokens, None).unwrap();
        }
        let above = system::peak().saturating_sub(before);
        let planned = training.cpu.plan(training.id).arena_bytes;
        let share = above as f64 / planned as f64;
        println!("{name}: {above} bytes above start-up, {planned} planned: {share:.3}");
        assert!((0.9..MOST).contains(&share), "{name}: {above} bytes, {planned} planned: {share:.3}");
    }
}
