//! The global norm of all gradients: `norm = sqrt(sum over tensors and elements of g^2)`.

use super::Operation;
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::Lowered;
use crate::plan::Io;

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, case},
    float::Float,
    reference::{Inputs, Outputs},
};

/// Reads any number of gradients, all as `gradient`. Writes norm [1].
#[derive(Clone, Debug, PartialEq)]
pub struct GradientNorm;

impl Operation for GradientNorm {
    const NAME: &'static str = "gradient_norm";

    fn cost(&self, io: &Io) -> Cost {
        Cost { vector_flops: io.bytes() / 2.0, bytes: io.bytes(), ..Cost::default() }
    }

    fn lower(&self, _io: &Io, _arch: &Arch) -> Lowered {
        Lowered::NoKernel("no kernel yet")
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let squares = inputs.all("gradient").flat_map(|values| values.iter().map(|g| *g * *g));
        Ok(vec![("norm", vec![squares.sum::<F>().sqrt()])])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let reads = [
            ("gradient", vec![7, 24], Fill::Normal(1.0)),
            ("gradient", vec![3], Fill::Normal(20.0)),
            ("gradient", vec![70, 40], Fill::Normal(0.1)),
        ];
        vec![case("three tensors", GradientNorm, &reads, &[("norm", vec![1])])]
    }
}
