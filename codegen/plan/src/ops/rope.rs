//! Rotary positions (J. Su et al., RoFormer, 2021), in place, on every head of a row.
//!
//! Of each head the first `rotary` columns turn, in pairs (i, i + rotary / 2), as in Llama and GPT-NeoX: with
//! `angle = t f_i`, `f_i = theta^(-2 i / rotary)` at position t, `y_i = x_i cos - x_j sin` and `y_j = x_j cos + x_i sin`.
//! Frequencies may be scaled for longer contexts (see `scaling`). The gradient is the rotation by the opposite angle.

mod scaling;

pub use scaling::RopeScaling;

use super::Operation;
use super::rowwise::{BLOCK, UNEVEN, WIDTH, aligned, count, elements, kernel, launches, pointer};
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::Lowered;
use crate::plan::{Io, Step};
use crate::spec::{KernelSpec, SpecValue, field};
use crate::tape::Tape;

#[cfg(feature = "reference")]
use crate::{
    buffer::Role,
    case::{Case, Fill, copy, finish, input},
    float::Float,
    plan::{Phase, Plan},
    reference::{Inputs, Outputs},
    tape::{read, write},
};

/// Reads x [batch * length, heads * head_dim]. Writes y, which is x's own buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the angles.
    pub theta: f64,
    /// How frequencies are changed for longer contexts.
    pub scaling: RopeScaling,
    /// Columns of a head that turn; even.
    pub rotary: usize,
    /// Distance between heads, in columns.
    pub head_dim: usize,
    /// Rows per sequence.
    pub length: usize,
    /// Rotate back? True in the backward pass.
    pub inverse: bool,
}

/// Heads for which a thread uses the sines and cosines it computed.
const HEADS_PER_THREAD: usize = 4;

impl Rope {
    /// Radians per position of each pair.
    #[must_use]
    pub fn frequencies(&self) -> Vec<f64> {
        let plain = (0..self.rotary / 2).map(|i| self.theta.powf(-2.0 * i as f64 / self.rotary as f64));
        self.scaling.apply(plain.collect(), self.theta)
    }
}

impl Rope {
    /// The frequencies in turns / 2^64 per position.
    fn turns(&self) -> Vec<u64> {
        let turns = |frequency: f64| frequency / std::f64::consts::TAU * 2_f64.powi(64);
        self.frequencies().into_iter().map(|frequency| turns(frequency) as u64).collect()
    }
}

impl Operation for Rope {
    const NAME: &'static str = "rope";

    fn cost(&self, io: &Io) -> Cost {
        Cost { vector_flops: 3.0 * io.buffer("x").len() as f64, bytes: io.bytes(), ..Cost::default() }
    }

