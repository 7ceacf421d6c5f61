//! The head and the loss in one: `logits = f(x weight^T (+ bias))`, softmax cross-entropy, and in training the gradients.
//!
//! With `lse = ln sum exp logits`, `loss = inverse_count sum over counted rows of (lse - logits[target] + z_loss lse^2)`,
//! the last term after A. Chowdhery et al., PaLM, 2022. f scales and caps (see `head::Logits`). Rows whose target is -100
//! are not counted; `inverse_count` is 1 over the number of counted rows of the whole step (all micro-batches), or 0
//! when there is none. `d_logits = loss_scale inverse_count (softmax(logits) (1 + 2 z_loss lse) - onehot(target))`: only
//! the gradient is scaled. Logits exist for `chunk` rows at a time only, which is why the gradients are made here and not
//! by a step of their own.

use super::Operation;
use super::embedding::token_index;
use super::head::Logits;
use super::linear::gradient_writes;
use super::rowwise::{
    MISSING, TOO_LARGE, UNEVEN, WARP, WIDTH, accumulate, aligned, column_sums, column_totals, count, kernel,
    launches, pointer,
};
use crate::arch::Arch;
use crate::cost::Cost;
use crate::launch::{Argument, Epilogue, Gemm, Launch, Lowered, Operand};
use crate::plan::{Io, Mode, Step, Write};
use crate::spec::{KernelSpec, SpecValue, field};
use crate::tape::Tape;

#[cfg(feature = "reference")]
use crate::{
    case::{Case, Fill, case},
    float::Float,
    reference::{Inputs, Outputs},
};

/// The target of a row that does not count.
pub const IGNORED: i32 = -100;

/// Reads x [rows, d], weight [vocab or more, d], targets [rows], inverse_count [1], and where there are such bias [vocab or
/// more] and loss_scale [1]. Writes loss [1] and in training d_x, d_weight, d_bias. Scratch: logits [chunk, rows of weight],
/// losses [rows], and partials for d_bias.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadLoss {
    /// Rows of logits that exist at once.
    pub chunk: usize,
    /// From products to logits.
    pub logits: Logits,
    /// Weight of the squared log-sum-exp in the loss.
    pub z_loss: f64,
    /// Is a row of logits held in shared memory, if it fits there, and so read once?
    pub single_pass: bool,
}

/// Bytes of logits that exist at once, where one row does not need more. Each chunk after the first reads and writes the
/// whole gradient of the weight once more, which is what few chunks save; room is what they cost.
const LOGITS: usize = 512 << 20;

/// Rows of which chunks are made up, where they may be: products like them.
const CHUNK_ROWS: usize = 128;

/// Rows of a chunk on the host, whose caches are small.
pub const HOST_CHUNK: usize = 512;

/// Rows of a chunk on a GPU: as few chunks as the bytes of logits allow, of equal size.
#[must_use]
pub fn chunk(rows: usize, row_bytes: usize) -> usize {
    let most = (LOGITS / row_bytes.max(1)).max(1);
    let even = rows.div_ceil(rows.div_ceil(most).max(1));
    even.next_multiple_of(CHUNK_ROWS).min(most)
}

/// Most chunks in a step: each is several launches.
const CHUNKS: usize = 1 << 16;

/// Bytes that a thread moves at once.
const WORD: usize = 16;

/// Most threads that share a row.
const ROW_THREADS: usize = 1024;

/// Threads of the one block that adds the rows' losses.
const TOTAL_BLOCK: u32 = 1024;

