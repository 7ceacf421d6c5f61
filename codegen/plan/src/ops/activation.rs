//! Activations of the feed-forward, plain or gated.
//!
//! gelu: `x/2 (1 + erf(x / sqrt 2))`; gelu_tanh: `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))` (D. Hendrycks,
//! K. Gimpel, 2016). relu: `max(x, 0)`; relu2: its square (D. So et al., Primer, 2021). Gated, as `f(gate) up`: swiglu with
//! `silu(x) = x / (1 + e^-x)`, geglu and geglu_tanh with the two forms of gelu (N. Shazeer, 2020).

use super::Operation;
use super::rowwise::{
    BLOCK, UNEVEN, VIEW, WIDTH, accumulate, any_view, count, elements, elementwise, pointer,
};
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::Lowered;
use crate::plan::{Io, Step};
use crate::spec::{KernelSpec, SpecValue, field};
use crate::tape::{Tape, read};

use crate::float::Float;
#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, case},
    reference::{Inputs, Outputs},
};

/// Which activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationKind {
    /// Gated by silu.
    Swiglu,
    /// By the error function.
    Gelu,
    /// By the hyperbolic tangent.
    GeluTanh,
    /// Gated by gelu.
    Geglu,
    /// Gated by the tanh form of gelu.
    GegluTanh,
    /// The positive part.
    Relu,
    /// The square of the positive part.
    Relu2,
}

impl ActivationKind {
    /// Every activation.
    pub const ALL: [Self; 7] =
        [Self::Swiglu, Self::Gelu, Self::GeluTanh, Self::Geglu, Self::GegluTanh, Self::Relu, Self::Relu2];

    /// Its name in attributes and kernels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Swiglu => "swiglu",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu_tanh",
            Self::Geglu => "geglu",
            Self::GegluTanh => "geglu_tanh",
            Self::Relu => "relu",
            Self::Relu2 => "relu2",
        }
    }

    /// Has it a gate beside the value it scales?
    #[must_use]
    pub fn is_gated(self) -> bool {
        matches!(self, Self::Swiglu | Self::Geglu | Self::GegluTanh)
    }

    /// Columns it reads per column it writes.
    #[must_use]
    pub fn inputs(self) -> usize {
        1 + usize::from(self.is_gated())
    }

    /// The activation function proper (of the gate, when there is one) and its derivative at `x`.
    pub fn value_and_slope<F: Float>(self, x: F) -> (F, F) {
        let (one, half) = (F::of(1.0), F::of(0.5));
        match self {
            Self::Swiglu => {
                let s = one / (one + (-x).exp());
                (x * s, s * (one + x * (one - s)))
            }
            Self::Gelu | Self::Geglu => {
                let cdf = half * (one + (x * F::of(std::f64::consts::FRAC_1_SQRT_2)).erf());
                let density = F::of((2.0 * std::f64::consts::PI).sqrt().recip()) * (-half * x * x).exp();
                (x * cdf, cdf + x * density)
            }
            Self::GeluTanh | Self::GegluTanh => {
                let (a, b) = (F::of((2.0 / std::f64::consts::PI).sqrt()), F::of(0.044_715));
                let t = (a * (x + b * x * x * x)).tanh();
                let slope = half * (one + t) + half * x * (one - t * t) * a * (one + F::of(3.0) * b * x * x);
                (half * x * (one + t), slope)
            }
            Self::Relu | Self::Relu2 if x <= F::default() => (F::default(), F::default()),
            Self::Relu => (x, one),
            Self::Relu2 => (x * x, F::of(2.0) * x),
        }
    }
}

/// Reads x [rows, d] or, gated, [rows, 2 d] with the gate in the first half. Writes y [rows, d].
#[derive(Clone, Debug, PartialEq)]
pub struct Activation {
    /// Which one.
    pub kind: ActivationKind,
}

/// Reads d_y, x. Writes d_x.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivationBackward {
    /// Which one.
    pub kind: ActivationKind,
}

