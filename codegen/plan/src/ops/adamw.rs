//! AdamW with decoupled decay (I. Loshchilov, F. Hutter, 2019), over any number of parameters.
//!
//! `g' = factor g`, `m = b1 m + (1 - b1) g'`, `v = b2 v + (1 - b2) g'^2`, and with `t = update`,
//! `m^ = m / (1 - b1^t)`, `v^ = v / (1 - b2^t)`: `p = p - lr (m^ / (sqrt(v^) + eps) + decay p)`. Where `update` is 0
//! everything stays as it is: see `gradient_norm`, which decides that.

use super::Operation;
use super::gradient_norm::{either, narrow};
use super::rowwise::{BLOCK, MISSING, VIEW, count, kernel, launches, pointer};
use crate::arch::Arch;
use crate::buffer::BufferId;
use crate::cost::Cost;
use crate::launch::{Argument, Entry, Lowered};
use crate::options::AdamWOptions;
use crate::plan::{Io, Step};
use crate::spec::{KernelSpec, SpecValue, field};

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, finish, input},
    float::Float,
    plan::{Phase, Plan},
    reference::{Inputs, Outputs},
    tape::{read, write},
};

/// Reads for each parameter, in this order: parameter, gradient, m and v of one shape; and learning_rate [1], factor [1],
/// update [1] (from 1, or 0 for none). Writes for each parameter, in place: parameter, m, v, and behind them working, the
/// narrow copy, where there is one.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    /// Its constants.
    pub options: AdamWOptions,
    /// Which of the parameters decay.
    pub decays: Vec<bool>,
}

/// Elements that a block of the kernel owns.
const BLOCK_ELEMENTS: usize = 1 << 12;

/// What belongs to one parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The parameter.
    pub parameter: BufferId,
    /// Its gradient.
    pub gradient: BufferId,
    /// Its first moment.
    pub m: BufferId,
    /// Its second moment.
    pub v: BufferId,
    /// Its narrow copy.
    pub working: Option<BufferId>,
}

/// The parameters of an `adamw` step, with what belongs to each; `None` where a slot is missing.
#[must_use]
pub fn tensors(step: &Step) -> Option<Vec<Tensor>> {
    let all =
        |slot: &'static str| step.reads.iter().filter(move |read| read.slot == slot).map(|read| read.buffer);
    let mut tensors: Vec<Tensor> = all("parameter")
        .zip(all("gradient"))
        .zip(all("m").zip(all("v")))
        .map(|((parameter, gradient), (m, v))| Tensor { parameter, gradient, m, v, working: None })
        .collect();
    let is_whole = ["parameter", "gradient", "m", "v"].iter().all(|slot| all(slot).count() == tensors.len());
    let mut last = None;
    for write in &step.writes {
        match write.slot {
            "parameter" => last = tensors.iter().position(|tensor| tensor.parameter == write.buffer),
            "working" => tensors[last?].working = Some(write.buffer),
            _ => {}
        }
    }
    is_whole.then_some(tensors)
}

impl Operation for AdamW {
    const NAME: &'static str = "adamw";

