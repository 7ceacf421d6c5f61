//! What a matrix library is asked for.

use crate::{options, small};
use kernwright_plan::arch;
use kernwright_plan::dtype::{self, Dtype};
use kernwright_plan::executor::MicroStep;
use kernwright_plan::launch::{Gemm, Launch, Lowered};
use kernwright_plan::options::AttentionPath;
use kernwright_plan::passes::forward::Head;
use kernwright_plan::plan::Plan;
use kernwright_plan::shape::{Shape, presets};
use kernwright_plan::{Options, forward_step, train_step};

fn products(plan: &Plan) -> Vec<Gemm> {
    let steps =
        [MicroStep::First, MicroStep::Later].map(|micro| plan.steps.iter().map(move |step| step.at(micro)));
    let mut all = Vec::new();
    for step in steps.into_iter().flatten() {
        let Lowered::Launches(launches) = step.op.lower(&plan.io(&step), &arch::ALL[0]) else { continue };
        all.extend(launches.into_iter().filter_map(|launch| match launch {
            Launch::Gemm(gemm) => Some(gemm),
            _ => None,
        }));
    }
    all
}

/// cuBLASLt's table for sums in fp32: operands of one type, a result of that type or fp32, and what is added, matrix or
/// bias, of the type of the result.
#[test]
fn products_are_of_types_that_a_matrix_library_multiplies() {
    let shapes = presets::ALL.iter().map(|preset| (preset.name, preset.shape())).chain(small::shapes());
    let mut n_biases = 0;
    for (name, shape) in shapes {
        for precision in dtype::ALL.iter().filter(|row| row.is_precision).map(|row| row.dtype) {
            for residual in [Dtype::Fp32, precision] {
                for attention in [AttentionPath::Fused, AttentionPath::Split] {
                    let shape = Shape { residual, ..shape.clone() };
                    let options = Options { attention, head_chunk: Some(8), ..options(precision) };
                    let plans = [
                        train_step(&shape, &options, 2, 16),
                        forward_step(&shape, &options, 2, 16, Head::Logits(3)),
                    ];
                    for (plan, gemm) in
                        plans.iter().flat_map(|plan| products(plan).into_iter().map(move |gemm| (plan, gemm)))
                    {
                        let of = |id| (&plan.buffer(id).name, plan.buffer(id).dtype);
                        let (a, b, d) = (of(gemm.a.buffer), of(gemm.b.buffer), of(gemm.d));
                        let added = [gemm.c, gemm.bias].into_iter().flatten().map(of);
                        let place = format!("{name} in {}: {a:?} by {b:?} into {d:?}", precision.name());
                        assert_eq!(a.1, b.1, "{place}");
                        assert!([a.1, Dtype::Fp32].contains(&d.1), "{place}");
                        for added in added {
                            assert_eq!(added.1, d.1, "{place}, adding {added:?}");
                        }
                        n_biases += usize::from(gemm.bias.is_some() && d.1 != Dtype::Fp32);
                    }
                }
            }
        }
    }
    assert!(n_biases > 100, "narrow products with a bias are among them");
}
