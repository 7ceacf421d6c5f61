//! Root-mean-square norm and layer norm, of whole rows or of each head in a row.
//!
//! rms: `y = w x / sqrt(mean(x^2) + eps)` (B. Zhang, R. Sennrich, 2019). layer: `y = w (x - mean(x)) /
//! sqrt(var(x) + eps) + b` (J. Ba, J. Kiros, G. Hinton, 2016). With `groups` above 1 a row is that many vectors, each
//! normalised on its own with the same weight. The factor w is a learned weight, 1 + that, or absent.

use super::Operation;
use super::rowwise::{
    MISSING, UNEVEN, WARP, WIDTH, accumulate, column_totals, count, elements, kernel, launches, pointer,
};
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::{Launch, Lowered};
use crate::plan::{Io, Step};
use crate::spec::{KernelSpec, SpecField, SpecValue, field};
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
/// [rows, groups], mean likewise (layer only).
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
/// only) and partials [n, 1 or 2, d], the sums of d_weight (and d_bias) over n fixed sets of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct NormBackward(pub Norm);

/// Most sets of rows over which weight gradients are summed before the second stage; fixed, so that the order of the
/// sum does not depend on the GPU.
pub const PARTIALS: usize = 256;

/// Widest row that the forward kernel holds in registers.
const FORWARD_COLUMNS: usize = 16384;

/// Widest row that the backward kernel holds in registers, with its sums.
const BACKWARD_COLUMNS: usize = 8192;

/// Widest row that one warp walks alone.
const WARP_COLUMNS: usize = 1024;

/// Most threads that share a row.
const ROW_THREADS: usize = 512;

/// How the threads of a block are dealt out to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Threads {
    row: usize,
    block: usize,
}

/// Part of a warp for short rows, a warp for longer ones, the block for the longest.
fn forward_threads(columns: usize) -> Threads {
    let parts = columns / WIDTH;
    if columns <= WARP_COLUMNS {
        return Threads { row: parts.next_power_of_two().min(WARP), block: 128 };
    }
    let row = parts.div_ceil(parts.div_ceil(ROW_THREADS)).next_multiple_of(WARP);
    Threads { row, block: row }
}

/// As forward, but with so many threads per block that a thread's registers leave room for a second block: there are
/// few blocks, since each leaves a partial sum.
fn backward_threads(columns: usize) -> Threads {
    let Threads { row, block } = forward_threads(columns);
    let per_thread = (columns / WIDTH).div_ceil(row);
    Threads { row, block: if row > WARP { block } else { [512, 256, 128, 128][per_thread - 1] } }
}

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

    /// What forward and backward kernels have in common, in the order of their names.
    fn fields(&self, io: &Io, columns: usize, threads: Threads) -> Vec<SpecField> {
        vec![
            field("kind", "", SpecValue::Word(self.kind.name())),
            field("x_type", "", SpecValue::Type(io.dtype("x"))),
            field("bias", "bias", SpecValue::Bool(self.has_bias())),
            field("groups", "g", SpecValue::Int(self.groups as i64)),
            field("columns", "d", SpecValue::Int(columns as i64)),
            field("row_threads", "rt", SpecValue::Int(threads.row as i64)),
        ]
    }
}

impl NormBackward {
    /// `d_x`, and a sum of `d_weight` and `d_bias` per block.
    fn rows_launch(&self, io: &Io, columns: usize) -> Option<Launch> {
        let threads = backward_threads(columns);
        let mut fields = self.0.fields(io, columns, threads);
        fields.insert(1, field("dy_type", "", SpecValue::Type(io.dtype("d_y"))));
        fields.insert(3, field("dx_type", "", SpecValue::Type(io.dtype("d_x"))));
        let warps = threads.block / WARP;
        // Two sums over the block for a row; or, among warps with rows of their own, one partial sum.
        let floats = if threads.row > WARP { 2 * warps } else { self.sums() * columns };
        let spec = KernelSpec {
            template: "norm/backward",
            block: threads.block as u32,
            shared_memory: 4 * floats as u32,
            fields,
        };
        let slots = ["d_x", "partials", "d_y", "x", "weight", "mean", "rstd"];
        let mut arguments: Vec<_> = slots.iter().map(|slot| pointer(io, slot)).collect();
        arguments.push(count(io.rows("x")));
        arguments.extend(["d_x", "d_y", "x"].map(|slot| elements(io.row_stride(slot))));
        arguments.push(accumulate(io, "d_x"));
        kernel(spec, [self.partials(io), 1, 1], arguments)
    }

