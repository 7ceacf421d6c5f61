//! `bench attention`: the kernels of attention alone, forward and both forms of the backward pass.
//!
//! In: shapes. Out: milliseconds and TFLOP/s of each, from recordings that are replayed, as in training. Work is counted as
//! papers do: 4 products' worth of length x length x head_dim forward, half of it under a causal mask, 2.5 times that backward.
//! A CPU does one small shape where none was asked for: the table would take it hours.

mod table;

use super::super::device::{self, Asked, Device, DeviceArguments};
use super::super::gpu;
use super::super::memory::Need;
use super::super::plan_flags::precisions;
use super::super::signals;
use super::super::tables;
use super::super::{Declared, Outcome};
use super::ablation::Stage;
use super::case::{Case, SMALL, TABLE};
use super::figures::{Memory, Spread};
use super::loaded::Loaded;
use super::peers::{self, Errors, Peers};
use crate::environment::Environment;
use crate::terminal::{line, note};
use clap::Args;
use clap::builder::PossibleValuesParser;
use kernwright_plan::Options;
use kernwright_plan::chain;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::gpu::Gpu;
use kernwright_plan::plan::Phase;
use kernwright_plan::shape::{Layout, presets};
use kernwright_plan::tuning::Table;
use kernwright_runtime::gpu::products::Order;
use serde::Serialize;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Flags of `bench attention`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
`free` is the backward pass that adds the gradient of queries in any order, `ordered` the one that gives the same bits every \
time. With --ablate a stage of the kernels is left out: the time that is missing is what it costs; results are wrong then.

Examples:
  kernwright bench attention                                  a table of shapes
  kernwright bench attention --batch 32 --heads 12 --kv-heads 4 --head-dim 64 --length 1024
  kernwright bench attention --head-dim 128 --length 4096 --full --ablate softmax
  kernwright bench attention --length 1024 --key-length 8192  queries at the end of a longer sequence
  kernwright bench attention --arch sm_80                     the kernels that an A100 gets, on this GPU
  kernwright bench attention --peers --python .venv/bin/python3       beside FlashAttention and cuDNN
  kernwright bench attention --accuracy --full --softcap 50           errors against fp64 mathematics, too")]
pub(super) struct Arguments {
    #[command(flatten)]
    device: DeviceArguments,
    /// Sequences; any of these flags replaces the table by one shape
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    batch: Option<u32>,
    /// Query heads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    heads: Option<u32>,
    /// Heads of keys and values; they must divide the query heads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    kv_heads: Option<u32>,
    /// Width of a head
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(8..=256))]
    head_dim: Option<u32>,
    /// Tokens per sequence
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    length: Option<u32>,
    /// Keys per sequence; the last query stands at the last key [default: the length]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    key_length: Option<u32>,
    /// Order of dimensions in memory: queries, keys and values of a token in one row, or each on their own by token or by head
    /// [default: packed, and bshd with --key-length]
    #[arg(long, value_name = "LAYOUT", value_parser = layouts())]
    layout: Option<String>,
    /// A query sees only keys nearer than this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    window: Option<u32>,
    /// Bound of the scores
    #[arg(long, value_name = "X", value_parser = softcap)]
    softcap: Option<f64>,
    /// Queries see what is behind them, too
    #[arg(long)]
    full: bool,
    /// Element type; the CPU has fp32 alone [default: bf16, and fp32 on the CPU]
    #[arg(long, value_name = "TYPE", value_parser = precisions())]
    precision: Option<String>,
    /// Measured replays
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    steps: u32,
    /// Time the kernels that another target gets, such as sm_80: its instructions and tiles, compiled for this GPU
    #[arg(long, alias = "gpu", value_name = "GPU", value_parser = gpu::parse)]
    arch: Option<Gpu>,
    /// Take tiles from a table that `tune` wrote, before those that Kernwright has
    #[arg(long, value_name = "FILE.toml", value_parser = tables::parse)]
    table: Option<Arc<Table>>,
    /// Leave a stage out of the kernels
    #[arg(long, value_name = "STAGE", value_enum)]
    ablate: Option<Stage>,
    /// Time FlashAttention 2, cuDNN and, where it is installed, FlashAttention 4 first, through PyTorch
    #[arg(long, conflicts_with = "ablate")]
    peers: bool,
    /// Also the errors of all results, ours and those of peers, against fp64 mathematics; implies --peers. What is true of a
    /// row takes 4 bytes per number in the folder for temporary files
    #[arg(long, conflicts_with = "ablate")]
    accuracy: bool,
    /// The Python whose PyTorch runs peers
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Print everything as one JSON document
    #[arg(long)]
    json: bool,
}

