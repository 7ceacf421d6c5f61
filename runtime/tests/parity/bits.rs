//! The same bits whatever the number of threads, and in every run.

use crate::setup::{LARGE, MODELS, n_counted, options, parameters, shape, tokens};
use kernwright_plan::executor::{Executor, MicroStep};
use kernwright_plan::plan::Phase;
use kernwright_plan::train_step;
use kernwright_runtime::Cpu;

/// Long enough for several blocks of every kind.
const LENGTH: usize = 70;
const BATCH: usize = 5;

fn bits(fields: &str, threads: usize) -> Vec<Vec<u32>> {
    let shape = shape(fields);
    let mut cpu = Cpu::new(Some(threads)).unwrap();
    assert_eq!(cpu.threads(), threads);
    let id = cpu.load(train_step(&shape, &options(), BATCH, LENGTH)).unwrap();
    let plan = cpu.plan(id).clone();
    for (buffer, content) in parameters(&shape, &plan, n_counted(2 * BATCH, LENGTH)) {
        cpu.write(id, buffer, content.values()).unwrap();
    }
    for micro in [MicroStep::First, MicroStep::Later] {
        let first = if micro == MicroStep::First { 0 } else { BATCH };
        for (buffer, content) in tokens(&plan, shape.vocab, LENGTH, first) {
            cpu.write(id, buffer, content.values()).unwrap();
        }
        cpu.run_phase(id, Phase::Forward, micro).unwrap();
        cpu.run_phase(id, Phase::Backward, micro).unwrap();
    }
    cpu.run_phase(id, Phase::Update, MicroStep::First).unwrap();
    let persistent =
        plan.buffers.iter().filter(|buffer| buffer.role.is_persistent() && buffer.view.is_none());
    let read = |name: &str| plan.find(name).map(|buffer| cpu.read(id, buffer).unwrap()).unwrap_or_default();
    persistent.map(|buffer| read(&buffer.name).iter().map(|value| value.to_bits()).collect()).collect()
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    for (name, fields) in MODELS.iter().chain([&("several blocks", LARGE.0)]) {
        let one = bits(fields, 1);
        for threads in [1, 2, 3, 5] {
            assert!(bits(fields, threads) == one, "{name}: {threads} threads");
        }
    }
}
