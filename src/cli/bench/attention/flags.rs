//! Flags of `bench attention`: which shapes, of which kernels, beside whom.

use super::super::ablation::Stage;
use super::super::case::{Case, TABLE};
use crate::cli::attention_values::{self as values, BATCHES, LENGTHS};
use crate::cli::device::{Asked, DeviceArguments};
use crate::cli::plan_flags::precisions;
use crate::cli::{gpu, tables};
use clap::Args;
use clap::builder::PossibleValuesParser;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::gpu::Gpu;
use kernwright_plan::shape::Layout;
use kernwright_plan::tuning::Table;
use std::path::PathBuf;
use std::sync::Arc;

/// What the words for the two forms of the backward pass mean.
pub(super) const FORMS: &str = "`free` is the backward pass that adds the gradient of queries in any order, so that its last bits may \
                     differ from run to run; `ordered` is the one that gives the same bits every time, the default in training";

/// Flags of `bench attention`.
#[derive(Clone, Debug, Args)]
#[command(after_help = format!("\
{FORMS}.
With --ablate a stage of the kernels is left out: the time that is missing is what it costs; results are wrong then.

Examples:
  kernwright bench attention                                  a table of shapes
  kernwright bench attention --batch 32 --heads 12 --kv-heads 4 --head-dim 64 --length 1024
  kernwright bench attention --head-dim 128 --length 4096 --full --ablate softmax
  kernwright bench attention --length 1024 --key-length 8192  queries at the end of a longer sequence
  kernwright bench attention --arch sm_80                     the kernels that an A100 gets, on this GPU
  kernwright bench attention --peers --python .venv/bin/python3       beside FlashAttention and cuDNN
  kernwright bench attention --accuracy --full --softcap 50           errors against fp64 mathematics, too"))]
pub(in super::super) struct Arguments {
    #[command(flatten)]
    pub(super) device: DeviceArguments,
    /// Sequences; any of these flags replaces the table by one shape
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(BATCHES))]
    batch: Option<u32>,
    /// Query heads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    heads: Option<u32>,
    /// Heads of keys and values; they must divide the query heads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    kv_heads: Option<u32>,
    /// Width of a head
    #[arg(long, value_name = "N", value_parser = values::head_dim)]
    head_dim: Option<u32>,
    /// Tokens per sequence
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(LENGTHS))]
    length: Option<u32>,
    /// Keys per sequence; the last query stands at the last key [default: the length]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(LENGTHS))]
    key_length: Option<u32>,
    /// Order of dimensions in memory: queries, keys and values of a token in one row, or each on their own by token or by head
    /// [default: packed, and bshd with --key-length]
    #[arg(long, value_name = "LAYOUT", value_parser = layouts())]
    layout: Option<String>,
    /// A query sees only keys nearer than this
    #[arg(long, value_name = "N", value_parser = values::window)]
    window: Option<u32>,
    /// Bound of the scores
    #[arg(long, value_name = "X", value_parser = values::softcap)]
    softcap: Option<f64>,
    /// Queries see what is behind them, too
    #[arg(long)]
    full: bool,
    /// Element type; the CPU has fp32 alone [default: bf16, and fp32 on the CPU]
    #[arg(long, value_name = "TYPE", value_parser = precisions())]
    pub(super) precision: Option<String>,
    /// Measured replays
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) steps: u32,
    /// Time the kernels that another target gets, such as sm_80: its instructions and tiles, compiled for this GPU
    #[arg(long, alias = "gpu", value_name = "GPU", value_parser = gpu::parse)]
    pub(super) arch: Option<Gpu>,
    /// Take tiles from a table that `tune` wrote, before those that Kernwright has
    #[arg(long, value_name = "FILE.toml", value_parser = tables::parse)]
    pub(super) table: Option<Arc<Table>>,
    /// Leave a stage out of the kernels
    #[arg(long, value_name = "STAGE", value_enum)]
    pub(super) ablate: Option<Stage>,
    /// Time FlashAttention 2, cuDNN and, where it is installed, FlashAttention 4 first, through PyTorch
    #[arg(long, conflicts_with = "ablate")]
    peers: bool,
    /// Also the errors of all results, ours and those of peers, against fp64 mathematics; implies --peers. What is true of a
    /// row takes 4 bytes per number in the folder for temporary files
    #[arg(long, conflicts_with = "ablate")]
    pub(super) accuracy: bool,
    /// The Python whose PyTorch runs peers
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub(super) python: PathBuf,
    /// Print everything as one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

