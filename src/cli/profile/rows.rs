//! Times of launches become rows: one per kernel, or per shape of a product; and sums by group. The field names are those
//! of `--json`.
//!
//! In: a plan, seconds of its launches (or of its steps), a card. Out: rows. Work and traffic are the plan's, which knows
//! those of a step and of each product. So a kernel that is alone in its step is rated by the step's; one of several is
//! not rated, but the step is, as a whole.

use super::groups::{self, GROUPS};
use crate::cli::units::Rates;
use kernwright_plan::arch::Arch;
use kernwright_plan::buffer::BufferId;
use kernwright_plan::card::Card;
use kernwright_plan::cost::Cost;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::executor::MicroStep;
use kernwright_plan::launch::{Epilogue, Gemm, Launch, Lowered};
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
    /// Steps with kernels that are not rated, by their ops; their time is that of rows above.
    pub(super) steps: Vec<KernelRow>,
}

impl Document {
    /// How bytes and FLOPs per second are shown.
    pub(super) fn rates(&self) -> [Rates; 2] {
        let rows = || self.kernels.iter().chain(&self.steps);
        [
            Rates::of_bytes(rows().filter_map(|row| row.bytes_per_second)),
            Rates::of_flops(rows().filter_map(|row| row.flops_per_second)),
        ]
    }
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

/// The launches of one kernel, or of products of one shape; or those of an op's steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct KernelRow {
    pub(super) group: &'static str,
    pub(super) kernel: String,
    pub(super) launches: usize,
    pub(super) seconds: f64,
    /// Of all rows.
    pub(super) share: f64,
    /// `None` where nobody knows, as the rates are.
    pub(super) flops: Option<f64>,
    pub(super) bytes: Option<f64>,
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
#[derive(Clone, Copy, Debug)]
struct Sum {
    launches: usize,
    seconds: f64,
    /// Until one comes of which it is not known.
    cost: Option<Cost>,
    roofline: f64,
}

type Sums = HashMap<Key, Sum>;

/// All rows.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// The longest first.
    pub(super) kernels: Vec<KernelRow>,
    /// Steps of several launches as wholes, the longest first.
    pub(super) steps: Vec<KernelRow>,
    /// In their order; those without a launch are left out.
    pub(super) groups: Vec<Group>,
}

/// The rows of a plan whose launches, or steps, took these times.
pub(super) fn rows(
    plan: &Plan,
    timings: &[Timing],
    arch: Option<&Arch>,
    card: Option<&Card>,
    precision: Dtype,
) -> Rows {
    let tensor_cores = precision.bytes() < Dtype::Fp32.bytes();
    let add = |sums: &mut Sums, key: Key, launches: usize, seconds: f64, cost: Option<Cost>| {
        let new = Sum { launches: 0, seconds: 0.0, cost: Some(Cost::default()), roofline: 0.0 };
        let sum = sums.entry(key).or_insert(new);
        sum.launches += launches;
        sum.seconds += seconds;
        sum.cost = sum.cost.zip(cost).map(|(mut sum, cost)| {
            sum += cost;
            sum
        });
        let roofline = card.zip(cost).map(|(card, cost)| cost.roofline_seconds(card, tensor_cores));
        sum.roofline += roofline.unwrap_or(0.0);
    };
    let (mut kernels, mut steps) = (Sums::new(), Sums::new());
    for of_step in timings.chunk_by(|one, other| one.step == other.step) {
        let (parts, whole) = parts(plan, of_step, arch);
        for (key, seconds, cost) in parts {
            add(&mut kernels, key, 1, seconds, cost);
        }
        if let Some((key, cost)) = whole {
            let seconds = of_step.iter().map(|one| one.seconds).sum();
            add(&mut steps, key, of_step.len(), seconds, Some(cost));
        }
    }
    let total: f64 = kernels.values().map(|sum| sum.seconds).sum();
    let [kernels, steps] = [kernels, steps].map(|sums| sorted(sums, total, card.is_some()));
    let named = GROUPS.iter().map(|(name, _)| *name).chain([groups::of("", false)]);
    let groups = named.filter_map(|group| {
        let of_group = || kernels.iter().filter(|row| row.group == group);
        let seconds: f64 = of_group().map(|row| row.seconds).sum();
        let launches = of_group().map(|row| row.launches).sum();
        (launches > 0).then_some(Group { group, launches, seconds, share: seconds / total })
    });
    let groups = groups.collect();
    Rows { kernels, steps, groups }
}

