//! Root-mean-square norm and layer norm, of whole rows or of each head in a row.
//!
//! rms: `y = w x / sqrt(mean(x^2) + eps)` (B. Zhang, R. Sennrich, 2019). layer: `y = w (x - mean(x)) /
//! sqrt(var(x) + eps) + b` (J. Ba, J. Kiros, G. Hinton, 2016). With `groups` above 1 a row is that many vectors, each
//! normalised on its own with the same weight. The factor w is a learned weight, 1 + that, or absent.

mod kernels;

pub use kernels::{MULTIPROCESSORS, most_partials};

use super::Operation;
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::Lowered;
use crate::plan::{Io, Step};
use crate::tape::{Tape, read, write};

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, case},
    float::Float,
    reference::{Inputs, Outputs},
};

/// Which norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// Root mean square.
    Rms,
    /// Mean and variance, with a bias.
    Layer,
}

impl NormKind {
    /// Every norm.
    pub const ALL: [Self; 2] = [Self::Rms, Self::Layer];

    /// Its name in attributes and kernels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rms => "rms",
            Self::Layer => "layer",
        }
    }

    /// Has it a bias, and does it subtract the mean?
    #[must_use]
    pub fn has_bias(self) -> bool {
        self == Self::Layer
    }
}

/// What a normalised value is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormWeight {
    /// A learned weight.
    W,
    /// One more than a learned weight.
    OnePlusW,
    /// Nothing; a layer norm has no bias then either.
    None,
}

impl NormWeight {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::W, Self::OnePlusW, Self::None];

    /// Its name in attributes and kernels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::W => "w",
            Self::OnePlusW => "one_plus_w",
            Self::None => "none",
        }
    }

    /// What is added to the stored weight to make the factor.
    #[must_use]
    pub fn offset(self) -> f64 {
        f64::from(u8::from(self == Self::OnePlusW))
    }
}

/// Reads x [rows, groups * d], and where learned weight [d] and bias [d] (layer only). Writes y like x, rstd
/// [rows, groups], mean likewise (layer only). May write copy, which is x.
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// Which norm.
    pub kind: NormKind,
    /// Added under the root.
    pub epsilon: f64,
    /// The learned factor.
    pub weight: NormWeight,
    /// Vectors in a row.
    pub groups: usize,
    /// Columns of a vector over which means are taken: d, unless some of them are padding, which holds zeros (rms
    /// only).
    pub count: usize,
}

/// Reads d_y, x, rstd, weight (where learned), mean (layer only). Writes d_x, and where learned d_weight, d_bias (layer
/// only) and partials [n, 1 or 2, d], the sums of d_weight (and d_bias) over n fixed sets of rows. May write narrow, a copy
/// of what d_x is then, in an element type of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct NormBackward(pub Norm);

impl Norm {
    /// Is there a learned bias?
    #[must_use]
    pub fn has_bias(&self) -> bool {
        self.kind.has_bias() && self.weight != NormWeight::None
    }

    /// What column `i` of a vector is multiplied by.
    #[cfg(feature = "reference")]
    fn factor<F: Float>(&self, inputs: &Inputs<F>, i: usize) -> F {
        inputs.find("weight").map_or(F::of(1.0), |weight| weight[i] + F::of(self.weight.offset()))
    }
}

