//! The global norm of all gradients, and what follows from it for the update.
//!
//! `norm = sqrt(sum over tensors and elements of g^2) / loss_scale`, `factor = min(1, clip / (norm + 1e-6)) / loss_scale`.
//! Where loss or norm is not finite there is no update: weights and moments stay as they are, and so they do in all later
//! steps (`halted` is the step's number from then on). With loss scaling the scale is halved instead, as long as it is
//! above 1, and only that step is skipped; see [`State`].

mod state;

use super::Operation;
use super::rowwise::{BLOCK, MISSING, VIEW, WARP, count, elements, kernel, launches, pointer};
use crate::arch::Arch;
use crate::buffer::BufferId;
use crate::cost::Cost;
use crate::dtype::Dtype;
use crate::launch::{Argument, Entry, Launch, Lowered};
use crate::options::LossScaling;
use crate::plan::Io;
use crate::spec::{KernelSpec, SpecValue, field};
pub use state::{GREATEST_SCALE, State};

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, finish, input},
    float::Float,
    plan::{Phase, Plan, Step},
    reference::{Inputs, Outputs},
    tape::{read, write},
};

/// Reads any number of gradients, all as `gradient`, loss [1] and step [1] (from 1). Writes norm [1], factor [1], which
/// gradients are to be multiplied by, and update [1], its number from 1, both 0 where there is none. Changes halted [1]
/// and, with loss scaling, loss_scale, good_steps and skipped_steps [1]. partials [n] is scratch, see [`n_partials`].
#[derive(Clone, Debug, PartialEq)]
pub struct GradientNorm {
    /// Greatest global norm, where gradients are clipped.
    pub clip: Option<f32>,
    /// Where the gradients are those of a scaled loss.
    pub scaling: Option<LossScaling>,
    /// How many tensors one launch walks.
    pub launches: Tensors,
}

/// What a launch works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tensors {
    /// Every tensor of the step.
    All,
    /// One each.
    Each,
}

/// Added to the norm before the division.
pub const CLIP_EPSILON: f32 = 1e-6;

/// Gradient elements whose squares one block adds up: the same on every GPU, so that the order of the sum is.
const BLOCK_ELEMENTS: usize = 1 << 13;

/// Threads of the one block that adds the blocks' sums.
const ROOT_BLOCK: u32 = 1024;

/// Blocks' sums over gradients of so many elements each.
#[must_use]
pub fn n_partials(lengths: impl IntoIterator<Item = usize>) -> usize {
    lengths.into_iter().map(|n| n.div_ceil(BLOCK_ELEMENTS)).sum()
}

/// The one type besides fp32 among these buffers: a kernel reads both.
pub(super) fn narrow(io: &Io, buffers: impl IntoIterator<Item = BufferId>) -> Dtype {
    let mut types = buffers.into_iter().map(|id| io.plan.buffer(id).dtype);
    types.find(|dtype| *dtype != Dtype::Fp32).unwrap_or(Dtype::Fp32)
}

/// The entries of a table that name a gradient: as an fp32 one or as a narrow one, the other null.
pub(super) fn either(io: &Io, gradient: BufferId) -> [Entry; 2] {
    let is_wide = io.plan.buffer(gradient).dtype == Dtype::Fp32;
    [is_wide, !is_wide].map(|is_this| Entry::Buffer(is_this.then_some(gradient)))
}

/// The sums of squares of the blocks of some gradients, written from place `first` on.
fn squares(io: &Io, gradients: &[BufferId], first: usize) -> Option<Launch> {
    let (mut entries, mut blocks) = (Vec::new(), 0);
    for id in gradients {
        let n = io.plan.buffer(*id).len();
        entries.extend(either(io, *id));
        entries.extend([n, blocks].map(|number| Entry::I64(number as i64)));
        blocks += n_partials([n]);
    }
    let spec = KernelSpec {
        template: "gradient_norm/squares",
        block: BLOCK,
        shared_memory: 4 * BLOCK / WARP as u32,
        fields: vec![
            field("g_type", "", SpecValue::Type(narrow(io, gradients.iter().copied()))),
            field("elements", "n", SpecValue::Int(BLOCK_ELEMENTS as i64)),
        ],
    };
    let arguments =
        vec![pointer(io, "partials"), Argument::Table(entries), count(gradients.len()), elements(first)];
    kernel(spec, [blocks, 1, 1], arguments)
}