impl HeadLoss {
    /// Losses of the chunk of `n` rows from `first` on and, in training, the gradient in place of its logits.
    fn softmax(&self, io: &Io, arch: &Arch, (first, n): (usize, usize)) -> Option<Launch> {
        let columns = io.columns("logits");
        let bytes = columns * io.dtype("logits").bytes();
        // Eight words of 16 bytes per thread of a row that is held, else two of 8 columns, or more.
        let block = |units: usize| units.next_power_of_two().clamp(WARP, ROW_THREADS);
        let (held, general) = (block(bytes.div_ceil(8 * WORD)), block(columns.div_ceil(2 * WIDTH)));
        let sums = |block: usize| 4 * block / WARP;
        let fits = bytes + sums(held) <= arch.shared_memory as usize;
        let is_held = self.single_pass && gradient(io) && bytes.is_multiple_of(WORD) && fits;
        let (block, room) = if is_held { (held, bytes) } else { (general, 0) };
        let mut fields = vec![
            field("z_type", "", SpecValue::Type(io.dtype("logits"))),
            field("vocab", "v", SpecValue::Int(self.logits.vocab as i64)),
            field("columns", "d", SpecValue::Int(columns as i64)),
        ];
        fields.extend(self.logits.fields());
        fields.push(field("gradient", "gradient", SpecValue::Bool(gradient(io))));
        fields.push(field("held", "held", SpecValue::Bool(is_held)));
        let spec = KernelSpec {
            template: "head_loss/softmax",
            block: block as u32,
            shared_memory: (room + sums(block)) as u32,
            fields,
        };
        let mut arguments = ["losses", "logits", "targets", "inverse_count", "loss_scale"]
            .map(|slot| pointer(io, slot))
            .to_vec();
        arguments.extend([count(first), Argument::F32(self.z_loss as f32)]);
        kernel(spec, [n, 1, 1], arguments)
    }
}

/// Does the step make gradients, or the loss alone?
fn gradient(io: &Io) -> bool {
    ["d_x", "d_weight", "d_bias"].iter().any(|slot| io.has(slot))
}

/// The loss, from those of all rows.
fn total(io: &Io) -> Option<Launch> {
    let spec = KernelSpec {
        template: "head_loss/total",
        block: TOTAL_BLOCK,
        shared_memory: 4 * TOTAL_BLOCK / WARP as u32,
        fields: Vec::new(),
    };
    let mut arguments = ["loss", "losses", "inverse_count"].map(|slot| pointer(io, slot)).to_vec();
    arguments.extend([count(io.rows("x")), accumulate(io, "loss")]);
    kernel(spec, [1, 1, 1], arguments)
}

/// The target of a row as an index, `None` when it does not count.
///
/// # Errors
/// When it is neither [`IGNORED`] nor below `vocab`.
pub fn target_index(target: i64, vocab: usize, row: usize) -> Result<Option<usize>, String> {
    if target == i64::from(IGNORED) {
        return Ok(None);
    }
    token_index(target, vocab, row).map(Some).map_err(|error| format!("target: {error}, or {IGNORED}"))
}