impl Operation for Norm {
    const NAME: &'static str = "norm";
    const STREAM: &'static [&'static str] = &["x", "copy"];

    fn cost(&self, io: &Io) -> Cost {
        Cost { vector_flops: 5.0 * io.buffer("x").len() as f64, bytes: io.bytes(), ..Cost::default() }
    }

    fn backward(&self, step: &Step, _index: usize, tape: &mut Tape) {
        let Some(d_y) = tape.gradient(step, "y", "d_y") else { return };
        let id = |slot| Tape::id(step, slot).map(|buffer| read(slot, buffer));
        let reads: Vec<_> =
            [Some(d_y), id("x"), id("weight"), id("rstd"), id("mean")].into_iter().flatten().collect();
        let mut writes: Vec<_> = [
            tape.into(step, "x", "d_x"),
            tape.into(step, "weight", "d_weight"),
            tape.into(step, "bias", "d_bias"),
        ]
        .into_iter()
        .flatten()
        .collect();
        if let (Some(x), Some(weight)) = (Tape::id(step, "x"), Tape::id(step, "weight")) {
            let (rows, weight) = (tape.plan().buffer(x).rows(), tape.plan().buffer(weight));
            let (name, d) = (format!("{}.partials", weight.name), weight.len());
            let sums = 1 + usize::from(self.has_bias());
            let n = (rows * self.groups).min(most_partials(d, MULTIPROCESSORS));
            writes.push(write("partials", tape.scratch(name, vec![n, sums, d])));
        }
        tape.emit(NormBackward(self.clone()), reads, writes);
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        kernels::forward(self, io)
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let x = inputs.get("x");
        let d = inputs.dims("x").1 / self.groups;
        let mut y = vec![F::default(); x.len()];
        let (mut rstds, mut means) = (Vec::new(), Vec::new());
        for (row, y) in x.chunks(d).zip(y.chunks_mut(d)) {
            let n = F::of(self.count as f64);
            let mean = match self.kind {
                NormKind::Rms => F::default(),
                NormKind::Layer => row.iter().copied().sum::<F>() / n,
            };
            let variance = row.iter().map(|x| (*x - mean) * (*x - mean)).sum::<F>() / n;
            let rstd = F::of(1.0) / (variance + F::of(self.epsilon)).sqrt();
            for i in 0..d {
                y[i] = (row[i] - mean) * rstd * self.factor(inputs, i);
                if self.has_bias() {
                    y[i] += inputs.get("bias")[i];
                }
            }
            rstds.push(rstd);
            means.push(mean);
        }
        let mut outputs = vec![("y", y), ("rstd", rstds), ("copy", x.to_vec())];
        if self.kind.has_bias() {
            outputs.push(("mean", means));
        }
        Ok(outputs)
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |kind: NormKind, weight: NormWeight, rows: usize, groups: usize, d: usize, epsilon: f64| {
            let label = format!("{} {} {rows}x{groups}x{d}", kind.name(), weight.name());
            let op = Norm { kind, epsilon, weight, groups, count: d };
            let mut reads = vec![("x", vec![rows, groups * d], Fill::Normal(1.3))];
            let mut writes = vec![("y", vec![rows, groups * d]), ("rstd", vec![rows, groups])];
            if weight != NormWeight::None {
                reads.push(("weight", vec![d], Fill::Around(1.0 - weight.offset())));
            }
            if op.has_bias() {
                reads.push(("bias", vec![d], Fill::Normal(0.5)));
            }
            if kind.has_bias() {
                writes.push(("mean", vec![rows, groups]));
            }
            case(&label, op, &reads, &writes)
        };
        let (rms, layer) = (NormKind::Rms, NormKind::Layer);
        let mut cases = vec![
            one(rms, NormWeight::W, 7, 1, 40, 1e-3),
            one(rms, NormWeight::W, 5, 3, 24, 1e-6),
            one(layer, NormWeight::W, 6, 1, 72, 1e-2),
            one(layer, NormWeight::W, 1, 1, 8, 1e-5),
            one(rms, NormWeight::W, 300, 1, 8, 1e-5),
            one(rms, NormWeight::OnePlusW, 9, 2, 56, 1e-4),
            one(layer, NormWeight::OnePlusW, 5, 1, 40, 1e-3),
            one(rms, NormWeight::None, 7, 1, 104, 1e-3),
            one(layer, NormWeight::None, 4, 2, 24, 1e-2),
        ];
        cases.push(with_copies(one(rms, NormWeight::W, 9, 1, 48, 1e-3)));
        cases.push(with_copies(one(layer, NormWeight::W, 5, 2, 24, 1e-3)));
        cases.push(padded(NormWeight::W, 2, 13));
        cases.push(padded(NormWeight::OnePlusW, 1, 21));
        cases
    }
}