impl Operation for GradientNorm {
    const NAME: &'static str = "gradient_norm";

    fn cost(&self, io: &Io) -> Cost {
        let gradients = io.step.reads.iter().filter(|read| read.slot == "gradient");
        let elements: usize = gradients.map(|read| io.plan.buffer(read.buffer).len()).sum();
        Cost { vector_flops: 2.0 * elements as f64, bytes: io.bytes(), ..Cost::default() }
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let state = ["halted", "loss_scale", "good_steps", "skipped_steps"];
        let state = if self.scaling.is_some() { &state[..] } else { &state[..1] };
        if ["partials", "loss", "step", "norm", "factor", "update"]
            .iter()
            .chain(state)
            .any(|slot| !io.has(slot))
        {
            return MISSING;
        }
        let gradients: Vec<BufferId> =
            io.step.reads.iter().filter(|read| read.slot == "gradient").map(|read| read.buffer).collect();
        if gradients.iter().any(|id| io.plan.buffer(*id).view.is_some()) {
            return VIEW;
        }
        let (mut all, mut first) = (Vec::new(), 0);
        let together = match self.launches {
            Tensors::All => gradients.len().max(1),
            Tensors::Each => 1,
        };
        for some in gradients.chunks(together) {
            all.push(squares(io, some, first));
            first += n_partials(some.iter().map(|id| io.plan.buffer(*id).len()));
        }
        let spec = KernelSpec {
            template: "gradient_norm/root",
            block: ROOT_BLOCK,
            shared_memory: 4 * ROOT_BLOCK / WARP as u32,
            fields: vec![field("greatest_scale", "most", SpecValue::Float(f64::from(GREATEST_SCALE)))],
        };
        let slots = ["norm", "factor", "update", "halted", "loss_scale", "good_steps", "skipped_steps"];
        let mut arguments: Vec<_> =
            slots.into_iter().chain(["partials", "loss", "step"]).map(|slot| pointer(io, slot)).collect();
        let interval = self.scaling.map_or(0, |scaling| scaling.interval);
        // A ratio to infinity is never below 1.
        let clip = self.clip.unwrap_or(f32::INFINITY);
        arguments.extend([elements(first), Argument::F32(clip), Argument::I32(interval)]);
        all.push(kernel(spec, [1, 1, 1], arguments));
        launches(all)
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let squares = inputs.all("gradient").flat_map(|values| values.iter().map(|g| *g * *g));
        let sum = squares.sum::<F>();
        let number = |slot: &str| inputs.integers(slot)[0] as i32;
        let mut state = State { halted: number("halted"), loss_scale: 1.0, good_steps: 0, skipped_steps: 0 };
        if self.scaling.is_some() {
            state.loss_scale = inputs.get("loss_scale")[0].f64() as f32;
            (state.good_steps, state.skipped_steps) = (number("good_steps"), number("skipped_steps"));
        }
        let (one, scale) = (F::of(1.0), F::of(f64::from(state.loss_scale)));
        let norm = sum.sqrt() / scale;
        let is_finite = norm.f64().is_finite() && inputs.get("loss")[0].f64().is_finite();
        let update = state.advance(is_finite, number("step"), self.scaling);
        let clip = self.clip.map(|clip| F::of(f64::from(clip)) / (norm + F::of(f64::from(CLIP_EPSILON))));
        let share = clip.filter(|ratio| *ratio < one).unwrap_or(one);
        let factor = if update == 0 { F::default() } else { share / scale };
        let whole = |number: i32| vec![F::of(f64::from(number))];
        Ok(vec![
            ("norm", vec![norm]),
            ("factor", vec![factor]),
            ("update", whole(update)),
            ("halted", whole(state.halted)),
            ("loss_scale", vec![F::of(f64::from(state.loss_scale))]),
            ("good_steps", whole(state.good_steps)),
            ("skipped_steps", whole(state.skipped_steps)),
        ])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let plain = GradientNorm { clip: Some(0.5), scaling: None, launches: Tensors::All };
        let scaled =
            GradientNorm { scaling: Some(LossScaling { initial: 8.0, interval: 4 }), ..plain.clone() };
        let each = GradientNorm { launches: Tensors::Each, ..plain.clone() };
        let start = State { halted: 0, loss_scale: 8.0, good_steps: 3, skipped_steps: 2 };
        let spoilt = |value| Spoilt { gradient: value, loss: 1.0 };
        let sound = spoilt(1.0);
        vec![
            one("clipped", plain.clone(), start, sound),
            one("a launch each", each, start, sound),
            one("not clipped", GradientNorm { clip: None, ..plain.clone() }, start, sound),
            one("halted before", plain.clone(), State { halted: 3, ..start }, sound),
            one("infinite", plain.clone(), start, spoilt(f32::INFINITY)),
            one("loss infinite", plain, start, Spoilt { gradient: 1.0, loss: f32::NEG_INFINITY }),
            one("the scale grows", scaled.clone(), start, sound),
            one("the scale is halved", scaled.clone(), start, spoilt(f32::INFINITY)),
            one("at scale 1", scaled, State { loss_scale: 1.0, ..start }, spoilt(f32::INFINITY)),
        ]
    }
}

