//! A matrix product with a weight: `y = x weight^T (+ bias) (+ residual)`, weight [outputs, inputs]; or the gelu of that, in
//! its tanh form, which a matrix library computes before it writes a sum.

mod backward;

pub use backward::LinearBackward;

use super::Operation;
use super::activation::{ActivationBackward, ActivationKind};
use super::rowwise::{UNEVEN, aligned, partials_shape};
use crate::arch::Arch;
use crate::cost::Cost;
use crate::dtype::Dtype;
use crate::launch::{Epilogue, Gemm, Launch, Lowered, Operand};
use crate::plan::{Io, Mode, Step, Write};
use crate::tape::{Tape, read, write};

#[cfg(feature = "reference")]
use crate::{
    buffer::Role,
    case::{Case, Fill, case, finish, input},
    float::Float,
    ops::activation::Activation,
    passes::{gelu, memory},
    plan::{Phase, Plan},
    reference::{Inputs, Outputs},
};

/// The gelu that a product takes in.
pub const GELU: ActivationKind = ActivationKind::GeluTanh;

/// Reads x [rows, inputs], weight [outputs, inputs], and where present bias [outputs] and residual [rows, outputs].
/// Writes y [rows, outputs] and, where y is a gelu that has a gradient, gelu_input [rows, outputs], what it is the gelu of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Linear {
    /// Is y the gelu of the sum? Then there is no residual, and y is replaced.
    pub gelu: bool,
}

/// What `lower` says of a gelu in a product that a matrix library does not do.
const NO_GELU: Lowered = Lowered::NoKernel(
    "a product takes in a gelu where operands, result and the gelu's input are of one narrow type and nothing but a \
     bias is added",
);

/// May a product do something with each sum before it is written, where it has operands and results in these slots?
fn takes_in(io: &Io, slots: &[&str]) -> bool {
    let mut types = slots.iter().filter(|slot| io.has(slot)).map(|slot| io.dtype(slot));
    let first = types.next();
    first.is_some_and(|first| first.bytes() < Dtype::Fp32.bytes() && types.all(|other| other == first))
}

/// Where the gradients of x, weight and bias go, and the scratch of a bias's, summed over `rows` rows at a time.
pub(super) fn gradient_writes(step: &Step, tape: &mut Tape, rows: usize) -> Vec<Write> {
    let writes = [
        tape.into(step, "x", "d_x"),
        tape.into(step, "weight", "d_weight"),
        tape.into(step, "bias", "d_bias"),
    ];
    let mut writes: Vec<_> = writes.into_iter().flatten().collect();
    if let Some(bias) = Tape::id(step, "bias") {
        let bias = tape.plan().buffer(bias);
        let (name, shape) = (format!("{}.partials", bias.name), partials_shape(rows, bias.len()));
        writes.push(write("partials", tape.scratch(name, shape)));
    }
    writes
}

