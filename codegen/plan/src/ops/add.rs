//! The sum of two tensors: `y = a + b`.

use super::Operation;
use super::rowwise::pointwise;
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::Lowered;
use crate::plan::{Io, Step};
use crate::tape::Tape;

#[cfg(feature = "reference")]
use crate::{
    buffer::Role,
    case::{Case, Fill, case, finish, input},
    dtype::Dtype,
    float::Float,
    plan::{Phase, Plan},
    reference::{Inputs, Outputs},
    tape::{read, write},
};

/// Reads a, b. Writes y. All have the same shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Add;

impl Operation for Add {
    const NAME: &'static str = "add";
    const STREAM: &'static [&'static str] = &["a", "b", "y"];

    fn cost(&self, io: &Io) -> Cost {
        Cost { vector_flops: io.buffer("y").len() as f64, bytes: io.bytes(), ..Cost::default() }
    }

    /// The gradient of both is that of the sum: usually no step at all.
    fn backward(&self, step: &Step, index: usize, tape: &mut Tape) {
        tape.pass_on(step, index, "y", &["a", "b"]);
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        pointwise(io, "add/sum", &[("y", "y_type"), ("a", "a_type"), ("b", "b_type")], Vec::new())
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        Ok(vec![("y", inputs.get("a").iter().zip(inputs.get("b")).map(|(a, b)| *a + *b).collect())])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |rows: usize, columns: usize| {
            let shape = vec![rows, columns];
            let reads = [("a", shape.clone(), Fill::Normal(1.0)), ("b", shape.clone(), Fill::Normal(2.0))];
            case(&format!("{rows}x{columns}"), Add, &reads, &[("y", shape)])
        };
        vec![one(7, 24), one(3, 5), columns_of_wider()]
    }
}

/// Two sums, each of some columns of wider buffers into those of another.
#[cfg(feature = "reference")]
fn columns_of_wider() -> Case {
    let (mut plan, mut fills) = (Plan::default(), Vec::new());
    let shape = [5, 40];
    let a = input(&mut plan, &mut fills, "a", &shape, &Fill::Normal(1.0));
    let b = input(&mut plan, &mut fills, "b", &shape, &Fill::Normal(1.5));
    let y = plan.add("y", shape.to_vec(), Dtype::Fp32, Role::Output);
    for (name, columns) in [("left", 0..16), ("right", 16..40)] {
        let [a, b, y] = [a, b, y].map(|id| {
            let name = format!("{}.{name}", plan.buffer(id).name);
            plan.add_view(name, id, columns.clone())
        });
        plan.steps.push(Step {
            op: Add.into(),
            reads: vec![read("a", a), read("b", b)],
            writes: vec![write("y", y)],
            phase: Phase::Forward,
        });
    }
    finish("columns of wider buffers", plan, fills, y)
}