/// A shape, and what was measured.
#[derive(Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    case: Case,
    precision: &'static str,
    without: Option<&'static str>,
    forward: Option<Pass>,
    free: Option<Pass>,
    ordered: Option<Pass>,
    /// What others take for it, milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<Peers>,
    /// What ours are off by, root mean squares; of gradients the larger one of both forms.
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<Errors>,
    /// Bytes of the first row, forward and ordered backward.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    /// Why something is missing.
    error: Option<String>,
}

/// One pass over it.
#[derive(Clone, Copy, Debug, Serialize)]
struct Pass {
    milliseconds: f64,
    tflops: f64,
}

/// The value of `--softcap`.
fn softcap(text: &str) -> Result<f64, String> {
    let cap = text.parse().ok().filter(|cap| *cap > 1e-6 && *cap <= 1e6);
    cap.ok_or_else(|| "it must be a number above 0.000001 and at most 1000000".to_owned())
}

/// Values of `--layout`.
fn layouts() -> PossibleValuesParser {
    PossibleValuesParser::new(Layout::ALL.map(Layout::name))
}

/// Says what is wrong with flags.
fn wrong_usage(why: &str) -> ExitCode {
    note(&format!("error: {why}"));
    ExitCode::from(2)
}

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, environment: &Environment) -> Outcome {
    let mut cases = match arguments.check().and_then(|()| arguments.cases()) {
        Ok(cases) => cases,
        Err(why) => return Ok(wrong_usage(&why)),
    };
    let truth = if arguments.accuracy { Some(tempfile::tempdir()?) } else { None };
    let truth = truth.as_ref().map(tempfile::TempDir::path);
    let stop = signals::watch("stopping after this shape; the table so far follows")?;
    let peers = arguments.time_peers(&cases, truth, &stop);
    if signals::has_arrived(&stop) {
        return Ok(signals::exit_code(&stop, ExitCode::FAILURE));
    }
    let (about, mut of_peers) = peers?;
    let mut rows = Vec::new();
    let mut device = arguments.open(declared, environment)?;
    if device.gpu.is_none() {
        if let Some(other) = arguments.precision.as_ref().filter(|name| *name != Dtype::Fp32.name()) {
            let fp32 = Dtype::Fp32.name();
            return Ok(wrong_usage(&format!("`--precision` must be `{fp32}` on the CPU, found `{other}`")));
        }
        if cases.len() > 1 {
            cases = vec![Case { batch: SMALL.batch, length: SMALL.length, ..cases[0] }];
            note(
                "note: one small shape stands for the table on the CPU; `--batch`, `--heads`, `--head-dim` and `--length` choose \
                 others",
            );
        }
    }
    let of = cases.len();
    for (index, case) in cases.into_iter().enumerate() {
        note(&format!("{}, {} ({} of {of})", case.sizes(), case.mask(), index + 1));
        let peers = (!of_peers.is_empty()).then(|| of_peers.remove(0));
        rows.push(Measured { peers, ..measure(arguments, (index, case), truth, &mut device) });
        if signals::has_arrived(&stop) {
            break;
        }
    }
    if arguments.json {
        line(&serde_json::to_string_pretty(&rows)?)?;
    } else {
        line(&table::table(&rows, &device.description, &about, arguments.ablate).join("\n"))?;
    }
    let failed = rows.iter().any(|row| row.error.is_some());
    Ok(signals::exit_code(&stop, if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }))
}

impl Arguments {
    /// Flags that need a GPU are not for the CPU, and others have what peers take.
    fn check(&self) -> Result<(), String> {
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
    fn peers_flag(&self) -> Option<&'static str> {
        if self.accuracy { Some("--accuracy") } else { self.peers.then_some("--peers") }
    }

    /// The number of the GPU.
    fn index(&self) -> u32 {
        if let Asked::Cuda(index) = self.device.device { index } else { 0 }
    }

