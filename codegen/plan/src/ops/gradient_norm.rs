//! The global norm of all gradients: `norm = sqrt(sum over tensors and elements of g^2)`.

use super::Operation;
use super::rowwise::{BLOCK, MISSING, VIEW, WARP, elements, kernel, launches, pointer};
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::{Argument, Lowered};
use crate::plan::Io;
use crate::spec::{KernelSpec, SpecValue, field};

#[cfg(feature = "reference")]
use crate::{
    buffer::Role,
    case::{Case, Fill, case},
    dtype::Dtype,
    float::Float,
    passes::memory::place,
    reference::{Inputs, Outputs},
    tape::write,
};

/// Reads any number of gradients, all as `gradient`. Writes norm [1]; partials [n] is scratch, see [`n_partials`].
#[derive(Clone, Debug, PartialEq)]
pub struct GradientNorm;

/// Gradient elements whose squares one block adds up: the same on every GPU, so that the order of the sum is.
const BLOCK_ELEMENTS: usize = 1 << 15;

/// Threads of the one block that adds the blocks' sums.
const ROOT_BLOCK: u32 = 1024;

/// Blocks' sums over gradients of so many elements each.
#[must_use]
pub fn n_partials(lengths: impl IntoIterator<Item = usize>) -> usize {
    lengths.into_iter().map(|n| n.div_ceil(BLOCK_ELEMENTS)).sum()
}

impl Operation for GradientNorm {
    const NAME: &'static str = "gradient_norm";

    fn cost(&self, io: &Io) -> Cost {
        Cost { vector_flops: io.bytes() / 2.0, bytes: io.bytes(), ..Cost::default() }
    }

    fn lower(&self, io: &Io, _arch: &Arch) -> Lowered {
        if !io.has("partials") {
            return MISSING;
        }
        let (mut all, mut first) = (Vec::new(), 0);
        for read in &io.step.reads {
            let gradient = io.plan.buffer(read.buffer);
            if gradient.view.is_some() {
                return VIEW;
            }
            let spec = KernelSpec {
                template: "gradient_norm/squares",
                block: BLOCK,
                shared_memory: 4 * BLOCK / WARP as u32,
                fields: vec![
                    field("g_type", "", SpecValue::Type(gradient.dtype)),
                    field("elements", "n", SpecValue::Int(BLOCK_ELEMENTS as i64)),
                ],
            };
            let arguments = vec![
                pointer(io, "partials"),
                Argument::Buffer(Some(read.buffer)),
                elements(gradient.len()),
                elements(first),
            ];
            let blocks = n_partials([gradient.len()]);
            all.push(kernel(spec, [blocks, 1, 1], arguments));
            first += blocks;
        }
        let spec = KernelSpec {
            template: "gradient_norm/root",
            block: ROOT_BLOCK,
            shared_memory: 4 * ROOT_BLOCK / WARP as u32,
            fields: Vec::new(),
        };
        let arguments = vec![pointer(io, "norm"), pointer(io, "partials"), elements(first)];
        all.push(kernel(spec, [1, 1, 1], arguments));
        launches(all)
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
            ("gradient", vec![BLOCK_ELEMENTS + 77], Fill::Normal(0.1)),
        ];
        let lengths = reads.iter().map(|(_, shape, _)| shape.iter().product());
        let mut case = case("three tensors", GradientNorm, &reads, &[("norm", vec![1])]);
        let partials = case.plan.add("partials", vec![n_partials(lengths)], Dtype::Fp32, Role::Scratch);
        case.plan.steps[0].writes.push(write("partials", partials));
        case.plan = place(case.plan);
        vec![case]
    }
}
