//! Every gradient against central differences, in f64: of each op alone, and of whole small models.
//!
//! The objective is `sum(seed * output)`. With a step of `h = 1e-5 max(1, |x|)` a central difference is off by
//! `h^2 f''' / 6` and by the rounding of the objective over h; `allowed` bounds both.

use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::case::{self, Case, Content, Fill};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::{Executor, MicroStep};
use kernwright_plan::ops::Op;
use kernwright_plan::ops::add::Add;
use kernwright_plan::ops::linear::Linear;
use kernwright_plan::plan::{Phase, Plan, Step};
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_plan::shape::presets;
use kernwright_plan::tape::{read, write};
use kernwright_plan::{Options, ops, train_step};
use small::{Batch, Loaded};
use std::collections::BTreeSet;

mod small;

/// Read as floats, but constants of a step: no gradient is due.
const CONSTANTS: &[&str] = &["inverse_count", "loss_scale"];

/// Elements of a buffer that are tried; all, when it has no more.
const SAMPLE: usize = 40;

/// A loaded plan, what it yields and with which weights.
struct Objective {
    loaded: Loaded<f64>,
    output: BufferId,
    seed: Vec<f64>,
}

impl Objective {
    /// The value, and the sum of the absolute terms in it.
    fn value(&mut self) -> (f64, f64) {
        self.loaded.run(&[Phase::Forward], MicroStep::First);
        let output = self.loaded.executor.values(self.loaded.plan, self.output);
        let terms = self.seed.iter().zip(&output).map(|(seed, y)| seed * y);
        (terms.clone().sum(), terms.map(f64::abs).sum())
    }

    /// The parameters that have a gradient.
    fn gradients(&self) -> Vec<(String, BufferId)> {
        let plan = self.loaded.executor.plan(self.loaded.plan);
        let parameters = plan.buffers.iter().filter(|buffer| buffer.role == Role::Parameter);
        let pairs = parameters.filter_map(|parameter| {
            let gradient = plan.find(&format!("d_{}", parameter.name))?;
            assert_eq!(plan.buffer(gradient).role, Role::Gradient, "{}", self.loaded.name);
            Some((parameter.name.clone(), plan.find(&parameter.name)?))
        });
        pairs.collect()
    }

    /// Compares a spread of elements of one parameter's gradient. Returns the worst share of what is allowed.
    fn check(&mut self, name: &str, parameter: BufferId, gradient: &[f64]) -> f64 {
        let (label, plan) = (self.loaded.name.clone(), self.loaded.plan);
        let mut values = self.loaded.executor.values(plan, parameter);
        assert_eq!(values.len(), gradient.len(), "{label}: `{name}`");
        let largest = gradient.iter().fold(0.0, |max: f64, g| max.max(g.abs()));
        let mut worst = 0.0_f64;
        for index in spread(values.len()) {
            let x = values[index];
            let h = 1e-5 * x.abs().max(1.0);
            let mut at = |x: f64| {
                values[index] = x;
                self.loaded.executor.set(plan, parameter, &values, false);
                self.value()
            };
            let (above, sum) = at(x + h);
            let (below, _) = at(x - h);
            values[index] = x;
            let difference = (above - below) / ((x + h) - (x - h));
            let error = (difference - gradient[index]).abs();
            let allowed = allowed(largest, sum, h);
            assert!(
                error <= allowed,
                "{label}: gradient of `{name}` at {index}: {}, by differences {difference}; error {error:.2e}, \
                 allowed {allowed:.2e}",
                gradient[index],
            );
            worst = worst.max(if error == 0.0 { 0.0 } else { error / allowed });
        }
        self.loaded.executor.set(plan, parameter, &values, false);
        worst
    }
}

/// Truncation: `h^2 / 6 = 2e-11` times a third derivative of up to a thousand times the largest gradient. Rounding:
/// four times the spacing of numbers at the sum of the objective's terms, over h.
fn allowed(largest: f64, sum: f64, h: f64) -> f64 {
    2e-8 * largest + 4.0 * f64::EPSILON * sum / h
}