    /// The one that flags describe, else the table's.
    fn cases(&self) -> Result<Vec<Case>, String> {
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

    /// What peers take, and what they ran on; nothing where they were not asked for.
    fn time_peers(
        &self,
        cases: &[Case],
        truth: Option<&Path>,
        stop: &AtomicUsize,
    ) -> Result<(String, Vec<Peers>), Box<dyn Error>> {
        if self.peers_flag().is_none() {
            return Ok(Default::default());
        }
        let device = self.index();
        let dtype = self.precision.as_deref().and_then(Dtype::precision).unwrap_or(Dtype::Bf16);
        let asked = peers::Asked { python: &self.python, dtype, repeats: self.steps, device, truth };
        peers::time(cases, asked, stop)
    }

    fn open(&self, declared: Option<Declared>, environment: &Environment) -> Result<Device, Box<dyn Error>> {
        // Kernels do not depend on a Shape; one that declares targets of its own may bring limits.
        let text = declared.map(|declared| format!("{}{}", declared.shape, declared.targets));
        let shape = match text {
            Some(text) => kernwright_plan::shape::parse_text(&text)?,
            None => presets::ALL[0].shape(),
        };
        if self.ablate.is_none() && self.arch.is_none() && self.table.is_none() {
            return device::executor(&self.device, &shape, declared, environment, Order::Fixed);
        }
        let index = self.index();
        let mut executor = match &self.arch {
            Some(gpu) => device::gpu_like(index, &gpu.arch, &shape, environment, Order::Fixed)?,
            None => device::gpu(index, &shape, declared, environment, Order::Fixed)?,
        };
        if let Some(table) = &self.table {
            executor.lower_for(tables::with(executor.arch(), table)?);
        }
        Ok(device::of_gpu(match self.ablate {
            Some(stage) => executor.with_texts(move |text| stage.left_out_of(&text)),
            None => executor,
        }))
    }
}

/// Times a row; where a folder says what is true of it, its errors, too.
fn measure(
    arguments: &Arguments,
    (index, case): (usize, Case),
    truth: Option<&Path>,
    device: &mut Device,
) -> Measured {
    let asked = arguments.precision.as_deref().and_then(Dtype::precision);
    let dtype = device.options.precision.or(asked).unwrap_or(Dtype::Bf16);
    let mut measured = Measured {
        case,
        precision: dtype.name(),
        without: arguments.ablate.map(Stage::name),
        forward: None,
        free: None,
        ordered: None,
        peers: None,
        errors: None,
        memory: None,
        error: None,
    };
    let mut errors: Option<Errors> = None;
    let mut memory: Option<Memory> = None;
    let beside = device.beside.clone();
    let mut time = |deterministic: bool, phases: &[Phase]| -> Result<Vec<Pass>, Box<dyn Error>> {
        let options = Options { deterministic, ..device.options.clone() };
        let flops = |phase: &Phase| case.flops() * if *phase == Phase::Forward { 1.0 } else { 2.5 };
        // A replay of a CPU's has nothing beside its work.
        let copies = if device.gpu.is_some() { case.copies() } else { 1 };
        let loaded = Loaded::new(&case, &mut *device.executor, (&options, dtype), copies)?;
        let seconds = loaded.time(&mut *device.executor, phases, arguments.steps)?;
        let usage = device.executor.usage();
        memory.get_or_insert(Memory {
            planned: Need::of_step(loaded.plan(&*device.executor), &beside).total(),
            allocated: usage.allocated,
            taken: usage.taken,
        });
        if let Some(folder) = truth {
            let found = loaded.errors(&*device.executor, folder, index)?;
            errors = Some(errors.map_or(found, |other| other.larger(&found)));
        }
        let passes = seconds.iter().zip(phases).map(|(seconds, phase)| {
            let second = Spread::of(seconds).median;
            Pass { milliseconds: 1e3 * second, tflops: flops(phase) / second / 1e12 }
        });
        Ok(passes.collect())
    };
    // The CPU has one form.
    let has_forms = device.gpu.is_some();
    let first = time(true, &[Phase::Forward, Phase::Backward]);
    let second = if has_forms { Some(time(false, &[Phase::Forward, Phase::Backward])) } else { None };
    for (result, is_free) in [(Some(first), false), (second, true)] {
        match result {
            Some(Ok(passes)) => {
                measured.forward = passes.first().copied().or(measured.forward);
                *(if is_free { &mut measured.free } else { &mut measured.ordered }) = passes.get(1).copied();
            }
            Some(Err(error)) => measured.error = Some(chain(error.as_ref())),
            None => {}
        }
    }
    measured.errors = errors;
    // Those of later rows hold what earlier ones left.
    measured.memory = memory.filter(|_| index == 0);
    measured
}
