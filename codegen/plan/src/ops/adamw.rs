//! AdamW with decoupled decay (I. Loshchilov, F. Hutter, 2019) and clipping by the global norm.
//!
//! `g' = g min(1, clip / (norm + 1e-6))`, `m = b1 m + (1 - b1) g'`, `v = b2 v + (1 - b2) g'^2`, and with
//! `m^ = m / (1 - b1^t)`, `v^ = v / (1 - b2^t)`: `p = p - lr (m^ / (sqrt(v^) + eps) + decay p)`.

use super::Operation;
use super::rowwise::{BLOCK, elements, kernel, launches, pointer};
use crate::arch::Arch;
use crate::cost::Cost;
use crate::dtype::Dtype;
use crate::launch::{Argument, Lowered};
use crate::options::AdamWOptions;
use crate::plan::Io;
use crate::spec::{KernelSpec, SpecValue, field};

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, finish, input},
    float::Float,
    plan::{Phase, Plan, Step},
    reference::{Inputs, Outputs},
    tape::{read, write},
};

/// Reads parameter, gradient, m, v, learning_rate [1], step [1] (from 1), and norm [1] where it clips. Writes
/// parameter, m, v in place, and working, the narrow copy, where there is one.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    /// Its constants; `weight_decay` is 0 for what does not decay.
    pub options: AdamWOptions,
    /// Greatest global gradient norm, where it clips.
    pub clip: Option<f32>,
}

/// Elements that a thread of the kernel owns.
const THREAD_ELEMENTS: usize = 4;

/// Added to the norm before the division.
pub const CLIP_EPSILON: f32 = 1e-6;

impl Operation for AdamW {
    const NAME: &'static str = "adamw";

    fn cost(&self, io: &Io) -> Cost {
        Cost {
            vector_flops: 16.0 * io.buffer("parameter").len() as f64,
            bytes: io.bytes(),
            ..Cost::default()
        }
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let working = io.id("working").map(|id| io.plan.buffer(id).dtype);
        let spec = KernelSpec {
            template: "adamw/step",
            block: BLOCK,
            shared_memory: 0,
            fields: vec![
                field("working", "working", SpecValue::Bool(working.is_some())),
                field("working_type", "", SpecValue::Type(working.unwrap_or(Dtype::Fp32))),
            ],
        };
        let AdamWOptions { beta1, beta2, epsilon, weight_decay } = self.options;
        let norm = if self.clip.is_some() { pointer(io, "norm") } else { Argument::Buffer(None) };
        let n = io.buffer("parameter").len();
        let slots = ["parameter", "m", "v", "working", "gradient", "learning_rate", "step"];
        let mut arguments: Vec<_> = slots.iter().map(|slot| pointer(io, slot)).collect();
        arguments.push(norm);
        arguments.extend([beta1, beta2, epsilon, weight_decay, self.clip.unwrap_or(0.0)].map(Argument::F32));
        arguments.push(elements(n));
        let blocks = n.div_ceil(THREAD_ELEMENTS).div_ceil(BLOCK as usize);
        launches([kernel(spec, [blocks, 1, 1], arguments)])
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let AdamWOptions { beta1, beta2, epsilon, weight_decay } = self.options;
        let [b1, b2, epsilon, decay] =
            [beta1, beta2, epsilon, weight_decay].map(|value| F::of(f64::from(value)));
        let (one, rate, t) = (F::of(1.0), inputs.get("learning_rate")[0], inputs.get("step")[0].f64());
        let mut factor = one;
        if let (Some(clip), Some(norm)) = (self.clip, inputs.find("norm")) {
            let ratio = F::of(f64::from(clip)) / (norm[0] + F::of(f64::from(CLIP_EPSILON)));
            // A norm that is not a number is not hidden: it spoils the update.
            factor = if ratio >= one { one } else { ratio };
        }
        let m_correction = F::of(1.0 - f64::from(beta1).powf(t));
        let v_correction = F::of(1.0 - f64::from(beta2).powf(t));
        let mut p = inputs.get("parameter").to_vec();
        let (mut m, mut v) = (inputs.get("m").to_vec(), inputs.get("v").to_vec());
        for (i, g) in inputs.get("gradient").iter().enumerate() {
            let g = *g * factor;
            m[i] = b1 * m[i] + (one - b1) * g;
            v[i] = b2 * v[i] + (one - b2) * g * g;
            let update = (m[i] / m_correction) / ((v[i] / v_correction).sqrt() + epsilon);
            p[i] = p[i] - rate * (update + decay * p[i]);
        }
        Ok(vec![("working", p.clone()), ("parameter", p), ("m", m), ("v", v)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |n: usize, step: i32, clip: Option<f32>, weight_decay: f32| {
            let mut plan = Plan::default();
            let mut fills = Vec::new();
            let mut add =
                |slot, shape: &[usize], fill| read(slot, input(&mut plan, &mut fills, slot, shape, &fill));
            let mut reads = vec![
                add("parameter", &[n], Fill::Normal(1.0)),
                add("gradient", &[n], Fill::Normal(0.3)),
                add("m", &[n], Fill::Normal(0.1)),
                add("v", &[n], Fill::Around(2.0)),
                add("learning_rate", &[1], Fill::Values(vec![0.02])),
                add("step", &[1], Fill::Ints(vec![step])),
            ];
            if clip.is_some() {
                reads.push(add("norm", &[1], Fill::Values(vec![2.5])));
            }
            let writes = [("parameter", 0), ("m", 2), ("v", 3)];
            let writes = writes.map(|(slot, at)| write(slot, reads[at].buffer)).to_vec();
            let options = AdamWOptions { beta1: 0.85, beta2: 0.97, epsilon: 1e-3, weight_decay };
            let output = reads[0].buffer;
            let op = AdamW { options, clip }.into();
            plan.steps.push(Step { op, reads, writes, phase: Phase::Forward });
            finish(&format!("{n} at step {step}, clip {clip:?}"), plan, fills, output)
        };
        vec![one(41, 1, None, 0.1), one(1, 1000, Some(0.7), 0.0), one(130, 7, Some(9.0), 0.3)]
    }
}