/// Values of `--layout`.
fn layouts() -> PossibleValuesParser {
    PossibleValuesParser::new(Layout::ALL.map(Layout::name))
}

impl Arguments {
    /// Flags that need a GPU are not for the CPU, and others have what peers take.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_cpu = self.device.device == Asked::Cpu;
        let of_gpu = [
            ("`--ablate` changes", self.ablate.is_some()),
            ("`--arch` chooses", self.arch.is_some()),
            ("`--table` is about", self.table.is_some()),
        ];
        if let Some((flag, _)) = of_gpu.iter().find(|(_, is)| *is && is_cpu) {
            return Err(format!("{flag} a GPU's kernels: it needs a GPU"));
        }
        let Some(flag) = self.peers_flag() else { return Ok(()) };
        if is_cpu {
            return Err(format!("`{flag}` times kernels of a GPU: it needs one"));
        }
        if self.precision.as_deref() == Some(Dtype::Fp32.name()) {
            return Err(format!("`{flag}` takes `bf16` or `fp16`, found `--precision fp32`"));
        }
        Ok(())
    }

    /// The flag that asks for peers.
    pub(super) fn peers_flag(&self) -> Option<&'static str> {
        if self.accuracy { Some("--accuracy") } else { self.peers.then_some("--peers") }
    }

    /// The number of the GPU.
    pub(super) fn index(&self) -> u32 {
        if let Asked::Cuda(index) = self.device.device { index } else { 0 }
    }

    /// The one that flags describe, else the table's.
    pub(super) fn cases(&self) -> Result<Vec<Case>, String> {
        let numbers = [self.batch, self.heads, self.kv_heads, self.head_dim, self.length, self.key_length];
        let asked = Layout::ALL.into_iter().find(|layout| self.layout.as_deref() == Some(layout.name()));
        let like = |case: &Case| Case {
            causal: !self.full,
            window: self.window.map(|n| n as usize),
            softcap: self.softcap,
            layout: asked.unwrap_or(case.layout),
            ..*case
        };
        if numbers.iter().all(Option::is_none) {
            return Ok(TABLE.iter().map(like).collect());
        }
        let mask = like(&TABLE[0]);
        let or = |asked: Option<u32>, default: usize| asked.map_or(default, |n| n as usize);
        let heads = or(self.heads, mask.heads);
        let kv_heads = or(self.kv_heads, if self.heads.is_some() { heads } else { mask.kv_heads });
        if !heads.is_multiple_of(kv_heads) {
            return Err(format!("`--kv-heads` must divide `--heads` (`{heads}`), found `{kv_heads}`"));
        }
        let (batch, length) = (or(self.batch, mask.batch), or(self.length, mask.length));
        let head_dim = or(self.head_dim, mask.head_dim);
        let keys = or(self.key_length, length);
        // Rows are numbered by 32-bit whole numbers; no GPU has room for a tensor of so many elements.
        let longest = length.max(keys);
        let elements =
            [longest, heads + 2 * kv_heads, head_dim].iter().try_fold(batch, |n, by| n.checked_mul(*by));
        if batch * longest >= 1 << 31 || elements.is_none_or(|n| n >= 1 << 40) {
            return Err(format!(
                "`--batch` times `--length` must be below 2^31, and elements of queries, keys and values below 2^40, found \
                 {batch} x {longest} tokens of {heads} and twice {kv_heads} heads of {head_dim}"
            ));
        }
        let key_length = Some(keys).filter(|keys| *keys != length);
        let layout = match (key_length, asked) {
            (Some(_), Some(Layout::Packed)) => {
                return Err(format!(
                    "packed queries and keys are rows of one buffer: `--key-length` must be `--length` (`{length}`), found \
                     `{keys}`"
                ));
            }
            (Some(_), None) => Layout::Bshd,
            _ => mask.layout,
        };
        Ok(vec![Case { batch, heads, kv_heads, head_dim, length, key_length, layout, ..mask }])
    }
}
