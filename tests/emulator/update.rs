//! The end of a step: in one launch or in many it gives the same bits, and once loss or gradient is not finite nothing
//! changes any more, on any executor.

use crate::device::{device, options};
use crate::models::{batch, weights};
use crate::training::{narrow, tiny, write};
use kernwright_plan::Options;
use kernwright_plan::arch;
use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::executor::{Executor, MicroStep, PlanId, Values};
use kernwright_plan::options::AttentionPath;
use kernwright_plan::plan::{Phase, Plan};
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_runtime::Cpu;

/// An executor with a model that is about to be trained.
struct Training<'a> {
    executor: &'a mut dyn Executor,
    id: PlanId,
    plan: Plan,
    vocab: usize,
}

impl<'a> Training<'a> {
    fn new(executor: &'a mut dyn Executor, options: &Options) -> Self {
        let model = tiny();
        let (shape, plan) = (model.shape.clone(), model.plan(options));
        let id = executor.load(plan.clone()).unwrap_or_else(|error| panic!("{error:?}"));
        let mut training = Self { executor, id, plan, vocab: shape.vocab };
        let content = weights(&shape, &training.plan);
        write(training.executor, id, content).unwrap_or_else(|error| panic!("{error:?}"));
        training.run(Phase::Prepare);
        training
    }

    fn run(&mut self, phase: Phase) {
        let ran = self.executor.run_phase(self.id, phase, MicroStep::First);
        ran.unwrap_or_else(|error| panic!("{error:?}"));
    }

    fn buffer(&self, name: &str) -> BufferId {
        self.plan.find(name).unwrap_or_else(|| panic!("the plan has no `{name}`"))
    }

    fn get(&self, name: &str) -> Vec<f32> {
        self.executor.read(self.id, self.buffer(name)).unwrap_or_else(|error| panic!("{error:?}"))
    }

    fn put(&mut self, name: &str, values: Values<'_>) {
        let buffer = self.buffer(name);
        self.executor.write(self.id, buffer, values).unwrap_or_else(|error| panic!("{error:?}"));
    }

    /// A step; between gradient and update the first element of a buffer becomes something else.
    fn step(&mut self, number: i32, spoilt: Option<(&str, f32)>) {
        self.put("step", Values::Int(&[number]));
        let content = batch(&self.plan, self.vocab, 1);
        write(self.executor, self.id, content).unwrap_or_else(|error| panic!("{error:?}"));
        self.run(Phase::Forward);
        self.run(Phase::Backward);
        if let Some((name, value)) = spoilt {
            let mut values = self.get(name);
            values[0] = value;
            self.put(name, Values::Float(&values));
        }
        self.run(Phase::Update);
    }

    /// The bits of everything that an update changes.
    fn bits(&self) -> Vec<(String, Vec<u32>)> {
        let is_trained = |role| matches!(role, Role::Parameter | Role::Working | Role::Moment);
        let buffers = self.plan.buffers.iter().filter(|buffer| is_trained(buffer.role));
        let bits = |name: &str| self.get(name).into_iter().map(f32::to_bits).collect();
        buffers.map(|buffer| (buffer.name.clone(), bits(&buffer.name))).collect()
    }
}

#[test]
fn one_launch_for_all_parameters_gives_the_bits_of_a_launch_each() {
    let Some(emulator) = options("comparing updates") else { return };
    let together = narrow(AttentionPath::Fused);
    let apart = Options { without: vec!["multi_tensor_update".to_owned()], ..together.clone() };
    let [(one, few), (other, many)] = [together, apart].map(|options| {
        let mut device = device(&emulator, &arch::ALL[0]);
        let mut training = Training::new(&mut device, &options);
        (1..3).for_each(|number| training.step(number, None));
        let bits = training.bits();
        (bits, device.driver().launches())
    });
    let n = one.iter().filter(|(name, _)| name.starts_with("m.")).count();
    assert!(n > 10 && one == other);
    // Squares and AdamW, in two steps.
    assert_eq!(many - few, 2 * 2 * (n - 1), "{many} launches apart, {few} together");
}

/// Trains, spoils a step, and goes on.
fn halts(executor: &mut dyn Executor, options: &Options, (name, value): (&str, f32)) {
    let mut training = Training::new(executor, options);
    training.step(1, None);
    let sound = training.bits();
    training.step(2, Some((name, value)));
    assert!(training.bits() == sound, "`{name}` of {value} reached the weights");
    assert_eq!(training.get("halted"), [2.0]);
    for number in [3, 4] {
        training.step(number, None);
        assert!(training.bits() == sound, "step {number} after `{name}` of {value} changed the weights");
        assert_eq!(training.get("halted"), [2.0], "it stays halted by step 2");
        assert!(training.get("gradient_norm")[0].is_finite() && training.get("loss")[0].is_finite());
    }
    training.put("halted", Values::Int(&[0]));
    training.step(3, None);
    assert!(training.bits() != sound && training.get("halted") == [0.0], "it goes on when told to");
}

#[test]
fn what_is_not_finite_ends_training_and_spoils_nothing() {
    let spoilt =
        [("d_final_norm.weight", f32::NAN), ("d_embedding.weight", f32::NEG_INFINITY), ("loss", f32::NAN)];
    for (index, spoilt) in spoilt.into_iter().enumerate() {
        let host = Options::host();
        halts(&mut Reference::<f32>::new(Rounding::None), &host, spoilt);
        halts(&mut Cpu::new(Some(2)).unwrap_or_else(|error| panic!("{error}")), &host, spoilt);
        let without = if index == 1 { vec!["multi_tensor_update".to_owned()] } else { Vec::new() };
        let options = Options { without, clip: (index != 2).then_some(1.0), ..narrow(AttentionPath::Fused) };
        if let Some(emulator) = self::options("halting") {
            halts(&mut device(&emulator, &arch::ALL[0]), &options, spoilt);
        }
    }
}