/// A row for each sum, the longest first, of so many seconds in all.
fn sorted(sums: Sums, total: f64, has_card: bool) -> Vec<KernelRow> {
    let row = |((group, kernel), sum): (Key, Sum)| {
        let rate = |amount: f64| Some(amount / sum.seconds).filter(|rate| *rate > 0.0 && rate.is_finite());
        KernelRow {
            group,
            kernel,
            launches: sum.launches,
            seconds: sum.seconds,
            share: sum.seconds / total,
            flops: sum.cost.map(|cost| cost.flops()),
            bytes: sum.cost.map(|cost| cost.bytes),
            flops_per_second: sum.cost.and_then(|cost| rate(cost.flops())),
            bytes_per_second: sum.cost.and_then(|cost| rate(cost.bytes)),
            of_roofline: sum.cost.filter(|_| has_card).and_then(|_| rate(sum.roofline)),
        }
    };
    let mut rows: Vec<KernelRow> = sums.into_iter().map(row).collect();
    rows.sort_by(|one, other| {
        other.seconds.total_cmp(&one.seconds).then_with(|| one.kernel.cmp(&other.kernel))
    });
    rows
}

/// Group and name of a row.
type Key = (&'static str, String);

/// A time, with what it is the time of and its work where that is known.
type Part = (Key, f64, Option<Cost>);

/// The parts of a step, and the whole step where the work of a part is not known.
fn parts(plan: &Plan, timings: &[Timing], arch: Option<&Arch>) -> (Vec<Part>, Option<(Key, Cost)>) {
    let Some(first) = timings.first() else { return (Vec::new(), None) };
    let step = plan.steps[first.step].at(MicroStep::First);
    let (op, io) = (step.op.name(), plan.io(&step));
    let whole = step.op.cost(&io);
    let launches = match arch.map(|arch| step.op.lower(&io, arch)) {
        Some(Lowered::Launches(launches)) => launches,
        _ => Vec::new(),
    };
    let find = |timing: &Timing| timing.launch.and_then(|index| launches.get(index));
    let part = |timing: &Timing| {
        let bytes = |bytes: f64| Some(Cost { bytes, ..Cost::default() });
        let (name, cost) = match find(timing) {
            None => (op.to_owned(), Some(whole)),
            Some(Launch::Gemm(gemm)) => (shape(gemm), Some(product(plan, gemm))),
            Some(Launch::Kernel { spec, .. }) => (spec.name(), Some(whole).filter(|_| timings.len() == 1)),
            Some(Launch::Copy { from, .. }) => ("copy".to_owned(), bytes(2.0 * size(plan, *from))),
            Some(Launch::Zero { buffer }) => ("set to zero".to_owned(), bytes(size(plan, *buffer))),
        };
        let group = groups::of(op, matches!(find(timing), Some(Launch::Gemm(_))));
        ((group, name), timing.seconds, cost)
    };
    let parts: Vec<_> = timings.iter().map(part).collect();
    let is_known = parts.iter().all(|(_, _, cost)| cost.is_some());
    (parts, (!is_known).then(|| ((groups::of(op, false), op.to_owned()), whole)))
}

#[allow(clippy::cast_precision_loss)]
fn size(plan: &Plan, id: BufferId) -> f64 {
    let buffer = plan.buffer(id);
    (buffer.len() * buffer.dtype.bytes()) as f64
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
            let Rows { kernels, steps, groups } =
                rows(&plan, &timings, Some(arch), Some(&card), shape.precision);
            let sum = |of: fn(&KernelRow) -> f64| kernels.iter().map(of).sum::<f64>();
            assert_eq!(kernels.iter().map(|row| row.launches).sum::<usize>(), timings.len());
            assert!((sum(|row| row.share) - 1.0).abs() < 1e-9);
            assert!((sum(|row| row.seconds) - timings.len() as f64).abs() < 1e-9);
            assert_eq!(groups.iter().map(|group| group.launches).sum::<usize>(), timings.len());
            let names: Vec<&str> = groups.iter().map(|group| group.group).collect();
            assert_eq!(names, ["GEMM", "attention", "norm", "loss", "optimiser", "other"]);
            assert!(kernels.iter().chain(&steps).all(|row| row.of_roofline.is_none_or(|share| share > 0.0)));
            let all = kernels.iter().chain(&steps);
            for row in all.filter(|row| row.flops.is_some_and(|flops| flops > 0.0)) {
                let (flops, bytes) = (row.flops.unwrap_or(0.0), row.bytes.unwrap_or(0.0));
                assert_eq!(row.flops_per_second, Some(flops / row.seconds), "{row:?}");
                assert_eq!(row.bytes_per_second, Some(bytes / row.seconds), "{row:?}");
            }
        }
    }

    #[test]
    fn a_step_of_several_kernels_is_rated_as_a_whole_and_its_kernels_are_not() {
        let shape = presets::find("tiny").expect("it is a preset").shape();
        let arch = arch::find("sm_90a").expect("it is a row");
        let plan = train_step(&shape, &Options::default(), 2, 64);
        let timings = timed(&plan, Some(arch));
        let Rows { kernels, steps, .. } = rows(&plan, &timings, Some(arch), None, shape.precision);
        let wholes: Vec<&str> = steps.iter().map(|row| row.kernel.as_str()).collect();
        for op in ["attention_backward", "norm_backward", "head_loss", "gradient_norm"] {
            assert!(wholes.contains(&op), "{op} is not in {wholes:?}");
        }
        for whole in &steps {
            let of_op = |step: &&kernwright_plan::plan::Step| step.op.name() == whole.kernel;
            let (mut cost, mut launches) = (Cost::default(), 0);
            for step in plan.steps.iter().filter(of_op).map(|step| step.at(MicroStep::First)) {
                let io = plan.io(&step);
                cost += step.op.cost(&io);
                let Lowered::Launches(of_step) = step.op.lower(&io, arch) else { panic!("{}", whole.kernel) };
                launches += of_step.len();
            }
            assert_eq!(
                (whole.flops, whole.bytes),
                (Some(cost.flops()), Some(cost.bytes)),
                "{}",
                whole.kernel
            );
            assert_eq!((whole.launches, whole.seconds), (launches, launches as f64), "{}", whole.kernel);
        }
        let row = |name: &str| kernels.iter().find(|row| row.kernel.starts_with(name)).expect(name);
        for part in ["attention_backward_delta", "attention_backward_keys", "attention_backward_queries"] {
            let KernelRow { flops, bytes, flops_per_second, bytes_per_second, .. } = row(part);
            assert_eq!([*flops, *bytes, *flops_per_second, *bytes_per_second], [None; 4], "{part}");
        }
        // Alone in its step, a kernel does all of the step's work.
        let of_adamw = plan.steps.iter().find(|step| step.op.name() == "adamw").expect("it is there");
        assert_eq!(row("adamw").bytes, Some(of_adamw.op.cost(&plan.io(of_adamw)).bytes));
    }

    #[test]
    fn without_launches_there_is_a_row_per_op_with_its_whole_work() {
        let shape = presets::find("tiny").expect("it is a preset").shape();
        let plan = train_step(&shape, &Options::host(), 2, 64);
        let Rows { kernels, steps, .. } = rows(&plan, &timed(&plan, None), None, None, Dtype::Fp32);
        assert!(steps.is_empty(), "each is a row already");
        let flops: f64 = kernels.iter().filter_map(|row| row.flops).sum();
        assert!((flops / plan.cost().flops() - 1.0).abs() < 1e-9);
        assert!(kernels.iter().all(|row| row.of_roofline.is_none()));
        let mut names: Vec<&str> = kernels.iter().map(|row| row.kernel.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), kernels.len());
    }
}
