//! A tiny model on the CPU learns one batch by heart.

use kernwright_model::random::Random;
use kernwright_model::weights;
use kernwright_plan::executor::{Executor, MicroStep, Values};
use kernwright_plan::plan::Phase;
use kernwright_plan::shape::parse_text;
use kernwright_plan::{Options, train_step};
use kernwright_runtime::Cpu;

#[test]
fn a_tiny_model_overfits_one_batch() {
    let shape = parse_text(
        "model.vocab = 61\nmodel.context = 16\nmodel.d_model = 48\nmodel.layers = 2\nmodel.tied\n\
         attention.heads = 6\nattention.kv_heads = 2\nattention.head_dim = 8\nattention.rope\n\
         feed_forward.swiglu\nfeed_forward.d_ff = 104\n",
    )
    .expect("a shape");
    let (batch, length) = (3, 13);
    let options = Options::host();
    let mut cpu = Cpu::new(None).expect("an executor");
    let plan = cpu.load(train_step(&shape, &options, batch, length)).expect("a plan");
    weights::initialise(&mut cpu, plan, &shape, 1).expect("weights");
    let mut random = Random::new(5);
    let tokens: Vec<i32> = (0..batch * length).map(|_| random.below(61) as i32).collect();
    let mut order: Vec<i32> = (0..tokens.len() as i32).collect();
    order.sort_by_key(|at| tokens[*at as usize]);
    let mut targets = tokens.clone();
    targets.rotate_left(1);
    let inverse = 1.0 / targets.len() as f32;
    let mut loss = f32::INFINITY;
    for step in 1..=300 {
        for (name, values) in [
            ("tokens", Values::Int(&tokens)),
            ("token_order", Values::Int(&order)),
            ("targets", Values::Int(&targets)),
            ("inverse_count", Values::Float(&[inverse])),
            ("learning_rate", Values::Float(&[3e-3])),
            ("step", Values::Int(&[step])),
        ] {
            let buffer = cpu.plan(plan).find(name).expect("an input");
            cpu.write(plan, buffer, values).expect("a write");
        }
        for phase in [Phase::Forward, Phase::Backward, Phase::Update] {
            cpu.run_phase(plan, phase, MicroStep::First).expect("a phase");
        }
        let buffer = cpu.plan(plan).find("loss").expect("a loss");
        loss = cpu.read(plan, buffer).expect("a read")[0];
    }
    assert!(loss < 0.05, "the loss is still {loss}");
}
