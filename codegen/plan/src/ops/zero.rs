//! Sets a buffer to zero: `y = 0`. Where a write adds, there is nothing to add.

use super::Operation;
use super::rowwise::VIEW;
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::{Launch, Lowered};
use crate::plan::{Io, Mode};

#[cfg(feature = "reference")]
use crate::{
    case::{Case, case},
    float::Float,
    reference::{Inputs, Outputs},
};

/// Reads nothing. Writes y.
#[derive(Clone, Debug, PartialEq)]
pub struct Zero;

impl Operation for Zero {
    const NAME: &'static str = "zero";

    fn cost(&self, io: &Io) -> Cost {
        Cost { bytes: io.bytes(), ..Cost::default() }
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        match io.id("y") {
            Some(id) if io.plan.buffer(id).view.is_some() => VIEW,
            Some(buffer) if io.mode("y") != Some(Mode::Accumulate) => {
                Lowered::Launches(vec![Launch::Zero { buffer }])
            }
            _ => Lowered::Launches(Vec::new()),
        }
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (rows, columns) = inputs.output_dims("y");
        Ok(vec![("y", vec![F::default(); rows * columns])])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        vec![case("3x7", Zero, &[], &[("y", vec![3, 7])])]
    }
}
