//! Root-mean-square norm and layer norm, of whole rows or of each head in a row.
//!
//! rms: `y = w x / sqrt(mean(x^2) + eps)` (B. Zhang, R. Sennrich, 2019). layer: `y = w (x - mean(x)) /
//! sqrt(var(x) + eps) + b` (J. Ba, J. Kiros, G. Hinton, 2016). With `groups` above 1 a row is that many vectors, each
//! normalised on its own with the same weight.

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

/// Reads x [rows, groups * d], weight [d], bias [d] (layer only). Writes y like x, rstd [rows, groups], mean likewise
/// (layer only).
#[derive(Clone, Debug, PartialEq)]
pub struct Norm {
    /// Which norm.
    pub kind: NormKind,
    /// Added under the root.
    pub epsilon: f64,
    /// Vectors in a row.
    pub groups: usize,
}

/// Reads d_y, x, weight, rstd, mean (layer only). Writes d_x, d_weight, d_bias (layer only), and partials
/// [n, 1 or 2, d], the sums of d_weight (and d_bias) over n fixed sets of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct NormBackward(pub Norm);

/// Most sets of rows over which weight gradients are summed before the second stage; fixed, so that the order of the
/// sum does not depend on the GPU.
pub const PARTIALS: usize = 256;

impl Operation for Norm {
    const NAME: &'static str = "norm";

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
        let plan = tape.plan();
        let rows = step.reads.iter().find(|r| r.slot == "x").map_or(1, |r| plan.buffer(r.buffer).rows());
        let weight = step.reads.iter().find(|r| r.slot == "weight").map(|r| plan.buffer(r.buffer));
        let (name, d) = weight.map_or((String::new(), 1), |weight| (weight.name.clone(), weight.len()));
        let sums = 1 + usize::from(self.kind.has_bias());
        let n = (rows * self.groups).min(PARTIALS);
        let partials = tape.scratch(format!("{name}.partials"), vec![n, sums, d]);
        writes.push(write("partials", partials));
        tape.emit(NormBackward(self.clone()), reads, writes);
    }

    fn lower(&self, _io: &Io, _arch: &Arch) -> Lowered {
        Lowered::NoKernel("no kernel yet")
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (x, weight) = (inputs.get("x"), inputs.get("weight"));
        let d = weight.len();
        let mut y = vec![F::default(); x.len()];
        let (mut rstds, mut means) = (Vec::new(), Vec::new());
        for (row, y) in x.chunks(d).zip(y.chunks_mut(d)) {
            let n = F::of(d as f64);
            let mean = match self.kind {
                NormKind::Rms => F::default(),
                NormKind::Layer => row.iter().copied().sum::<F>() / n,
            };
            let variance = row.iter().map(|x| (*x - mean) * (*x - mean)).sum::<F>() / n;
            let rstd = F::of(1.0) / (variance + F::of(self.epsilon)).sqrt();
            for i in 0..d {
                y[i] = (row[i] - mean) * rstd * weight[i];
                if self.kind.has_bias() {
                    y[i] += inputs.get("bias")[i];
                }
            }
            rstds.push(rstd);
            means.push(mean);
        }
        let mut outputs = vec![("y", y), ("rstd", rstds)];
        if self.kind.has_bias() {
            outputs.push(("mean", means));
        }
        Ok(outputs)
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |kind: NormKind, rows: usize, groups: usize, d: usize, epsilon: f64| {
            let label = format!("{} {rows}x{groups}x{d}", kind.name());
            let mut reads = vec![
                ("x", vec![rows, groups * d], Fill::Normal(1.3)),
                ("weight", vec![d], Fill::Around(1.0)),
            ];
            let mut writes = vec![("y", vec![rows, groups * d]), ("rstd", vec![rows, groups])];
            if kind.has_bias() {
                reads.push(("bias", vec![d], Fill::Normal(0.5)));
                writes.push(("mean", vec![rows, groups]));
            }
            case(&label, Norm { kind, epsilon, groups }, &reads, &writes)
        };
        vec![
            one(NormKind::Rms, 7, 1, 40, 1e-3),
            one(NormKind::Rms, 5, 3, 24, 1e-6),
            one(NormKind::Layer, 6, 1, 72, 1e-2),
            one(NormKind::Layer, 1, 1, 8, 1e-5),
            one(NormKind::Rms, 300, 1, 8, 1e-5),
        ]
    }
}

impl Operation for NormBackward {
    const NAME: &'static str = "norm_backward";
    const NARROW: &'static [&'static str] = &["d_y"];

    fn cost(&self, io: &Io) -> Cost {
        Cost { vector_flops: 11.0 * io.buffer("x").len() as f64, bytes: io.bytes(), ..Cost::default() }
    }

    fn lower(&self, _io: &Io, _arch: &Arch) -> Lowered {
        Lowered::NoKernel("no kernel yet")
    }

    /// With `h = (x - mean) rstd` and `g = w d_y`: `d_x = rstd (g - mean(g) - h mean(g h))`, where `mean(g)` falls away
    /// for rms; `d_weight = sum over rows of d_y h`, `d_bias = sum over rows of d_y`.
    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (d_y, x, weight, rstd) =
            (inputs.get("d_y"), inputs.get("x"), inputs.get("weight"), inputs.get("rstd"));
        let layer = self.0.kind.has_bias();
        let d = weight.len();
        let n = F::of(d as f64);
        let mut d_x = vec![F::default(); x.len()];
        let (mut d_weight, mut d_bias) = (vec![F::default(); d], vec![F::default(); d]);
        for row in 0..x.len() / d {
            let (x, d_y) = (&x[row * d..][..d], &d_y[row * d..][..d]);
            let mean = if layer { inputs.get("mean")[row] } else { F::default() };
            let h: Vec<F> = x.iter().map(|x| (*x - mean) * rstd[row]).collect();
            let g: Vec<F> = (0..d).map(|i| weight[i] * d_y[i]).collect();
            let mean_g = if layer { g.iter().copied().sum::<F>() / n } else { F::default() };
            let mean_gh = (0..d).map(|i| g[i] * h[i]).sum::<F>() / n;
            for i in 0..d {
                d_x[row * d + i] = rstd[row] * (g[i] - mean_g - h[i] * mean_gh);
                d_weight[i] += d_y[i] * h[i];
                d_bias[i] += d_y[i];
            }
        }
        let mut outputs = vec![("d_x", d_x), ("d_weight", d_weight)];
        if layer {
            outputs.push(("d_bias", d_bias));
        }
        Ok(outputs)
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        Vec::new()
    }
}
