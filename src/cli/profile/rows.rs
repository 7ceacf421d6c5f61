//! Times of launches become rows: one per kernel, or per shape of a product; and sums by group. The field names are those
//! of `--json`.
//!
//! In: a plan, seconds of its launches (or of its steps), a card. Out: rows. Work and traffic are the plan's: a step's own
//! where it has one launch. Of several, products know theirs, kernels have the bytes of their arguments, and what work
//! is left is shared by their times.

use super::groups::{self, GROUPS};
use kernwright_plan::arch::Arch;
use kernwright_plan::buffer::BufferId;
use kernwright_plan::card::Card;
use kernwright_plan::cost::Cost;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::launch::{Argument, Epilogue, Gemm, Launch, Lowered};
use kernwright_plan::plan::Plan;
use serde::Serialize;
use std::collections::HashMap;

/// How long a launch took, or a whole step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timing {
    pub(super) step: usize,
    pub(super) launch: Option<usize>,
    pub(super) seconds: f64,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Document {
    pub(super) model: String,
    pub(super) device: String,
    pub(super) batch: usize,
    pub(super) length: usize,
    pub(super) precision: &'static str,
    pub(super) deterministic: bool,
    /// How the times are known.
    pub(super) by: String,
    pub(super) card: Option<Speeds>,
    /// Of a step as it runs in training.
    pub(super) wall_seconds: f64,
    /// The sum of all rows.
    pub(super) kernel_seconds: f64,
    pub(super) groups: Vec<Group>,
    pub(super) kernels: Vec<KernelRow>,
}

/// What a card does per second.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Speeds {
    pub(super) name: String,
    pub(super) tensor_flops: f64,
    pub(super) fp32_flops: f64,
    pub(super) bandwidth: f64,
}

impl Speeds {
    pub(super) fn of(card: &Card) -> Self {
        let Card { name, tensor_flops, fp32_flops, bandwidth, .. } = card;
        Self {
            name: name.to_string(),
            tensor_flops: *tensor_flops,
            fp32_flops: *fp32_flops,
            bandwidth: *bandwidth,
        }
    }
}

/// The launches of one kernel, or of products of one shape.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct KernelRow {
    pub(super) group: &'static str,
    pub(super) kernel: String,
    pub(super) launches: usize,
    pub(super) seconds: f64,
    /// Of all rows.
    pub(super) share: f64,
    pub(super) flops: f64,
    pub(super) bytes: f64,
    pub(super) flops_per_second: Option<f64>,
    pub(super) bytes_per_second: Option<f64>,
    /// The least time that the card needs over the time it took.
    pub(super) of_roofline: Option<f64>,
}

/// Rows of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Group {
    pub(super) group: &'static str,
    pub(super) launches: usize,
    pub(super) seconds: f64,
    pub(super) share: f64,
}

/// What is added up of a row.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    launches: usize,
    seconds: f64,
    cost: Cost,
    roofline: f64,
}