/// At most [`SAMPLE`] indices below `n`, evenly spread, the ends included.
fn spread(n: usize) -> Vec<usize> {
    if n <= SAMPLE { (0..n).collect() } else { (0..SAMPLE).map(|i| i * (n - 1) / (SAMPLE - 1)).collect() }
}

/// Loads a case, runs both directions and checks the gradient of all parameters. Returns the worst share of the
/// tolerance; `None` when the case has no gradient at all.
fn check_case(op: &str, case: &Case) -> Option<f64> {
    let mut executor = Reference::<f64>::new(Rounding::None);
    let name = format!("{op}, {}", case.label);
    let plan = case.load(&mut executor, 11).unwrap_or_else(|error| panic!("{name}: {error}"));
    // A gradient of the scaled loss is one of the loss times the scale.
    let scale = case.plan.find("loss_scale").map_or(1.0, |scale| executor.values(plan, scale)[0]);
    let seed = executor.values(plan, case.seed).into_iter().map(|seed| scale * seed).collect();
    let mut objective = Objective {
        loaded: Loaded { name, executor, plan, parameters: Vec::new() },
        output: case.output,
        seed,
    };
    let pairs = objective.gradients();
    if pairs.is_empty() {
        return None;
    }
    for (buffer, content) in case.content(11) {
        let name = &case.plan.buffer(buffer).name;
        let is_parameter = matches!(content, Content::Float(_)) && buffer != case.seed;
        if is_parameter && !CONSTANTS.contains(&name.as_str()) {
            assert!(
                pairs.iter().any(|(_, id)| *id == buffer),
                "{}: `{name}` has none",
                objective.loaded.name
            );
        }
    }
    objective.loaded.run(&[Phase::Forward, Phase::Backward], MicroStep::First);
    let gradients: Vec<_> =
        pairs.iter().map(|(name, _)| objective.loaded.get_padded(&format!("d_{name}"))).collect();
    let checked = pairs.iter().zip(&gradients);
    Some(checked.map(|((name, id), gradient)| objective.check(name, *id, gradient)).fold(0.0, f64::max))
}

/// A sum whose first part is read again by a step behind the second part's producer: their gradients, equal at first,
/// must not stay in one buffer. `again` makes that other use of `a`, from `a` and a weight.
fn meeting(label: &str, again: impl FnOnce(&mut Plan, BufferId, BufferId) -> BufferId) -> Case {
    let (mut plan, mut fills) = (Plan::default(), Vec::new());
    let mut add = |name, shape: &[usize]| case::input(&mut plan, &mut fills, name, shape, &Fill::Normal(1.0));
    let (x, z, weight) = (add("x", &[5, 8]), add("z", &[5, 8]), add("weight", &[8, 8]));
    let a = case::copy(&mut plan, x, "a", Role::Activation);
    let b = case::copy(&mut plan, z, "b", Role::Activation);
    let c = again(&mut plan, a, weight);
    let y = step(&mut plan, Add, &[("a", a), ("b", b)], "y", Role::Activation);
    let out = step(&mut plan, Add, &[("a", y), ("b", c)], "out", Role::Output);
    case::finish(label, plan, fills, out)
}

