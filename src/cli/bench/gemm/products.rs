//! The shapes of products in a plan, each once.
//!
//! In: a plan. Out: a [`Shaped`] per shape, and one of its products, whose addresses are of nothing but say how matrices
//! are aligned.

use kernwright_plan::arch::Arch;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::launch::{Epilogue, Gemm, Launch, Lowered};
use kernwright_plan::plan::{Phase, Plan, Step};
use kernwright_runtime::cuda::product;
use kernwright_runtime::driver::{Address, Allocation, Product};
use serde::{Serialize, Serializer};
use std::convert::Infallible;

/// A shape of product, as people know it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Shaped {
    /// The weight, without its layer; the op where there is none.
    pub(super) name: String,
    /// What it computes: forward, dX, dW.
    pub(super) direction: &'static str,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    /// Products in one launch.
    pub(super) times: usize,
    /// Of the operands.
    #[serde(serialize_with = "name_of")]
    pub(super) operand: Dtype,
    /// From operands to result.
    pub(super) types: String,
    /// What is added to the product, and what becomes of the sum.
    pub(super) added: String,
    /// How often a step asks for it.
    pub(super) per_step: usize,
    /// Of one launch.
    pub(super) flops: f64,
}

fn name_of<S: Serializer>(dtype: &Dtype, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype.name())
}

/// Every shape of forward and backward, in the order they first come.
pub(super) fn shapes(plan: &Plan, arch: &Arch, micro: MicroStep) -> Vec<(Shaped, Product)> {
    let mut all: Vec<(Shaped, Product)> = Vec::new();
    let steps = plan.phase(Phase::Forward).chain(plan.phase(Phase::Backward));
    for step in steps.map(|index| plan.steps[index].at(micro)) {
        let Lowered::Launches(launches) = step.op.lower(&plan.io(&step), arch) else { continue };
        for launch in &launches {
            let Launch::Gemm(gemm) = launch else { continue };
            let new = shaped(plan, &step, gemm);
            match all.iter_mut().find(|(known, _)| Shaped { per_step: 1, ..known.clone() } == new) {
                Some((known, _)) => known.per_step += 1,
                None => all.push((new, placed(plan, gemm))),
            }
        }
    }
    all
}

fn placed(plan: &Plan, gemm: &Gemm) -> Product {
    let address = |id| {
        let (base, column) = plan.base(id);
        let offset = column * plan.buffer(id).dtype.bytes();
        Ok::<_, Infallible>(Address { allocation: Allocation(base.0), offset })
    };
    match product(plan, gemm, address) {
        Ok(product) => product,
        Err(never) => match never {},
    }
}

fn shaped(plan: &Plan, step: &Step, gemm: &Gemm) -> Shaped {
    let of = |id| plan.buffer(id);
    let slot = step.writes.iter().find(|write| write.buffer == gemm.d).map_or("", |write| write.slot);
    let direction = match slot {
        "d_x" => "dX",
        "d_weight" => "dW",
        _ if step.phase == Phase::Backward => "backward",
        _ => "forward",
    };
    let weight = step.reads.iter().find(|read| read.slot == "weight").map(|read| &of(read.buffer).name);
    let name = weight.map_or(step.op.name().to_owned(), |name| plain(name, of(gemm.a.buffer).dtype));
    let c = match gemm.c {
        None => None,
        Some(c) if c == gemm.d => Some("to itself"),
        Some(_) => Some("residual"),
    };
    let gelu = match gemm.epilogue {
        Epilogue::None => None,
        Epilogue::Gelu(_) => Some("gelu"),
        Epilogue::GeluSlope(_) => Some("gelu's slope"),
    };
    let added: Vec<&str> = c.into_iter().chain(gemm.bias.map(|_| "bias")).chain(gelu).collect();
    let times = gemm.batches.iter().map(|batch| batch.count).product();
    let (operand, result) = (of(gemm.a.buffer).dtype, of(gemm.d).dtype);
    Shaped {
        name,
        direction,
        m: gemm.m,
        n: gemm.n,
        k: gemm.k,
        times,
        operand,
        types: format!("{} -> {}", operand.name(), result.name()),
        added: if added.is_empty() { "-".to_owned() } else { added.join(" + ") },
        per_step: 1,
        flops: 2.0 * (gemm.m * gemm.n) as f64 * (gemm.k * times) as f64,
    }
}

/// `layers.3.attention.qkv.weight.bf16` is `attention.qkv`.
fn plain(weight: &str, dtype: Dtype) -> String {
    let name = weight.strip_suffix(&format!(".{}", dtype.name())).unwrap_or(weight);
    let name = name.strip_suffix(".weight").unwrap_or(name);
    let of_layer = name.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
    of_layer.map_or(name, |(_, rest)| rest).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::arch;
    use kernwright_plan::shape::presets;
    use kernwright_plan::{Options, train_step};

    #[test]
    fn every_projection_of_the_seed_model_is_there_in_its_three_directions() {
        let shape = presets::find("seed-102m").unwrap().shape();
        let plan = train_step(&shape, &Options::default(), 4, 1024);
        for (micro, adds) in [(MicroStep::First, "-"), (MicroStep::Later, "to itself")] {
            let all = shapes(&plan, arch::find("sm_90a").unwrap(), micro);
            for (name, outputs, inputs) in [
                ("attention.qkv", 1280, 768),
                ("attention.output", 768, 768),
                ("feed_forward.up", 2816, 768),
                ("feed_forward.down", 768, 1408),
            ] {
                for (direction, sizes) in [
                    ("forward", (4096, outputs, inputs)),
                    ("dX", (4096, inputs, outputs)),
                    ("dW", (outputs, inputs, 4096)),
                ] {
                    let is_it = |shape: &&Shaped| shape.name == name && shape.direction == direction;
                    let found: Vec<&Shaped> = all.iter().map(|(shape, _)| shape).filter(is_it).collect();
                    let n_layers: usize = found.iter().map(|shape| shape.per_step).sum();
                    assert_eq!(n_layers, 16, "{name} {direction}: {found:?}");
                    assert!(found.iter().all(|shape| (shape.m, shape.n, shape.k) == sizes), "{found:?}");
                    if direction == "dW" {
                        assert!(
                            found.iter().all(|shape| shape.added == adds && shape.types == "bf16 -> fp32")
                        );
                    }
                }
            }
            let of_head = all.iter().filter(|(shape, _)| shape.name == "embedding");
            let rows: usize = of_head
                .filter(|(shape, _)| shape.direction == "forward")
                .map(|(shape, _)| shape.m * shape.per_step)
                .sum();
            assert_eq!(rows, 4096, "the chunks of the head cover every token");
        }
    }
}