    /// The blocks' sums, added up.
    fn weight_launch(&self, io: &Io, columns: usize) -> Option<Launch> {
        let bias = self.0.has_bias().then_some("d_bias");
        column_totals(io, [Some("d_weight"), bias], "partials", columns, accumulate(io, "d_weight"))
    }

    fn partials(&self, io: &Io) -> usize {
        io.buffer("partials").shape[0]
    }

    fn sums(&self) -> usize {
        1 + usize::from(self.0.has_bias())
    }
}

impl Operation for Norm {
    const NAME: &'static str = "norm";
    const STREAM: &'static [&'static str] = &["x"];

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
            let n = (rows * self.groups).min(PARTIALS);
            writes.push(write("partials", tape.scratch(name, vec![n, sums, d])));
        }
        tape.emit(NormBackward(self.clone()), reads, writes);
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let columns = io.columns("x") / self.groups;
        if self.weight != NormWeight::W || self.count != columns {
            return Lowered::NoKernel("no kernel yet");
        }
        if !columns.is_multiple_of(WIDTH) {
            return UNEVEN;
        }
        if columns > FORWARD_COLUMNS {
            return Lowered::NoKernel("no kernel yet for rows that wide");
        }
        let threads = forward_threads(columns);
        let mut fields = self.fields(io, columns, threads);
        fields.insert(2, field("y_type", "", SpecValue::Type(io.dtype("y"))));
        fields.push(field("epsilon", "eps", SpecValue::Float(self.epsilon)));
        let shared_memory = if threads.row > WARP { 4 * threads.block / WARP } else { 0 };
        let spec = KernelSpec {
            template: "norm/forward",
            block: threads.block as u32,
            shared_memory: shared_memory as u32,
            fields,
        };
        let rows = io.rows("x");
        let blocks = (rows * self.groups).div_ceil(threads.block / threads.row);
        let mut arguments =
            ["y", "mean", "rstd", "x", "weight", "bias"].map(|slot| pointer(io, slot)).to_vec();
        arguments.extend([count(rows), elements(io.row_stride("y")), elements(io.row_stride("x"))]);
        launches([kernel(spec, [blocks, 1, 1], arguments)])
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
        let mut outputs = vec![("y", y), ("rstd", rstds)];
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
        if ["d_x", "d_weight", "partials"].iter().any(|slot| !io.has(slot)) {
            return MISSING;
        }
        let columns = io.columns("x") / self.0.groups;
        if self.0.weight != NormWeight::W || self.0.count != columns {
            return Lowered::NoKernel("no kernel yet");
        }
        if !columns.is_multiple_of(WIDTH) {
            return UNEVEN;
        }
        if columns > BACKWARD_COLUMNS {
            return Lowered::NoKernel("no kernel yet for rows that wide");
        }
        launches([self.rows_launch(io, columns), self.weight_launch(io, columns)])
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
        Ok(vec![("d_x", d_x), ("d_weight", d_weight), ("d_bias", d_bias)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        Vec::new()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_cover_every_row_and_few_stay_idle() {
        for columns in (8..=FORWARD_COLUMNS).step_by(8) {
            for threads in [forward_threads(columns), backward_threads(columns.min(BACKWARD_COLUMNS))] {
                assert_eq!(threads.block % WARP, 0, "{columns}");
                let within_warp = threads.row.is_power_of_two() && threads.row <= WARP;
                assert!(threads.row == threads.block || within_warp, "{columns}: {threads:?}");
            }
            let row = forward_threads(columns).row;
            let each = (columns / WIDTH).div_ceil(row);
            assert!(each <= 4, "{columns}: {each} parts per thread");
            assert!(row * each < 2 * columns / WIDTH + WARP, "{columns}: {row} threads");
        }
    }
}