impl Operation for HeadLoss {
    const NAME: &'static str = "head_loss";
    const NARROW: &'static [&'static str] = &["x", "weight"];

    fn cost(&self, io: &Io) -> Cost {
        let logits = io.rows("x") as f64 * io.rows("weight") as f64;
        let products = 1 + u8::from(io.has("d_x")) + u8::from(io.has("d_weight"));
        let tensor_flops = f64::from(products) * 2.0 * logits * io.columns("x") as f64;
        // The logits are written, and read by the loss; in training it reads them again, unless it held them, and replaces
        // them by their gradient, which each product reads.
        let again = if gradient(io) { 1 + u8::from(!self.single_pass) } else { 0 };
        let logits_bytes = logits * io.dtype("x").bytes() as f64 * f64::from(1 + products + again);
        // Each chunk after the first adds to the gradient of the weight.
        let chunks = io.rows("x").div_ceil(self.chunk.max(1)).max(1) as f64;
        let weight = if io.has("d_weight") { io.buffer("d_weight").bytes() as f64 } else { 0.0 };
        let bytes = io.bytes() + logits_bytes + 2.0 * (chunks - 1.0) * weight;
        Cost { tensor_flops, vector_flops: 6.0 * logits, bytes }
    }

    /// The forward step itself makes the gradients: it only has to be told where they go.
    fn backward(&self, step: &Step, index: usize, tape: &mut Tape) {
        let writes = gradient_writes(step, tape, self.chunk);
        tape.extend_forward(index, writes);
    }

    /// Chunk by chunk: the logits, in place of which the softmax kernel leaves their gradient, and the products with it.
    /// The rows' losses are added up at the end, in one order.
    fn lower(&self, io: &Io, arch: &Arch) -> Lowered {
        let id = |slot| io.id(slot);
        let (Some(x), Some(weight), Some(logits)) = (id("x"), id("weight"), id("logits")) else {
            return MISSING;
        };
        let is_missing = |slot: &str| !io.has(slot);
        if ["targets", "inverse_count", "loss", "losses"].into_iter().any(is_missing)
            || (io.has("d_bias") && is_missing("partials"))
        {
            return MISSING;
        }
        if io.has("d_bias") && !aligned(io, &["logits"]) {
            return UNEVEN;
        }
        let (rows, d, columns) = (io.rows("x"), io.columns("x"), io.columns("logits"));
        let plain = |buffer, row| Operand { row, ..Operand::plain(buffer) };
        let product = |a, b, c, (d, row), (m, n, k)| {
            Some(Launch::Gemm(Gemm {
                a,
                b,
                c,
                bias: None,
                d,
                epilogue: Epilogue::None,
                row,
                batches: Vec::new(),
                m,
                n,
                k,
            }))
        };
        let chunk = io.rows("logits").max(1);
        if rows.div_ceil(chunk) > CHUNKS {
            return TOO_LARGE;
        }
        let mut all = Vec::new();
        for first in (0..rows).step_by(chunk) {
            let n = chunk.min(rows - first);
            // Chunks after the first add to the sums over rows.
            let adds = |slot| first > 0 || io.mode(slot) != Some(Mode::Overwrite);
            all.push(Some(Launch::Gemm(Gemm {
                a: plain(x, first),
                b: Operand::turned(weight),
                c: None,
                bias: io.id("bias"),
                d: logits,
                epilogue: Epilogue::None,
                row: 0,
                batches: Vec::new(),
                m: n,
                n: columns,
                k: d,
            })));
            all.push(self.softmax(io, arch, (first, n)));
            if let Some(d_x) = io.id("d_x") {
                let c = (io.mode("d_x") != Some(Mode::Overwrite)).then_some(d_x);
                all.push(product(plain(logits, 0), plain(weight, 0), c, (d_x, first), (n, d, columns)));
            }
            if let Some(d_weight) = io.id("d_weight") {
                let c = adds("d_weight").then_some(d_weight);
                all.push(product(
                    Operand::turned(logits),
                    plain(x, first),
                    c,
                    (d_weight, 0),
                    (columns, d, n),
                ));
            }
            if io.has("d_bias") {
                let adds = Argument::I32(i32::from(adds("d_bias")));
                all.push(column_sums(io, "partials", "logits", n));
                all.push(column_totals(io, [Some("d_bias"), None], "partials", columns, adds));
            }
        }
        all.push(total(io));
        launches(all)
    }

    #[cfg(feature = "reference")]
    fn reference<F: Float>(&self, inputs: &Inputs<F>) -> Result<Outputs<F>, String> {
        let (x, weight, scale) = (inputs.get("x"), inputs.get("weight"), inputs.get("inverse_count")[0]);
        let ((_, d), (rows, _)) = (inputs.dims("x"), inputs.dims("weight"));
        let (vocab, one, z_loss) = (self.logits.vocab, F::of(1.0), F::of(self.z_loss));
        let mut loss = F::default();
        let loss_scale = inputs.find("loss_scale").map_or(one, |loss_scale| loss_scale[0]);
        let (mut d_x, mut d_weight) = (vec![F::default(); x.len()], vec![F::default(); weight.len()]);
        let mut d_bias = vec![F::default(); rows];
        for (row, target) in inputs.integers("targets").into_iter().enumerate() {
            let Some(target) = target_index(target, vocab, row)? else { continue };
            let x = &x[row * d..][..d];
            let logit = |token: usize| {
                let products = (0..d).map(|i| inputs.operand(x[i]) * inputs.operand(weight[token * d + i]));
                let bias = inputs.find("bias").map_or(F::default(), |bias| bias[token]);
                // The products of a chunk lie in memory, in the type of the operands.
                self.logits.value_and_slope(inputs.operand(products.sum::<F>() + bias))
            };
            let logits: Vec<(F, F)> = (0..vocab).map(logit).collect();
            let max = logits.iter().fold(logits[0].0, |a, (b, _)| if *b > a { *b } else { a });
            let lse = max + logits.iter().map(|(logit, _)| (*logit - max).exp()).sum::<F>().ln();
            loss += (lse - logits[target].0 + z_loss * lse * lse) * scale;
            let softmax_factor = one + F::of(2.0) * z_loss * lse;
            for (token, (logit, slope)) in logits.into_iter().enumerate() {
                let hit = if token == target { one } else { F::default() };
                let g = ((logit - lse).exp() * softmax_factor - hit) * scale * loss_scale * slope;
                let g = inputs.operand(g);
                d_bias[token] += g;
                for i in 0..d {
                    d_x[row * d + i] += g * inputs.operand(weight[token * d + i]);
                    d_weight[token * d + i] += g * inputs.operand(x[i]);
                }
            }
        }
        Ok(vec![("loss", vec![loss]), ("d_x", d_x), ("d_weight", d_weight), ("d_bias", d_bias)])
    }

    #[cfg(feature = "reference")]
    fn cases() -> Vec<Case> {
        let one = |targets: Vec<i32>, (vocab, padded): (usize, usize), d: usize, op: HeadLoss| {
            let rows = targets.len();
            let counted = targets.iter().filter(|target| **target != IGNORED).count();
            let inverse = if counted == 0 { 0.0 } else { 1.0 / counted as f32 };
            let mut reads = vec![
                ("x", vec![rows, d], Fill::Normal(1.0)),
                ("weight", vec![padded, d], Fill::Normal(0.6)),
                ("targets", vec![rows], Fill::Ints(targets)),
                ("inverse_count", vec![1], Fill::Values(vec![inverse])),
            ];
            let chunk = op.chunk.min(rows);
            let op = HeadLoss { logits: Logits { vocab, ..op.logits }, ..op };
            // The plain ones do without the bias.
            if op.logits.softcap.is_some() || op.z_loss != 0.0 {
                reads.push(("bias", vec![padded], Fill::Normal(0.5)));
            }
            if op.z_loss != 0.0 {
                reads.push(("loss_scale", vec![1], Fill::Values(vec![8.0])));
            }
            let label = format!("{rows}x{d} of {padded}, {counted} counted, {op:?}");
            let mut case = case(&label, op, &reads, &[("loss", vec![1])]);
            scratch(&mut case.plan, chunk, padded);
            case
        };
        let odd = |chunk: usize, scale: f64, softcap: Option<f64>, z_loss: f64| HeadLoss {
            chunk,
            logits: Logits { vocab: 0, scale, softcap },
            z_loss,
            single_pass: true,
        };
        let plain = |chunk: usize| odd(chunk, 1.0, None, 0.0);
        let twice = |op: HeadLoss| HeadLoss { single_pass: false, ..op };
        vec![
            one(vec![3, -100, 0, 10, 4, 4, 10], (11, 11), 24, plain(3)),
            one(vec![1], (2, 2), 8, plain(512)),
            one(vec![-100, -100, -100], (5, 5), 16, plain(2)),
            one((0..70).map(|i| i * 7 % 33).collect(), (33, 33), 40, plain(64)),
            one(vec![3, -100, 0, 10, 4, 4, 10], (11, 16), 24, odd(3, 0.5, Some(2.0), 0.0)),
            one((0..35).map(|i| i * 5 % 37).collect(), (37, 40), 16, odd(16, 1.0, None, 0.01)),
            one(vec![8, 0, 2, -100, 5], (9, 24), 8, odd(2, 1.7, Some(4.0), 0.003)),
            one(vec![8, 0, 2, -100, 5], (9, 24), 8, twice(odd(2, 1.7, Some(4.0), 0.003))),
            one((0..35).map(|i| i * 5 % 37).collect(), (37, 40), 16, twice(odd(16, 1.0, None, 0.01))),
        ]
    }
}

/// Gives every `head_loss` step of a plan room for the logits of `chunk` rows, and for the losses of all.
pub fn scratch(plan: &mut crate::plan::Plan, chunk: usize, vocab: usize) {
    for index in 0..plan.steps.len() {
        if matches!(plan.steps[index].op, super::Op::HeadLoss(_)) {
            let io = plan.io(&plan.steps[index]);
            let (dtype, rows) = (io.dtype("x"), io.rows("x"));
            for (slot, shape, dtype) in
                [("logits", vec![chunk, vocab], dtype), ("losses", vec![rows], crate::dtype::Dtype::Fp32)]
            {
                let buffer = plan.add(slot, shape, dtype, crate::buffer::Role::Scratch);
                plan.steps[index].writes.push(Write { slot, buffer, mode: Mode::Overwrite });
            }
        }
    }
    *plan = crate::passes::memory::place(std::mem::take(plan));
}
