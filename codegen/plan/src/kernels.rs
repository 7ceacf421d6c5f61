//! The closed set of kernels that any run of a Shape may choose on a GPU.

use crate::arch::Arch;
use crate::attention_step::{Pass, attention_step};
use crate::dtype;
use crate::launch::{Launch, Lowered};
use crate::ops::Op;
use crate::options::{AttentionPath, Options};
use crate::passes::split_heads;
use crate::passes::{ABLATIONS, MULTI_TENSOR_UPDATE, SWITCHES, forward::Head, forward_step, train_step};
use crate::plan::{Plan, Step};
use crate::shape::{AttentionShape, Shape};
use crate::spec::KernelSpec;
use crate::tile;
use crate::tuning::LENGTHS;

/// Every kernel, sorted by name, each once.
#[must_use]
pub fn kernels(shape: &Shape, arch: &Arch) -> Vec<KernelSpec> {
    of_plans(&plans(shape), arch)
}

/// Plans that between them have every kernel, on any GPU. But for attention's, which may differ between kinds of lengths and, as
/// [`of_plans`] knows, between batches, kernels do not depend on batch and length, so small plans of every kind, in every precision, with and without each
/// fusion, name them all; a test proves it for other lengths.
#[must_use]
pub fn plans(shape: &Shape) -> Vec<Plan> {
    let shape = &shape.shallow();
    let (mut every, mut of_attention) = (Vec::new(), Vec::new());
    for row in dtype::ALL.iter().filter(|row| row.is_precision) {
        let plain = Options { precision: Some(row.dtype), ..Options::default() };
        for (name, _) in SWITCHES {
            every.push(Options { without: vec![(*name).to_owned()], ..plain.clone() });
        }
        // Gradients of the precision, with what an update of all parameters and of one each makes of them.
        for without in [Vec::new(), vec![MULTI_TENSOR_UPDATE.to_owned()]] {
            every.push(Options { gradient: row.dtype, without, ..plain.clone() });
        }
        for (name, _) in ABLATIONS {
            every.push(Options { with: vec![(*name).to_owned()], ..plain.clone() });
        }
        every.push(Options { clip: None, ..plain.clone() });
        every.push(Options { attention: AttentionPath::Split, ..plain.clone() });
        // Blocks of attention's gradient for a group of heads and for each; with sums in one order by the names above.
        for options in [
            Options { deterministic: false, ..plain.clone() },
            Options { in_turns: true, ..plain.clone() },
            plain.clone(),
        ] {
            of_attention.extend(split_heads::both(&options));
        }
        every.push(plain);
    }
    let mut plans = Vec::new();
    for length in shortest_of_others() {
        plans.extend(of_attention.iter().map(|options| train_step(shape, options, 1, length)));
    }
    every.append(&mut of_attention);
    for options in &every {
        plans.push(train_step(shape, options, 1, 1));
        plans.extend([Head::Loss, Head::Logits(1)].map(|head| forward_step(shape, options, 1, 1, head)));
    }
    plans
}

/// The shortest length of each kind but the first.
fn shortest_of_others() -> impl Iterator<Item = usize> {
    LENGTHS[..LENGTHS.len() - 1].iter().map(|(_, longest)| longest + 1)
}

/// The same for attention alone.
#[must_use]
pub fn attention_plans(shape: &AttentionShape) -> Vec<Plan> {
    let mut plans = Vec::new();
    for in_turns in [false, true] {
        for options in split_heads::both(&Options { in_turns, ..Options::default() }) {
            for pass in Pass::ALL {
                let shortest = std::iter::once(1).chain(shortest_of_others());
                plans.extend(shortest.map(|length| attention_step(shape, &options, 1, [length; 2], pass)));
            }
        }
    }
    plans
}

/// The kernels of some plans over any batch, sorted by name, each once.
#[must_use]
pub fn of_plans(plans: &[Plan], arch: &Arch) -> Vec<KernelSpec> {
    // Of attention each tile that some batch may choose.
    let nth: Vec<Arch> =
        (0..tile::rounds::MOST).map(|n| Arch { nth_tile: Some(n), ..arch.clone() }).collect();
    let of_step = |plan: &Plan, step: &Step| -> Vec<KernelSpec> {
        let archs =
            if matches!(step.op, Op::Attention(_) | Op::AttentionBackward(_)) { &nth[..] } else { &nth[..1] };
        archs.iter().flat_map(|arch| of_step(plan, step, arch)).collect()
    };
    let of_plan = |plan: &Plan| plan.steps.iter().flat_map(|step| of_step(plan, step)).collect::<Vec<_>>();
    let mut specs: Vec<_> = plans.iter().flat_map(of_plan).map(|spec| (spec.name(), spec)).collect();
    specs.sort_by(|(one, _), (other, _)| one.cmp(other));
    specs.dedup_by(|(one, _), (other, _)| one == other);
    specs.into_iter().map(|(_, spec)| spec).collect()
}

/// The kernels of one plan, in the order of its steps.
#[must_use]
pub fn of_plan(plan: &Plan, arch: &Arch) -> Vec<KernelSpec> {
    plan.steps.iter().flat_map(|step| of_step(plan, step, arch)).collect()
}

fn of_step(plan: &Plan, step: &Step, arch: &Arch) -> Vec<KernelSpec> {
    let Lowered::Launches(launches) = step.op.lower(&plan.io(step), arch) else { return Vec::new() };
    let spec = |launch| match launch {
        Launch::Kernel { spec, .. } => Some(spec),
        _ => None,
    };
    launches.into_iter().filter_map(spec).collect()
}