/// The rows, the longest of each group first, and the groups in their order; those without a launch are left out.
#[allow(clippy::cast_precision_loss)]
pub(super) fn rows(
    plan: &Plan,
    timings: &[Timing],
    arch: Option<&Arch>,
    card: Option<&Card>,
    precision: Dtype,
) -> (Vec<KernelRow>, Vec<Group>) {
    let tensor_cores = precision.bytes() < Dtype::Fp32.bytes();
    let mut sums: HashMap<(&'static str, String), Sum> = HashMap::new();
    for of_step in timings.chunk_by(|one, other| one.step == other.step) {
        for (key, seconds, cost) in parts(plan, of_step, arch) {
            let sum = sums.entry(key).or_default();
            sum.launches += 1;
            sum.seconds += seconds;
            sum.cost += cost;
            sum.roofline += card.map_or(0.0, |card| cost.roofline_seconds(card, tensor_cores));
        }
    }
    let total: f64 = sums.values().map(|sum| sum.seconds).sum();
    let mut kernels: Vec<KernelRow> = sums
        .into_iter()
        .map(|((group, kernel), sum)| {
            let rate =
                |amount: f64| Some(amount / sum.seconds).filter(|rate| *rate > 0.0 && rate.is_finite());
            KernelRow {
                group,
                kernel,
                launches: sum.launches,
                seconds: sum.seconds,
                share: sum.seconds / total,
                flops: sum.cost.flops(),
                bytes: sum.cost.bytes,
                flops_per_second: rate(sum.cost.flops()),
                bytes_per_second: rate(sum.cost.bytes),
                of_roofline: card.and_then(|_| rate(sum.roofline)),
            }
        })
        .collect();
    kernels.sort_by(|one, other| {
        other.seconds.total_cmp(&one.seconds).then_with(|| one.kernel.cmp(&other.kernel))
    });
    let named = GROUPS.iter().map(|(name, _)| *name).chain([groups::of("", false)]);
    let groups = named.filter_map(|group| {
        let of_group = || kernels.iter().filter(|row| row.group == group);
        let seconds: f64 = of_group().map(|row| row.seconds).sum();
        let launches = of_group().map(|row| row.launches).sum();
        (launches > 0).then_some(Group { group, launches, seconds, share: seconds / total })
    });
    let groups = groups.collect();
    (kernels, groups)
}

type Key = (&'static str, String);

/// What each time of a step is the time of, and its part of the step's work.
fn parts(plan: &Plan, timings: &[Timing], arch: Option<&Arch>) -> Vec<(Key, f64, Cost)> {
    let Some(first) = timings.first() else { return Vec::new() };
    let step = plan.steps[first.step].at(MicroStep::First);
    let (op, io) = (step.op.name(), plan.io(&step));
    let whole = step.op.cost(&io);
    let launches = match arch.map(|arch| step.op.lower(&io, arch)) {
        Some(Lowered::Launches(launches)) => launches,
        _ => Vec::new(),
    };
    let find = |timing: &Timing| timing.launch.and_then(|index| launches.get(index));
    let is_product = |timing: &Timing| matches!(find(timing), Some(Launch::Gemm(_)));
    // What products leave, and the time in which it is done.
    let mut left = whole;
    let mut kernel_seconds = 0.0;
    for timing in timings {
        match find(timing) {
            Some(Launch::Gemm(gemm)) => left.tensor_flops -= product(plan, gemm).tensor_flops,
            Some(Launch::Kernel { .. }) => kernel_seconds += timing.seconds,
            _ => {}
        }
    }
    left.tensor_flops = left.tensor_flops.max(0.0);
    let part = |timing: &Timing| {
        let group = groups::of(op, is_product(timing));
        let (name, cost) = match find(timing) {
            None => (op.to_owned(), whole),
            Some(Launch::Gemm(gemm)) => (shape(gemm), product(plan, gemm)),
            Some(Launch::Kernel { spec, .. }) if timings.len() == 1 => (spec.name(), whole),
            Some(Launch::Kernel { spec, arguments, .. }) => {
                let share = if kernel_seconds > 0.0 { timing.seconds / kernel_seconds } else { 0.0 };
                let (tensor_flops, vector_flops) = (share * left.tensor_flops, share * left.vector_flops);
                (spec.name(), Cost { tensor_flops, vector_flops, bytes: bytes(plan, arguments) })
            }
            Some(Launch::Copy { from, .. }) => {
                ("copy".to_owned(), Cost { bytes: 2.0 * size(plan, *from), ..Cost::default() })
            }
            Some(Launch::Zero { buffer }) => {
                ("set to zero".to_owned(), Cost { bytes: size(plan, *buffer), ..Cost::default() })
            }
        };
        ((group, name), timing.seconds, cost)
    };
    timings.iter().map(part).collect()
}

#[allow(clippy::cast_precision_loss)]
fn size(plan: &Plan, id: BufferId) -> f64 {
    let buffer = plan.buffer(id);
    (buffer.len() * buffer.dtype.bytes()) as f64
}

/// Bytes of a kernel's arguments, each buffer once.
fn bytes(plan: &Plan, arguments: &[Argument]) -> f64 {
    let mut ids: Vec<BufferId> = arguments
        .iter()
        .filter_map(|argument| match argument {
            Argument::Buffer(id) => *id,
            Argument::TensorMap(map) => Some(map.buffer),
            _ => None,
        })
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().map(|id| size(plan, id)).sum()
}

fn count(gemm: &Gemm) -> usize {
    gemm.batches.iter().map(|batch| batch.count).product()
}

#[allow(clippy::cast_precision_loss)]
fn product(plan: &Plan, gemm: &Gemm) -> Cost {
    let bytes =
        |rows: usize, columns: usize, id: BufferId| (rows * columns * plan.buffer(id).dtype.bytes()) as f64;
    let Gemm { m, n, k, .. } = *gemm;
    let beside = [gemm.c, gemm.epilogue.matrix().copied()].into_iter().flatten();
    let beside: f64 = beside.map(|matrix| bytes(m, n, matrix)).sum();
    let moved = bytes(m, k, gemm.a.buffer) + bytes(k, n, gemm.b.buffer) + bytes(m, n, gemm.d) + beside;
    let times = count(gemm) as f64;
    Cost { tensor_flops: 2.0 * times * (m * n * k) as f64, vector_flops: 0.0, bytes: times * moved }
}

/// What products that are alike are called: `32768 x 768 by 768 x 1280`.
fn shape(gemm: &Gemm) -> String {
    let Gemm { m, n, k, .. } = gemm;
    let turned = |is: bool| if is { "^T" } else { "" };
    let times = match count(gemm) {
        1 => String::new(),
        times => format!("{times} times "),
    };
    let added = if gemm.c.is_some() { ", added" } else { "" };
    let gelu = match gemm.epilogue {
        Epilogue::None => "",
        Epilogue::Gelu(_) => ", gelu",
        Epilogue::GeluSlope(_) => ", gelu's slope",
    };
    format!(
        "{times}{m}x{k}{} by {k}x{n}{}{added}{gelu}",
        turned(gemm.a.transposed),
        turned(gemm.b.transposed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_plan::plan::Phase;
    use kernwright_plan::shape::presets;
    use kernwright_plan::{Options, arch, ops, train_step};

    #[test]
    fn every_group_names_ops_that_there_are() {
        let known: Vec<&str> = ops::ALL.iter().map(|op| op.name).collect();
        for (group, ops) in GROUPS {
            for op in *ops {
                assert!(known.contains(op), "{group}: `{op}` is not one of {known:?}");
            }
        }
    }

    /// A second for every launch of a step.
    fn timed(plan: &Plan, arch: Option<&Arch>) -> Vec<Timing> {
        let steps = plan.phase(Phase::Forward).start..plan.phase(Phase::Update).end;
        let mut timings = Vec::new();
        for index in steps {
            let step = plan.steps[index].at(MicroStep::First);
            let launches = match arch.map(|arch| step.op.lower(&plan.io(&step), arch)) {
                Some(Lowered::Launches(launches)) => (0..launches.len()).map(Some).collect(),
                _ => vec![None],
            };
            timings.extend(launches.into_iter().map(|launch| Timing { step: index, launch, seconds: 1.0 }));
        }
        timings
    }

    #[test]
    fn rows_hold_every_launch_once_and_the_work_of_the_plan() {
        let shape = presets::find("tiny").expect("it is a preset").shape();
        let arch = arch::find("sm_90a").expect("it is a row");
        let card = kernwright_plan::gpu::Gpu::of(arch).card;
        for deterministic in [true, false] {
            let plan = train_step(&shape, &Options { deterministic, ..Options::default() }, 2, 64);
            let timings = timed(&plan, Some(arch));
            let (kernels, groups) = rows(&plan, &timings, Some(arch), Some(&card), shape.precision);
            let sum = |of: fn(&KernelRow) -> f64| kernels.iter().map(of).sum::<f64>();
            assert_eq!(kernels.iter().map(|row| row.launches).sum::<usize>(), timings.len());
            assert!((sum(|row| row.share) - 1.0).abs() < 1e-9);
            assert!((sum(|row| row.seconds) - timings.len() as f64).abs() < 1e-9);
            // Some products are of padding that the op does not count.
            let ratio = sum(|row| row.flops) / plan.cost().flops();
            assert!((0.99..1.3).contains(&ratio), "{ratio}");
            assert_eq!(groups.iter().map(|group| group.launches).sum::<usize>(), timings.len());
            let names: Vec<&str> = groups.iter().map(|group| group.group).collect();
            assert_eq!(names, ["GEMM", "attention", "norm", "loss", "optimiser", "other"]);
            assert!(kernels.iter().all(|row| row.of_roofline.is_none_or(|share| share > 0.0)));
        }
    }

    #[test]
    fn without_launches_there_is_a_row_per_op_with_its_whole_work() {
        let shape = presets::find("tiny").expect("it is a preset").shape();
        let plan = train_step(&shape, &Options::host(), 2, 64);
        let (kernels, _) = rows(&plan, &timed(&plan, None), None, None, Dtype::Fp32);
        let flops: f64 = kernels.iter().map(|row| row.flops).sum();
        assert!((flops / plan.cost().flops() - 1.0).abs() < 1e-9);
        assert!(kernels.iter().all(|row| row.of_roofline.is_none()));
        let mut names: Vec<&str> = kernels.iter().map(|row| row.kernel.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), kernels.len());
    }
}