impl Operation for NormBackward {
    const NAME: &'static str = "norm_backward";
    const NARROW: &'static [&'static str] = &["d_y"];
    const STREAM: &'static [&'static str] = &["x", "d_x"];

    fn cost(&self, io: &Io) -> Cost {
        Cost { vector_flops: 11.0 * io.buffer("x").len() as f64, bytes: io.bytes(), ..Cost::default() }
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        kernels::backward(self, io)
    }

    /// With `h = (x - mean) rstd` and `g = w d_y`: `d_x = rstd (g - mean(g) - h mean(g h))`, where `mean(g)` falls away
    /// for rms; `d_weight = sum over rows of d_y h`, `d_bias = sum over rows of d_y`.
    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (d_y, x, rstd) = (inputs.get("d_y"), inputs.get("x"), inputs.get("rstd"));
        let layer = self.0.kind.has_bias();
        let d = inputs.dims("x").1 / self.0.groups;
        let n = F::of(self.0.count as f64);
        let mut d_x = vec![F::default(); x.len()];
        let (mut d_weight, mut d_bias) = (vec![F::default(); d], vec![F::default(); d]);
        for row in 0..x.len() / d {
            let (x, d_y) = (&x[row * d..][..d], &d_y[row * d..][..d]);
            let mean = if layer { inputs.get("mean")[row] } else { F::default() };
            let h: Vec<F> = x.iter().map(|x| (*x - mean) * rstd[row]).collect();
            let g: Vec<F> = (0..d).map(|i| self.0.factor(inputs, i) * d_y[i]).collect();
            let mean_g = if layer { g.iter().copied().sum::<F>() / n } else { F::default() };
            let mean_gh = (0..d).map(|i| g[i] * h[i]).sum::<F>() / n;
            for i in 0..d {
                d_x[row * d + i] = rstd[row] * (g[i] - mean_g - h[i] * mean_gh);
                d_weight[i] += d_y[i] * h[i];
                d_bias[i] += d_y[i];
            }
        }
        let narrow = match inputs.added_to("d_x") {
            Some(before) => before.iter().zip(&d_x).map(|(before, d_x)| *before + *d_x).collect(),
            None => d_x.clone(),
        };
        Ok(vec![("d_x", d_x), ("d_weight", d_weight), ("d_bias", d_bias), ("narrow", narrow)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        Vec::new()
    }
}

/// The same where x and its gradient are written a second time.
#[cfg(feature = "reference")]
#[must_use]
pub fn with_copies(mut case: Case) -> Case {
    use super::Op;
    for index in 0..case.plan.steps.len() {
        let step = &case.plan.steps[index];
        let (slot, of) = match &step.op {
            Op::Norm(_) => ("copy", "x"),
            Op::NormBackward(_) => ("narrow", "d_x"),
            _ => continue,
        };
        let shape = case.plan.io(step).buffer(of).shape.clone();
        let copy = case.plan.add(slot, shape, crate::dtype::Dtype::Fp32, crate::buffer::Role::Output);
        case.plan.steps[index].writes.push(write(slot, copy));
    }
    let label = format!("{} with copies", case.label);
    Case { label, plan: crate::passes::memory::place(case.plan), ..case }
}

/// Vectors of `count` columns, each followed by zeros up to a multiple of 8, as queries of an odd width are.
#[cfg(feature = "reference")]
fn padded(weight: NormWeight, groups: usize, count: usize) -> Case {
    let (rows, d) = (5, count.next_multiple_of(8));
    let value = |i: usize| if i % d < count { ((i * i + 3 * i) as f32 * 0.37).sin() } else { 0.0 };
    let values = |n: usize| Fill::Values((0..n).map(value).collect());
    let op = Norm { kind: NormKind::Rms, epsilon: 1e-3, weight, groups, count };
    let reads = [("x", vec![rows, groups * d], values(rows * groups * d)), ("weight", vec![d], values(d))];
    let writes = [("y", vec![rows, groups * d]), ("rstd", vec![rows, groups])];
    case(&format!("{} {rows}x{groups}x{count} in {d}", weight.name()), op, &reads, &writes)
}