    fn cost(&self, io: &Io) -> Cost {
        let parameters = io.step.reads.iter().filter(|read| read.slot == "parameter");
        let elements: usize = parameters.map(|read| io.plan.buffer(read.buffer).len()).sum();
        Cost { vector_flops: 16.0 * elements as f64, bytes: io.bytes(), ..Cost::default() }
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let Some(tensors) = tensors(io.step).filter(|tensors| tensors.len() == self.decays.len()) else {
            return MISSING;
        };
        if io.buffers().any(|buffer| buffer.view.is_some()) {
            return VIEW;
        }
        let (mut entries, mut blocks) = (Vec::new(), 0);
        for (Tensor { parameter, gradient, m, v, working }, decays) in tensors.iter().zip(&self.decays) {
            let n = io.plan.buffer(*parameter).len();
            let written = [Some(*parameter), Some(*m), Some(*v), *working];
            entries.extend(written.map(Entry::Buffer));
            entries.extend(either(io, *gradient));
            entries.extend([n as i64, i64::from(*decays), blocks as i64].map(Entry::I64));
            blocks += n.div_ceil(BLOCK_ELEMENTS);
        }
        let working = narrow(io, tensors.iter().filter_map(|tensor| tensor.working));
        let gradient = narrow(io, tensors.iter().map(|tensor| tensor.gradient));
        let spec = KernelSpec {
            template: "adamw/step",
            block: BLOCK,
            shared_memory: 0,
            fields: vec![
                field("working_type", "", SpecValue::Type(working)),
                field("g_type", "g", SpecValue::Type(gradient)),
                field("elements", "n", SpecValue::Int(BLOCK_ELEMENTS as i64)),
            ],
        };
        let AdamWOptions { beta1, beta2, epsilon, weight_decay } = self.options;
        let mut arguments = vec![Argument::Table(entries)];
        arguments.extend(["learning_rate", "factor", "update"].map(|slot| pointer(io, slot)));
        arguments.push(count(tensors.len()));
        arguments.extend([beta1, beta2, epsilon, weight_decay].map(Argument::F32));
        launches([kernel(spec, [blocks, 1, 1], arguments)])
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let AdamWOptions { beta1, beta2, epsilon, weight_decay } = self.options;
        let [b1, b2, epsilon, decay] =
            [beta1, beta2, epsilon, weight_decay].map(|value| F::of(f64::from(value)));
        let (one, rate, factor) = (F::of(1.0), inputs.get("learning_rate")[0], inputs.get("factor")[0]);
        let t = inputs.get("update")[0].f64();
        let m_correction = F::of(1.0 - f64::from(beta1).powf(t));
        let v_correction = F::of(1.0 - f64::from(beta2).powf(t));
        let all =
            inputs.all("parameter").zip(inputs.all("gradient")).zip(inputs.all("m").zip(inputs.all("v")));
        let mut outputs = Vec::new();
        for (((parameter, gradient), (m, v)), decays) in all.zip(&self.decays) {
            let (mut p, mut m, mut v) = (parameter.to_vec(), m.to_vec(), v.to_vec());
            let decay = if *decays { decay } else { F::default() };
            for (i, g) in gradient.iter().enumerate().filter(|_| t > 0.0) {
                let g = *g * factor;
                m[i] = b1 * m[i] + (one - b1) * g;
                v[i] = b2 * v[i] + (one - b2) * g * g;
                let update = (m[i] / m_correction) / ((v[i] / v_correction).sqrt() + epsilon);
                p[i] = p[i] - rate * (update + decay * p[i]);
            }
            outputs.push([p, m, v]);
        }
        // A working copy follows the parameter, of which it is one.
        let mut parameter = 0;
        let written = inputs.written().enumerate().map(|(at, slot)| {
            parameter += usize::from(slot == "parameter" && at > 0);
            let place = match slot {
                "m" => 1,
                "v" => 2,
                _ => 0,
            };
            (slot, outputs[parameter][place].clone())
        });
        Ok(written.collect())
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |tensors: &[(usize, bool)], update: i32, factor: f32| {
            let mut plan = Plan::default();
            let (mut fills, mut reads, mut writes) = (Vec::new(), Vec::new(), Vec::new());
            let mut add = |slot, name: &str, n: usize, fill| {
                read(slot, input(&mut plan, &mut fills, name, &[n], &fill))
            };
            for (index, (n, _)) in tensors.iter().enumerate() {
                for (slot, fill) in [
                    ("parameter", Fill::Normal(1.0)),
                    ("gradient", Fill::Normal(0.3)),
                    ("m", Fill::Normal(0.1)),
                    ("v", Fill::Around(2.0)),
                ] {
                    let read = add(slot, &format!("{slot}.{index}"), *n, fill);
                    reads.push(read);
                    writes.extend((slot != "gradient").then(|| write(slot, read.buffer)));
                }
            }
            reads.push(add("learning_rate", "learning_rate", 1, Fill::Values(vec![0.02])));
            reads.push(add("factor", "factor", 1, Fill::Values(vec![factor])));
            reads.push(add("update", "update", 1, Fill::Ints(vec![update])));
            let options = AdamWOptions { beta1: 0.85, beta2: 0.97, epsilon: 1e-3, weight_decay: 0.3 };
            let (output, decays) = (reads[0].buffer, tensors.iter().map(|(_, decays)| *decays).collect());
            plan.steps.push(Step {
                op: AdamW { options, decays }.into(),
                reads,
                writes,
                phase: Phase::Forward,
            });
            finish(&format!("{tensors:?}, update {update}"), plan, fills, output)
        };
        let many =
            [(BLOCK_ELEMENTS + 77, true), (3, false), (130, true), (2 * BLOCK_ELEMENTS, false), (1, true)];
        vec![
            one(&[(41, true)], 1, 1.0),
            one(&[(1, false)], 1000, 0.4),
            one(&many, 7, 0.7),
            one(&many[..3], 0, 0.0),
        ]
    }
}