/// Adds a forward step whose result is like its first input.
fn step(
    plan: &mut Plan,
    op: impl Into<Op>,
    reads: &[(&'static str, BufferId)],
    name: &str,
    role: Role,
) -> BufferId {
    let y = plan.add(name, plan.buffer(reads[0].1).shape.clone(), Dtype::Fp32, role);
    let reads = reads.iter().map(|(slot, buffer)| read(slot, *buffer)).collect();
    plan.steps.push(Step { op: op.into(), reads, writes: vec![write("y", y)], phase: Phase::Forward });
    y
}

#[test]
fn gradients_that_meet_are_summed_once_each() {
    let linear = |plan: &mut Plan, a, weight| {
        step(plan, Linear::default(), &[("x", a), ("weight", weight)], "c", Role::Activation)
    };
    let behind_another = |plan: &mut Plan, a, weight| {
        let twice = step(plan, Add, &[("a", a), ("b", a)], "twice", Role::Activation);
        linear(plan, twice, weight)
    };
    for case in [meeting("linear", linear), meeting("linear of a sum with itself", behind_another)] {
        assert!(check_case("meeting", &case).is_some());
        // The reference reads everything before it writes; a device may not.
        for step in case.plan.steps.iter().filter(|step| step.op.name() == "linear_backward") {
            for write in &step.writes {
                let name = &case.plan.buffer(write.buffer).name;
                let in_place = step.reads.iter().any(|read| read.buffer == write.buffer);
                assert!(!in_place, "{}: `{name}` is read and written by one step", case.label);
            }
        }
    }
}

/// Names of the ops in some phase of a plan.
fn ops_of(plan: &Plan, phase: Phase) -> impl Iterator<Item = &'static str> {
    plan.steps[plan.phase(phase)].iter().map(|step| step.op.name())
}

#[test]
fn gradients_of_every_op_are_its_differences() {
    let (mut differentiated, mut ran) = (BTreeSet::new(), BTreeSet::new());
    for row in ops::ALL {
        let mut worst: Option<f64> = None;
        for case in (row.cases)() {
            if let Some(share) = check_case(row.name, &case) {
                worst = Some(worst.unwrap_or(0.0).max(share));
                differentiated.extend(ops_of(&case.plan, Phase::Forward));
                ran.extend(ops_of(&case.plan, Phase::Backward));
            }
        }
        if let Some(worst) = worst {
            eprintln!("{}: {worst:.1e} of the tolerance", row.name);
        }
    }
    // Nothing that a training step contains may have slipped through: neither a forward op nor a backward one.
    let shapes =
        presets::ALL.iter().map(presets::Preset::shape).chain(small::shapes().map(|(_, shape)| shape));
    for shape in shapes {
        let plan = train_step(&shape, &Options::default(), 1, 2);
        for op in ops_of(&plan, Phase::Forward) {
            assert!(differentiated.contains(op), "no case checks the gradient of `{op}`");
        }
        for op in ops_of(&plan, Phase::Backward) {
            assert!(ran.contains(op), "no case runs `{op}` as a backward step");
        }
    }
    for row in ops::ALL.iter().filter(|row| row.name.ends_with("_backward")) {
        assert!(ran.contains(row.name), "no case runs `{}` as a backward step", row.name);
    }
}

#[test]
fn gradients_of_whole_models_are_their_differences() {
    let (batch, length) = (2, 5);
    for (name, shape) in small::shapes() {
        let options = Options { precision: Some(Dtype::Fp32), head_chunk: Some(3), ..Options::default() };
        let plan = train_step(&shape, &options, batch, length);
        let mut loaded = Loaded::<f64>::new(name, &shape, plan, Rounding::None);
        let data = Batch::new(&shape, batch * length);
        loaded.feed(&data, data.counted());
        loaded.run(&[Phase::Forward, Phase::Backward], MicroStep::First);
        let output = loaded.executor.plan(loaded.plan).find("loss");
        let output = output.unwrap_or_else(|| panic!("{name}: the plan has no loss"));
        let mut objective = Objective { loaded, output, seed: vec![1.0] };
        let pairs = objective.gradients();
        assert_eq!(pairs.len(), shape.parameters().len(), "{name}: every parameter has a gradient");
        let gradients: Vec<_> =
            pairs.iter().map(|(name, _)| objective.loaded.get_padded(&format!("d_{name}"))).collect();
        let mut worst = 0.0_f64;
        for ((parameter, id), gradient) in pairs.iter().zip(&gradients) {
            let unpadded = objective.loaded.get(&format!("d_{parameter}"));
            assert!(unpadded.iter().any(|g| *g != 0.0), "{name}: the gradient of `{parameter}` is all 0");
            worst = worst.max(objective.check(parameter, *id, gradient));
        }
        eprintln!("{name}: {worst:.1e} of the tolerance");
    }
}