    fn backward(&self, step: &Step, _index: usize, tape: &mut Tape) {
        let Some(d_y) = tape.gradient(step, "y", "x") else { return };
        let writes = tape.into(step, "x", "y").into_iter().collect();
        tape.emit(Rope { inverse: !self.inverse, ..self.clone() }, vec![d_y], writes);
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        if io.id("x") != io.id("y") {
            return Lowered::NoKernel("rope rotates in place");
        }
        if !self.head_dim.is_multiple_of(WIDTH) || !aligned(io, &["x"]) {
            return UNEVEN;
        }
        let heads = io.columns("x") / self.head_dim;
        let head_threads = heads.div_ceil(HEADS_PER_THREAD);
        let pairs = self.rotary / 2;
        // As the template: as many pairs per thread as are a whole word, or one.
        let width = [8, 4, 1].into_iter().find(|width| pairs.is_multiple_of(*width)).unwrap_or(1);
        let direction = if self.inverse { "backward" } else { "forward" };
        let spec = KernelSpec {
            template: "rope/rotate",
            block: BLOCK,
            shared_memory: 0,
            fields: vec![
                field("direction", "", SpecValue::Word(direction)),
                field("x_type", "", SpecValue::Type(io.dtype("x"))),
                field("heads", "h", SpecValue::Int(heads as i64)),
                field("head_dim", "d", SpecValue::Int(self.head_dim as i64)),
                field("pairs", "p", SpecValue::Int(pairs as i64)),
                field("theta", "theta", SpecValue::Float(self.theta)),
                field("scaling", "", SpecValue::Text(self.scaling.spelled())),
                field("factor", "f", SpecValue::Float(self.scaling.attention_factor())),
                field("head_threads", "ht", SpecValue::Int(head_threads as i64)),
                field("turns", "", SpecValue::Table(self.turns())),
            ],
        };
        let rows = io.rows("x");
        let blocks = (rows * head_threads * (pairs / width)).div_ceil(BLOCK as usize);
        let stride = elements(io.row_stride("x"));
        let arguments = vec![pointer(io, "y"), count(rows), count(self.length), stride];
        launches([kernel(spec, [blocks, 1, 1], arguments)])
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let mut y = inputs.get("x").to_vec();
        let (_, columns) = inputs.dims("x");
        let (half, frequencies) = (self.rotary / 2, self.frequencies());
        let (sign, factor) = (if self.inverse { -1.0 } else { 1.0 }, self.scaling.attention_factor());
        for (row, y) in y.chunks_mut(columns).enumerate() {
            for head in y.chunks_mut(self.head_dim) {
                for i in 0..half {
                    let angle = (row % self.length) as f64 * frequencies[i];
                    let (cos, sin) = (F::of(factor * angle.cos()), F::of(factor * sign * angle.sin()));
                    let (a, b) = (head[i], head[i + half]);
                    head[i] = a * cos - b * sin;
                    head[i + half] = b * cos + a * sin;
                }
            }
        }
        Ok(vec![("y", y)])
    }

    /// The rotated columns are a view in the middle of a wider buffer.
    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |(batch, length, heads): (usize, usize, usize), head_dim: usize, op: Rope| {
            let mut plan = Plan::default();
            let mut fills = Vec::new();
            let (rows, columns) = (batch * length, (heads + 2) * head_dim);
            let x = input(&mut plan, &mut fills, "x", &[rows, columns], &Fill::Normal(1.0));
            let wide = copy(&mut plan, x, "wide", Role::Activation);
            let view = plan.add_view("view", wide, head_dim..(heads + 1) * head_dim);
            plan.steps.push(Step {
                op: Rope { head_dim, length, ..op.clone() }.into(),
                reads: vec![read("x", view)],
                writes: vec![write("y", view)],
                phase: Phase::Forward,
            });
            let y = copy(&mut plan, wide, "y", Role::Output);
            let label = format!("{batch}x{length}x{heads}x{head_dim}, {} turn, {:?}", op.rotary, op.scaling);
            finish(&label, plan, fills, y)
        };
        let op = |theta: f64, rotary: usize, scaling: RopeScaling| Rope {
            theta,
            scaling,
            rotary,
            head_dim: 0,
            length: 0,
            inverse: false,
        };
        let llama3 = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.5,
            high_freq_factor: 3.0,
            original_context: 40,
        };
        let yarn = RopeScaling::Yarn {
            factor: 4.0,
            original_context: 24,
            beta_fast: 3.0,
            beta_slow: 0.5,
            attention_factor: 1.2,
        };
        vec![
            one((2, 5, 3), 24, op(1e3, 24, RopeScaling::None)),
            one((1, 33, 1), 8, op(5e5, 8, RopeScaling::None)),
            one((3, 1, 2), 16, op(1e4, 16, RopeScaling::None)),
            one((2, 7, 3), 40, op(1e4, 10, RopeScaling::None)),
            one((1, 9, 2), 16, op(300.0, 14, RopeScaling::None)),
            one((2, 37, 2), 32, op(50.0, 32, llama3)),
            one((2, 37, 2), 24, op(90.0, 16, yarn)),
        ]
    }
}