/// One element of a gradient, and the loss.
#[cfg(feature = "reference")]
#[derive(Clone, Copy)]
struct Spoilt {
    gradient: f32,
    loss: f32,
}

/// A case over three tensors.
#[cfg(feature = "reference")]
fn one(label: &str, op: GradientNorm, state: State, Spoilt { gradient, loss }: Spoilt) -> Case {
    let (mut plan, mut fills) = (Plan::default(), Vec::new());
    let mut add = |name: &str, shape: &[usize], fill| input(&mut plan, &mut fills, name, shape, &fill);
    let lengths = [7 * 24, 3, BLOCK_ELEMENTS + 77];
    let mut reads = vec![
        read("gradient", add("gradient", &[7, 24], Fill::Normal(1.0))),
        read("gradient", add("gradient.1", &[3], Fill::Values(vec![-20.0, gradient, 3.0]))),
        read("gradient", add("gradient.2", &[lengths[2]], Fill::Normal(0.1))),
        read("loss", add("loss", &[1], Fill::Values(vec![loss]))),
        read("step", add("step", &[1], Fill::Ints(vec![9]))),
        read("halted", add("halted", &[1], Fill::Ints(vec![state.halted]))),
    ];
    if op.scaling.is_some() {
        reads.extend([
            read("loss_scale", add("loss_scale", &[1], Fill::Values(vec![state.loss_scale]))),
            read("good_steps", add("good_steps", &[1], Fill::Ints(vec![state.good_steps]))),
            read("skipped_steps", add("skipped_steps", &[1], Fill::Ints(vec![state.skipped_steps]))),
        ]);
    }
    let mut writes = Vec::new();
    for (slot, dtype) in [("norm", Dtype::Fp32), ("factor", Dtype::Fp32), ("update", Dtype::I32)] {
        writes.push(write(slot, plan.add(slot, vec![1], dtype, crate::buffer::Role::Output)));
    }
    writes.extend(reads[5..].iter().map(|read| write(read.slot, read.buffer)));
    let partials = plan.add("partials", vec![n_partials(lengths)], Dtype::Fp32, crate::buffer::Role::Scratch);
    writes.push(write("partials", partials));
    let norm = writes[0].buffer;
    plan.steps.push(Step { op: op.into(), reads, writes, phase: Phase::Forward });
    finish(label, plan, fills, norm)
}