impl Operation for Linear {
    const NAME: &'static str = "linear";
    const NARROW: &'static [&'static str] = &["x", "weight"];
    const STREAM: &'static [&'static str] = &["residual"];

    fn cost(&self, io: &Io) -> Cost {
        let (y, inputs) = (io.buffer("y").len() as f64, io.columns("x") as f64);
        let gelu = if self.gelu { 6.0 * y } else { 0.0 };
        Cost { tensor_flops: 2.0 * y * inputs, vector_flops: gelu, bytes: io.bytes() }
    }

    /// A gelu whose input is not written has no gradient.
    fn backward(&self, step: &Step, index: usize, tape: &mut Tape) {
        let Some(mut d_y) = tape.gradient(step, "y", "d_y") else { return };
        let id = |slot| Tape::id(step, slot).map(|buffer| read(slot, buffer));
        if self.gelu {
            let (Some(input), Some(to)) = (id("gelu_input"), tape.into(step, "gelu_input", "d_x")) else {
                return;
            };
            let reads = vec![d_y, read("x", input.buffer)];
            tape.emit(ActivationBackward { kind: GELU }, reads, vec![to]);
            d_y = read("d_y", to.buffer);
        }
        let reads = [Some(d_y), id("x"), id("weight")].into_iter().flatten().collect();
        let rows = tape.plan().buffer(d_y.buffer).rows();
        let writes = gradient_writes(step, tape, rows);
        tape.emit(LinearBackward, reads, writes);
        tape.pass_on(step, index, "y", &["residual"]);
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let operand =
            |slot, transposed| io.id(slot).map(|buffer| Operand { transposed, ..Operand::plain(buffer) });
        let (Some(a), Some(b), Some(d)) = (operand("x", false), operand("weight", true), io.id("y")) else {
            return Lowered::NoKernel("the step lacks a slot");
        };
        let replaces = io.mode("y") == Some(Mode::Overwrite);
        if !replaces && io.has("residual") {
            return Lowered::NoKernel("a product adds to what is there or to a residual, not to both");
        }
        if self.gelu {
            let slots = ["x", "weight", "bias", "y", "gelu_input"];
            if !replaces || io.has("residual") || !takes_in(io, &slots) {
                return NO_GELU;
            }
            if !aligned(io, &["y", "gelu_input"]) {
                return UNEVEN;
            }
        }
        Lowered::Launches(vec![Launch::Gemm(Gemm {
            a,
            b,
            c: if replaces { io.id("residual") } else { Some(d) },
            bias: io.id("bias"),
            d,
            epilogue: if self.gelu { Epilogue::Gelu(io.id("gelu_input")) } else { Epilogue::None },
            row: 0,
            batches: Vec::new(),
            m: io.rows("y"),
            n: io.columns("y"),
            k: io.columns("x"),
        })])
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (x, weight) = (inputs.get("x"), inputs.get("weight"));
        let (rows, k) = inputs.dims("x");
        let (n, _) = inputs.dims("weight");
        let mut y = vec![F::default(); rows * n];
        for row in 0..rows {
            for column in 0..n {
                let mut sum = F::default();
                for i in 0..k {
                    sum += inputs.operand(x[row * k + i]) * inputs.operand(weight[column * k + i]);
                }
                if let Some(bias) = inputs.find("bias") {
                    sum += bias[column];
                }
                if let Some(residual) = inputs.find("residual") {
                    sum += residual[row * n + column];
                }
                y[row * n + column] = sum;
            }
        }
        if !self.gelu {
            return Ok(vec![("y", y)]);
        }
        let activated = y.iter().map(|sum| GELU.value_and_slope(*sum).0).collect();
        Ok(vec![("y", activated), ("gelu_input", y)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |rows: usize, k: usize, n: usize, extras: &[&'static str]| {
            let mut reads =
                vec![("x", vec![rows, k], Fill::Normal(1.0)), ("weight", vec![n, k], Fill::Normal(0.5))];
            for extra in extras.iter().filter(|extra| !extra.starts_with("gelu")) {
                let shape = if *extra == "bias" { vec![n] } else { vec![rows, n] };
                reads.push((extra, shape, Fill::Normal(0.7)));
            }
            let mut writes = vec![("y", vec![rows, n])];
            writes.extend(extras.contains(&"gelu_input").then(|| ("gelu_input", vec![rows, n])));
            let label = format!("{rows}x{k} -> {n} {}", extras.join("+"));
            let gelu = extras.iter().any(|extra| extra.starts_with("gelu"));
            case(&label, Linear { gelu }, &reads, &writes)
        };
        vec![
            one(5, 24, 16, &[]),
            one(1, 8, 40, &["bias"]),
            one(67, 40, 24, &["bias", "residual"]),
            one(3, 16, 8, &["residual"]),
            one(67, 24, 40, &["bias", "gelu"]),
            one(9, 40, 56, &["bias", "gelu_input"]),
            one(1, 16, 24, &["gelu_input"]),
            feed_forward(13, [24, 56, 16], true),
            feed_forward(5, [8, 40, 24], false),
        ]
    }
}

/// Two products with a gelu between, both of whose directions are taken into them.
#[cfg(feature = "reference")]
fn feed_forward(rows: usize, [inputs, hidden, outputs]: [usize; 3], biases: bool) -> Case {
    let (mut plan, mut fills) = (Plan::default(), Vec::new());
    let mut x = input(&mut plan, &mut fills, "x", &[rows, inputs], &Fill::Normal(1.0));
    for (name, columns, k) in [("up", hidden, inputs), ("down", outputs, hidden)] {
        let mut add =
            |name: String, shape: &[usize]| input(&mut plan, &mut fills, &name, shape, &Fill::Normal(0.5));
        let mut reads = vec![read("x", x), read("weight", add(format!("{name}.weight"), &[columns, k]))];
        reads.extend(biases.then(|| read("bias", add(format!("{name}.bias"), &[columns]))));
        let mut write_to = |name: &str, role| plan.add(name, vec![rows, columns], Dtype::Fp32, role);
        let y = write_to(name, if name == "down" { Role::Output } else { Role::Activation });
        let step = |op, reads, y| Step { op, reads, writes: vec![write("y", y)], phase: Phase::Forward };
        let mut steps = vec![step(Linear::default().into(), reads, y)];
        x = y;
        if name == "up" {
            x = write_to("hidden", Role::Activation);
            steps.push(step(Activation { kind: GELU }.into(), vec![read("x", y)], x));
        }
        plan.steps.extend(steps);
    }
    let label = format!(
        "{rows}x{inputs} -> {hidden} -> {outputs}, gelu in both{}",
        if biases { ", bias" } else { "" }
    );
    let mut case = finish(&label, plan, fills, x);
    case.plan = memory::place(gelu::backward(gelu::forward(case.plan)));
    case
}
