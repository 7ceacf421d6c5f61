//! The sum of two tensors: `y = a + b`.

use super::Operation;
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::Lowered;
use crate::plan::{Io, Step};
use crate::tape::Tape;

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, case},
    float::Float,
    reference::{Inputs, Outputs},
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

    fn lower(&self, _io: &Io, _arch: &Arch) -> Lowered {
        Lowered::NoKernel("no kernel yet")
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        Ok(vec![("y", inputs.get("a").iter().zip(inputs.get("b")).map(|(a, b)| *a + *b).collect())])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let shape = vec![7, 24];
        let reads = [("a", shape.clone(), Fill::Normal(1.0)), ("b", shape.clone(), Fill::Normal(2.0))];
        vec![case("7x24", Add, &reads, &[("y", shape)])]
    }
}
