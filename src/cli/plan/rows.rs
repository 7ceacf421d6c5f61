//! A plan and a GPU become rows of numbers: one per step, and totals. The field names are those of `--json`.

use kernwright_plan::buffer::{BufferId, Role};
use kernwright_plan::cost::Cost;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::gpu::Gpu;
use kernwright_plan::launch::{Launch, Lowered};
use kernwright_plan::passes::memory;
use kernwright_plan::plan::{Mode, Phase, Plan, Step};
use kernwright_runtime::gpu as runtime;
use serde::Serialize;
use std::collections::BTreeMap;

/// One step.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StepRow {
    pub(super) index: usize,
    pub(super) phase: &'static str,
    /// Does it belong to every training step? Those of phase `prepare` do not.
    pub(super) counted: bool,
    pub(super) op: &'static str,
    pub(super) writes: Vec<Slot>,
    pub(super) reads: Vec<Slot>,
    pub(super) tensor_flops: f64,
    pub(super) vector_flops: f64,
    pub(super) flops: f64,
    pub(super) bytes: f64,
    pub(super) roofline_seconds: f64,
    pub(super) launches: Vec<LaunchRow>,
    /// Why it has no launches, if so.
    pub(super) no_kernel: Option<&'static str>,
}

/// A buffer that a step reads or writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Slot {
    pub(super) slot: &'static str,
    pub(super) buffer: String,
    pub(super) dtype: &'static str,
    pub(super) shape: Vec<usize>,
    pub(super) role: &'static str,
    /// How it is written; absent when it is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<&'static str>,
}

/// What a step is on the GPU.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum LaunchRow {
    Kernel {
        kernel: String,
        template: &'static str,
        grid: [u32; 3],
        block: u32,
        shared_memory: u32,
    },
    Gemm {
        m: usize,
        n: usize,
        k: usize,
        /// Products of these sizes.
        count: usize,
    },
    Copy {
        from: String,
        to: String,
    },
    Zero {
        buffer: String,
    },
}

/// Sums over the counted steps.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Totals {
    pub(super) n_steps: usize,
    /// Steps that run on the CPU only, so far.
    pub(super) n_without_kernel: usize,
    pub(super) tensor_flops: f64,
    pub(super) vector_flops: f64,
    pub(super) flops: f64,
    pub(super) flops_per_token: f64,
    pub(super) bytes: f64,
    pub(super) roofline_seconds: f64,
    pub(super) tokens_per_second: f64,
}

/// Planned memory, bytes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Memory {
    /// By role. Activations and scratch share room: theirs are sums, not peaks.
    pub(super) by_role: BTreeMap<&'static str, usize>,
    pub(super) persistent: usize,
    pub(super) transient: usize,
    /// The peak of the plan: persistent and transient.
    pub(super) arena: usize,
    /// What the GPU takes beside the plan, by what for.
    pub(super) beside: BTreeMap<&'static str, usize>,
    /// All of that.
    pub(super) peak: usize,
    /// Of the host's memory, pinned.
    pub(super) pinned: usize,
}

/// A row per step.
pub(super) fn steps(plan: &Plan, gpu: &Gpu, precision: Dtype) -> Vec<StepRow> {
    let tensor_cores = precision.bytes() < Dtype::Fp32.bytes();
    plan.steps.iter().enumerate().map(|(index, step)| row(plan, gpu, tensor_cores, index, step)).collect()
}

fn row(plan: &Plan, gpu: &Gpu, tensor_cores: bool, index: usize, step: &Step) -> StepRow {
    let io = plan.io(step);
    let cost: Cost = step.op.cost(&io);
    let slot = |slot, id: BufferId, mode: Option<Mode>| {
        let buffer = plan.buffer(id);
        let mode = mode.map(|mode| match mode {
            Mode::Overwrite => "overwrite",
            Mode::Accumulate => "accumulate",
            Mode::AccumulateLater => "accumulate later",
        });
        let (dtype, role) = (buffer.dtype.name(), buffer.role.name());
        Slot { slot, buffer: buffer.name.clone(), dtype, shape: buffer.shape.clone(), role, mode }
    };
    let (launches, no_kernel) = match step.op.lower(&io, &gpu.arch) {
        Lowered::Launches(launches) => (launches.iter().map(|one| launch(plan, one)).collect(), None),
        Lowered::NoKernel(why) => (Vec::new(), Some(why)),
    };
    StepRow {
        index,
        phase: step.phase.name(),
        counted: step.phase != Phase::Prepare,
        op: step.op.name(),
        writes: step.writes.iter().map(|one| slot(one.slot, one.buffer, Some(one.mode))).collect(),
        reads: step.reads.iter().map(|one| slot(one.slot, one.buffer, None)).collect(),
        tensor_flops: cost.tensor_flops,
        vector_flops: cost.vector_flops,
        flops: cost.flops(),
        bytes: cost.bytes,
        roofline_seconds: cost.roofline_seconds(&gpu.card, tensor_cores),
        launches,
        no_kernel,
    }
}

fn launch(plan: &Plan, launch: &Launch) -> LaunchRow {
    let name = |id: BufferId| plan.buffer(id).name.clone();
    match launch {
        Launch::Kernel { spec, grid, .. } => LaunchRow::Kernel {
            kernel: spec.name(),
            template: spec.template,
            grid: *grid,
            block: spec.block,
            shared_memory: spec.shared_memory,
        },
        Launch::Gemm(gemm) => {
            let count = gemm.batches.iter().map(|batch| batch.count).product();
            LaunchRow::Gemm { m: gemm.m, n: gemm.n, k: gemm.k, count }
        }
        Launch::Copy { from, to } => LaunchRow::Copy { from: name(*from), to: name(*to) },
        Launch::Zero { buffer } => LaunchRow::Zero { buffer: name(*buffer) },
    }
}

/// Sums. Each step meets its own roofline, so their times add up.
#[allow(clippy::cast_precision_loss)]
pub(super) fn totals(rows: &[StepRow], n_tokens: usize) -> Totals {
    let mut totals = Totals::default();
    for row in rows.iter().filter(|row| row.counted) {
        totals.n_steps += 1;
        totals.n_without_kernel += usize::from(row.no_kernel.is_some());
        totals.tensor_flops += row.tensor_flops;
        totals.vector_flops += row.vector_flops;
        totals.flops += row.flops;
        totals.bytes += row.bytes;
        totals.roofline_seconds += row.roofline_seconds;
    }
    totals.flops_per_token = totals.flops / n_tokens as f64;
    totals.tokens_per_second = n_tokens as f64 / totals.roofline_seconds;
    totals
}

/// Planned memory.
pub(super) fn memory(plan: &Plan, gpu: &Gpu) -> Memory {
    let beside = runtime::beside(gpu.arch.capability());
    let by_role = Role::ALL.iter().map(|role| (role.name(), memory::bytes(plan, *role)));
    Memory {
        by_role: by_role.filter(|(_, bytes)| *bytes > 0).collect(),
        persistent: plan.persistent_bytes,
        transient: plan.arena_bytes - plan.persistent_bytes,
        arena: plan.arena_bytes,
        peak: plan.arena_bytes + beside.iter().map(|(_, bytes)| bytes).sum::<usize>(),
        beside: beside.into_iter().collect(),
        pinned: runtime::pinned(),
    }
}
