//! Runs a plan through the reference in f64 (the truth), the reference in f32 and the CPU executor, and compares.
//!
//! Tolerance: twice the error of the f32 reference, plus 4 ulp of the greatest true value; for the root of the mean
//! square likewise. It comes from the number type, never from what passes.

use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, MicroStep, PlanId, Values};
use kernwright_plan::plan::Plan;
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_runtime::Cpu;
use std::collections::BTreeMap;
use std::ops::Range;

/// Greatest share of the tolerance of each op.
pub(crate) type Shares = BTreeMap<&'static str, f64>;

/// The three executors with one plan.
pub(crate) struct Three {
    pub(crate) truth: Reference<f64>,
    pub(crate) single: Reference<f32>,
    pub(crate) cpu: Cpu,
    pub(crate) id: PlanId,
}

impl Three {
    pub(crate) fn new(plan: &Plan, threads: usize) -> Self {
        let mut truth = Reference::new(Rounding::None);
        let mut single = Reference::new(Rounding::None);
        let mut cpu = Cpu::new(Some(threads)).unwrap();
        let id = truth.load(plan.clone()).unwrap();
        assert_eq!(id, single.load(plan.clone()).unwrap());
        assert_eq!(id, cpu.load(plan.clone()).unwrap());
        Self { truth, single, cpu, id }
    }

    pub(crate) fn write(&mut self, buffer: BufferId, values: Values<'_>) {
        let executors: [&mut dyn Executor; 3] = [&mut self.truth, &mut self.single, &mut self.cpu];
        for executor in executors {
            executor.write(self.id, buffer, values).unwrap();
        }
    }

    fn run(&mut self, index: usize, micro: MicroStep) {
        let executors: [&mut dyn Executor; 3] = [&mut self.truth, &mut self.single, &mut self.cpu];
        for executor in executors {
            executor.run(self.id, index..index + 1, micro).unwrap();
        }
    }

    /// Runs the steps one by one; after each, compares what it wrote and gives all three the truth (as f32), so that
    /// each step starts from equal inputs. Returns the greatest share of the tolerance of each op.
    pub(crate) fn lockstep(&mut self, label: &str, steps: Range<usize>, micro: MicroStep) -> Shares {
        let mut shares = Shares::new();
        let plan = self.truth.plan(self.id).clone();
        for index in steps {
            self.run(index, micro);
            let step = &plan.steps[index];
            let op = step.op.name();
            for write in step.writes.iter().filter(|w| plan.buffer(w.buffer).role != Role::Scratch) {
                let label = format!("{op} ({label}), step {index}, slot {}", write.slot);
                let share = self.compare(&label, write.buffer);
                let worst = shares.entry(op).or_insert(0.0);
                *worst = share.max(*worst);
                let exact: Vec<f32> = self.truth.read(self.id, write.buffer).unwrap();
                let whole: Vec<i32> = exact.iter().map(|value| *value as i32).collect();
                let is_integer = plan.buffer(write.buffer).dtype.is_integer();
                self.write(
                    write.buffer,
                    if is_integer { Values::Int(&whole) } else { Values::Float(&exact) },
                );
            }
        }
        shares
    }

    /// Runs the steps without correcting anybody.
    pub(crate) fn run_on(&mut self, steps: Range<usize>, micro: MicroStep) {
        steps.for_each(|index| self.run(index, micro));
    }

    /// Compares one buffer. Returns the share of the tolerance.
    pub(crate) fn compare(&self, label: &str, buffer: BufferId) -> f64 {
        let truth = self.truth.values(self.id, buffer);
        let single: Vec<f64> = self.single.values(self.id, buffer).into_iter().map(f64::from).collect();
        let found: Vec<f64> = self.cpu.read(self.id, buffer).unwrap().into_iter().map(f64::from).collect();
        compare(label, &truth, &single, &found)
    }
}

fn max(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a })
}

fn rms(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len().max(1) as f64;
    (values.map(|value| value * value).sum::<f64>() / n).sqrt()
}

/// Compares `found` with the truth; see the module. Returns the share of the tolerance.
pub(crate) fn compare(label: &str, truth: &[f64], single: &[f64], found: &[f64]) -> f64 {
    let ulp = Dtype::Fp32.epsilon();
    // What is infinite or no number in both is the same.
    let is_same = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
    let distance = |(a, b): (&f64, &f64)| if is_same(*a, *b) { 0.0 } else { (a - b).abs() };
    let error = |of: &[f64]| -> Vec<f64> { truth.iter().zip(of).map(distance).collect() };
    let (base, errors) = (error(single), error(found));
    let greatest = max(truth.iter().map(|value| value.abs()));
    let allowed = 2.0 * max(base.iter().copied()) + 4.0 * ulp * greatest;
    let allowed_rms = 2.0 * rms(base.iter().copied()) + 4.0 * ulp * rms(truth.iter().copied());
    let (error, error_rms) = (max(errors.iter().copied()), rms(errors.iter().copied()));
    let share = |error: f64, allowed: f64| if error == 0.0 { 0.0 } else { error / allowed };
    let (share, share_rms) = (share(error, allowed), share(error_rms, allowed_rms));
    // Written so that NaN fails.
    let fine = share <= 1.0 && share_rms <= 1.0;
    if !fine {
        let at = errors.iter().position(|e| *e == error || e.is_nan()).unwrap_or(0);
        panic!(
            "{label}, index {at}: expected {:e}, found {:e} (f32 reference {:e}); share of tolerance {share:.2} at \
             most, {share_rms:.2} root mean square",
            truth[at], found[at], single[at]
        );
    }
    share.max(share_rms)
}
