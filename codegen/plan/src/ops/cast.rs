//! A copy, to another element type where the buffers differ in it: `y = x`.

use super::Operation;
use super::rowwise::pointwise;
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::{Launch, Lowered};
use crate::plan::{Io, Mode, Step};
use crate::tape::Tape;

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, case},
    float::Float,
    reference::{Inputs, Outputs},
};

/// Reads x. Writes y, of the same shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Cast;

impl Operation for Cast {
    const NAME: &'static str = "cast";

    fn cost(&self, io: &Io) -> Cost {
        Cost { bytes: io.bytes(), ..Cost::default() }
    }

    fn backward(&self, step: &Step, index: usize, tape: &mut Tape) {
        tape.pass_on(step, index, "y", &["x"]);
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        let plain = io.dtype("x") == io.dtype("y") && io.mode("y") == Some(Mode::Overwrite);
        let whole = io.buffer("x").view.is_none() && io.buffer("y").view.is_none();
        match (io.id("x"), io.id("y")) {
            (Some(from), Some(to)) if plain && whole => Lowered::Launches(vec![Launch::Copy { from, to }]),
            _ if io.dtype("x").is_integer() => Lowered::NoKernel("whole numbers are only copied whole"),
            _ => pointwise(io, "cast/copy", &[("y", "y_type"), ("x", "x_type")], Vec::new()),
        }
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        Ok(vec![("y", inputs.get("x").to_vec())])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        vec![case("5x40", Cast, &[("x", vec![5, 40], Fill::Normal(1.0))], &[("y", vec![5, 40])])]
    }
}
