//! The multi-threaded executor on the host, in fp32.
//!
//! In: a plan. Out: the content of its buffers, the same bits for any number of threads: work is cut into blocks that
//! depend on dimensions alone, and sums over blocks have a fixed order. Must not know models or data.

mod activation;
mod adamw;
mod attention;
mod attention_backward;
mod blocks;
mod elementwise;
mod embedding;
mod exp;
mod gradient_norm;
mod head;
mod head_loss;
mod lanes;
mod linear;
pub(crate) mod matmul;
mod norm;
mod positions;
mod rope;
mod slots;
mod softcap;
mod softmax;
mod storage;
mod workspace;

use kernwright_plan::buffer::BufferId;
use kernwright_plan::executor::{Executor, ExecutorError, MicroStep, PlanId, Values};
use kernwright_plan::ops::Op;
use kernwright_plan::plan::Plan;
use rope::Angles;
use slots::Slots;
use std::ops::Range;
use storage::{Loaded, Storage};
use workspace::Workspace;

/// Runs plans on the host's cores.
#[derive(Debug)]
pub struct Cpu {
    pool: rayon::ThreadPool,
    plans: Vec<Loaded>,
    storage: Storage,
    tools: Tools,
}

/// What ops need besides the matrices of their step.
#[derive(Debug)]
struct Tools {
    workspace: Workspace,
    angles: Angles,
}

impl Cpu {
    /// An executor with this many threads, or with one for each core. The number changes the time, not the bits.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn new(threads: Option<usize>) -> Result<Self, ExecutorError> {
        let available = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let n_threads = threads.unwrap_or_else(available).max(1);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .thread_name(|index| format!("cpu executor {index}"))
            .build()
            .map_err(|error| ExecutorError::Data(format!("cannot start {n_threads} threads: {error}")))?;
        let tools = Tools { workspace: Workspace::new(n_threads), angles: Angles::default() };
        Ok(Self { pool, plans: Vec::new(), storage: Storage::default(), tools })
    }

    /// How many threads it runs on.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }
}

impl Executor for Cpu {
    fn load(&mut self, plan: Plan) -> Result<PlanId, ExecutorError> {
        let loaded = self.storage.load(plan)?;
        for step in &loaded.plan.steps {
            if let Op::Rope(rope) = &step.op {
                self.tools.angles.add(rope);
            }
        }
        self.plans.push(loaded);
        Ok(PlanId(self.plans.len() - 1))
    }

    fn plan(&self, plan: PlanId) -> &Plan {
        &self.plans[plan.0].plan
    }

    fn write(&mut self, plan: PlanId, buffer: BufferId, values: Values<'_>) -> Result<(), ExecutorError> {
        let loaded = &self.plans[plan.0];
        values.check(loaded.plan.buffer(buffer))?;
        let mut to = self.storage.matrix_mut(loaded, buffer)?;
        let columns = to.n_columns();
        for row in 0..to.n_rows() {
            let part = row * columns..(row + 1) * columns;
            match values {
                Values::Float(values) => to.row(row).copy_from_slice(&values[part]),
                Values::Int(values) => {
                    for (word, value) in to.row(row).iter_mut().zip(&values[part]) {
                        *word = f32::from_bits(value.cast_unsigned());
                    }
                }
            }
        }
        Ok(())
    }

    #[allow(clippy::cast_precision_loss)]
    fn read(&self, plan: PlanId, buffer: BufferId) -> Result<Vec<f32>, ExecutorError> {
        let loaded = &self.plans[plan.0];
        let from = self.storage.matrix(loaded, buffer)?;
        let mut values = Vec::with_capacity(from.n_rows() * from.n_columns());
        for row in 0..from.n_rows() {
            values.extend_from_slice(from.row(row));
        }
        if loaded.plan.buffer(buffer).dtype.is_integer() {
            values.iter_mut().for_each(|value| *value = value.to_bits().cast_signed() as f32);
        }
        Ok(values)
    }

    fn run(&mut self, plan: PlanId, steps: Range<usize>, micro: MicroStep) -> Result<(), ExecutorError> {
        let Self { pool, plans, storage, tools } = self;
        let loaded = &plans[plan.0];
        let n_steps = loaded.plan.steps.len();
        let Some(steps) = loaded.plan.steps.get(steps.clone()) else {
            return Err(ExecutorError::Plan(format!("it has {n_steps} steps, asked for {steps:?}")));
        };
        pool.install(|| {
            for step in steps {
                run_op(&step.op, storage.bind(loaded, step, micro)?, tools)?;
            }
            Ok(())
        })
    }
}

fn run_op(op: &Op, slots: Slots<'_>, tools: &Tools) -> Result<(), ExecutorError> {
    match op {
        Op::Embedding(op) => embedding::forward(op, slots),
        Op::EmbeddingBackward(op) => embedding::backward(&op.0, slots),
        Op::Positions(op) => positions::forward(op.length, slots),
        Op::PositionsBackward(op) => positions::backward(op.length, slots),
        Op::Norm(op) => norm::forward(op, slots),
        Op::NormBackward(op) => norm::backward(&op.0, slots),
        Op::Linear(op) => linear::forward(op, slots),
        Op::LinearBackward(_) => linear::backward(slots),
        Op::Rope(op) => rope::rotate(op, slots, &tools.angles),
        Op::Attention(op) => attention::forward(op, slots, &tools.workspace),
        Op::AttentionBackward(op) => attention_backward::backward(&op.attention, slots, &tools.workspace),
        Op::Activation(op) => activation::forward(op.kind, slots),
        Op::ActivationBackward(op) => activation::backward(op.kind, slots),
        Op::Add(_) => elementwise::add(slots),
        Op::Scale(op) => elementwise::scale(op, slots),
        Op::Cast(_) => elementwise::copy(slots),
        Op::Zero(_) => elementwise::zero(slots),
        Op::HeadLoss(op) => head_loss::loss(op, slots),
        Op::Head(op) => head::logits(&op.logits, slots),
        Op::GradientNorm(op) => gradient_norm::norm(op, slots),
        Op::AdamW(op) => adamw::update(op, slots),
    }
}