impl Operation for Activation {
    const NAME: &'static str = "activation";
    const NARROW: &'static [&'static str] = &["x"];

    fn cost(&self, io: &Io) -> Cost {
        Cost { vector_flops: 6.0 * io.buffer("y").len() as f64, bytes: io.bytes(), ..Cost::default() }
    }

    fn backward(&self, step: &Step, _index: usize, tape: &mut Tape) {
        let Some(d_y) = tape.gradient(step, "y", "d_y") else { return };
        let x = Tape::id(step, "x").map(|buffer| read("x", buffer));
        let writes = tape.into(step, "x", "d_x").into_iter().collect();
        let reads = [Some(d_y), x].into_iter().flatten().collect();
        tape.emit(ActivationBackward { kind: self.kind }, reads, writes);
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let (rows, d_ff) = (io.rows("y"), io.columns("y"));
        if !d_ff.is_multiple_of(WIDTH) {
            return UNEVEN;
        }
        if any_view(io, &["y", "x"]) {
            return VIEW;
        }
        let mut fields = vec![
            field("kind", "", SpecValue::Word(self.kind.name())),
            field("x_type", "", SpecValue::Type(io.dtype("x"))),
            field("y_type", "", SpecValue::Type(io.dtype("y"))),
        ];
        let (template, size) = if self.kind.is_gated() {
            fields.push(field("d_ff", "d", SpecValue::Int(d_ff as i64)));
            ("activation/gated_forward", count(rows))
        } else {
            ("activation/plain_forward", elements(rows * d_ff))
        };
        let spec = KernelSpec { template, block: BLOCK, shared_memory: 0, fields };
        elementwise(spec, rows * d_ff, vec![pointer(io, "y"), pointer(io, "x"), size])
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let x = inputs.get("x");
        let (_, d) = inputs.output_dims("y");
        let mut y = Vec::new();
        for row in x.chunks(self.kind.inputs() * d) {
            for i in 0..d {
                let (value, _) = self.kind.value_and_slope(row[i]);
                y.push(if self.kind.is_gated() { value * row[d + i] } else { value });
            }
        }
        Ok(vec![("y", y)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let sizes = [(5, 24), (1, 8), (9, 40)];
        let one = |kind: ActivationKind, rows: usize, d: usize| {
            let reads = [("x", vec![rows, kind.inputs() * d], Fill::Normal(2.0))];
            let label = format!("{} {rows}x{d}", kind.name());
            case(&label, Activation { kind }, &reads, &[("y", vec![rows, d])])
        };
        let all = ActivationKind::ALL.iter();
        all.flat_map(|kind| sizes.map(|(rows, d)| one(*kind, rows, d))).collect()
    }
}

impl Operation for ActivationBackward {
    const NAME: &'static str = "activation_backward";
    const NARROW: &'static [&'static str] = &["d_y", "x"];

    fn cost(&self, io: &Io) -> Cost {
        Cost { vector_flops: 12.0 * io.buffer("d_y").len() as f64, bytes: io.bytes(), ..Cost::default() }
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let (rows, d_ff) = (io.rows("d_y"), io.columns("d_y"));
        if !d_ff.is_multiple_of(WIDTH) {
            return UNEVEN;
        }
        if any_view(io, &["d_x", "d_y", "x"]) {
            return VIEW;
        }
        let mut fields = vec![
            field("kind", "", SpecValue::Word(self.kind.name())),
            field("dy_type", "", SpecValue::Type(io.dtype("d_y"))),
            field("x_type", "", SpecValue::Type(io.dtype("x"))),
            field("dx_type", "", SpecValue::Type(io.dtype("d_x"))),
        ];
        let (template, size) = if self.kind.is_gated() {
            fields.push(field("d_ff", "d", SpecValue::Int(d_ff as i64)));
            ("activation/gated_backward", count(rows))
        } else {
            ("activation/plain_backward", elements(rows * d_ff))
        };
        let spec = KernelSpec { template, block: BLOCK, shared_memory: 0, fields };
        let slots = ["d_x", "d_y", "x"].map(|slot| pointer(io, slot));
        elementwise(spec, rows * d_ff, [&slots[..], &[size, accumulate(io, "d_x")]].concat())
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (d_y, x) = (inputs.get("d_y"), inputs.get("x"));
        let (_, d) = inputs.dims("d_y");
        let width = self.kind.inputs() * d;
        let mut d_x = vec![F::default(); x.len()];
        for (row, d_y) in d_y.chunks(d).enumerate() {
            for i in 0..d {
                let at = row * width + i;
                let (value, slope) = self.kind.value_and_slope(x[at]);
                d_x[at] = d_y[i] * slope;
                if self.kind.is_gated() {
                    d_x[at] = d_x[at] * x[at + d];
                    d_x[at + d] = d_y[i] * value;
                }
            }
        }
        Ok(vec![("d_x", d_x)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        Vec::new()
    }
}
