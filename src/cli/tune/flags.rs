//! Flags of `tune`: what is tuned, on what, for how long, and where it is written.

use super::super::Declared;
use super::super::attention_values::{self as values, BATCHES, LENGTHS};
use super::super::bench::Case;
use super::super::device::{self, Asked};
use super::super::gpu;
use super::super::shape::ShapeArguments;
use super::units::{GRID_GROUPS, GRID_HEADS, GRID_LENGTHS, Pass, case, each_once, of_model};
use clap::{Args, ValueEnum};
use kernwright_plan::arch::{self, Arch};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::gpu::Gpu;
use kernwright_plan::shape::{Shape, presets};
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of `tune`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Every tile that is tried is legal by the plan's own count of shared memory and registers, compiles without a spill or a remark, and \
computes what the definition of the op says, on a small case of odd sizes; only then it is timed, through recordings whose inputs \
lie apart. What is measured is written at once: after Ctrl-C, or when the time is up, the same command goes on.

The table is read where kernels are generated: docs/tuning.md says how.

Examples:
  kernwright tune attention                                a grid of shapes, on GPU 0
  kernwright tune attention --head-dim 128 --length 4096 --mask causal --budget 60s
  kernwright tune --preset seed-102m --batch 32            the attention of one model
  kernwright tune attention --arch sm_80                   the kernels of an A100, within its limits, timed on this GPU
  kernwright tune attention --list                         what would be tuned; needs no GPU")]
pub(in super::super) struct Arguments {
    /// What is tuned [default: what the shape has, where there is one]
    #[arg(value_enum)]
    what: Option<What>,
    #[command(flatten)]
    shape: ShapeArguments,
    /// Sequences of a model's step [default: 8]; those of the grid have 16,384 tokens
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(BATCHES))]
    batch: Option<u32>,
    /// Lengths of sequences, between commas or repeated [default: one of each kind; of a model its context, 1024 at most]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(LENGTHS))]
    length: Vec<u32>,
    /// Widths of heads of the grid
    #[arg(long, conflicts_with_all = MODEL, value_name = "N", value_delimiter = ',', default_values_t = GRID_HEADS, value_parser = values::head_dim)]
    head_dim: Vec<u32>,
    /// Query heads of a head of keys in the grid
    #[arg(long, conflicts_with_all = MODEL, value_name = "N", value_delimiter = ',', default_values_t = GRID_GROUPS, value_parser = clap::value_parser!(u32).range(1..=256))]
    group: Vec<u32>,
    /// Query heads of the grid, up to the next whole group [default: 1536 columns of them]
    #[arg(long, conflicts_with_all = MODEL, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    heads: Option<u32>,
    /// Masks of the grid
    #[arg(long, conflicts_with_all = MODEL, value_name = "MASK", value_delimiter = ',', default_values = ["causal", "full"], value_enum)]
    mask: Vec<GridMask>,
    /// A query sees only keys nearer than this, in the whole grid
    #[arg(long, conflicts_with_all = MODEL, value_name = "N", value_parser = values::window)]
    window: Option<u32>,
    /// Bound of the scores, in the whole grid
    #[arg(long, conflicts_with_all = MODEL, value_name = "X", value_parser = values::softcap)]
    softcap: Option<f64>,
    /// Passes that are timed
    #[arg(long, value_name = "PASS", value_delimiter = ',', default_values = ["forward", "ordered", "free"], value_enum)]
    pass: Vec<Pass>,
    /// The GPU: cuda, or cuda:N for that of another number
    #[arg(long, value_name = "DEVICE", default_value = "cuda", value_parser = device::parse)]
    pub(super) device: Asked,
    /// Tune the kernels that another target gets, within its limits, on this GPU
    #[arg(long, alias = "gpu-family", value_name = "GPU", value_parser = gpu::parse)]
    pub(super) arch: Option<Gpu>,
    /// Element type
    #[arg(long, value_name = "TYPE", default_value = "bf16", value_parser = values::narrow())]
    pub(super) precision: Dtype,
    /// Measured replays of each tile; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) steps: u32,
    /// Stop after so long, as in 90s, 10m or 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) budget: Option<Duration>,
    /// Seconds that programs took whose place this one has
    #[arg(long, hide = true, default_value_t = 0, overrides_with = "spent")]
    pub(super) spent: u32,
    /// Try every legal tile, which takes hours, not only those near the best
    #[arg(long)]
    pub(super) exhaustive: bool,
    /// Print what would be tuned, with the number of legal tiles, and try nothing
    #[arg(long)]
    pub(super) list: bool,
    /// The table; rows of other shapes in it stay [default: tuning/<card>.toml]
    #[arg(long, value_name = "FILE.toml")]
    table: Option<PathBuf>,
    /// Where what was measured is kept [default: beside the table, .jsonl]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// A line of comment at the table's head, such as a commit
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// Flags that choose a model, whose attention is no grid.
const MODEL: [&str; 2] = ["preset", "shape"];

/// Sequences of a model's step, where nothing else is said.
const BATCH: u32 = 8;

/// What may be tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// Attention, forward and backward
    Attention,
}

/// Masks of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GridMask {
    /// A query sees itself and what is before it
    Causal,
    /// And what is behind it
    Full,
}

/// `90s`, `10m`, `2h`, or seconds alone.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, seconds) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('m') => (number, 60),
        Some(number) if text.ends_with('h') => (number, 3600),
        Some(number) => (number, 1),
        None => (text, 1),
    };
    let number: Option<u32> = number.parse().ok().filter(|number| (1..=100_000).contains(number));
    let number = number.ok_or_else(|| "a whole number and `s`, `m` or `h`, as in `90s`".to_owned())?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

impl Arguments {
    /// The shapes, each once.
    pub(super) fn cases(&self, declared: Option<Declared>) -> Result<Vec<Case>, Box<dyn Error>> {
        let is_model = self.shape.is_given() || (self.what.is_none() && declared.is_some());
        let mut all: Vec<Case> = Vec::new();
        if is_model {
            let shape = self.shape.resolve(declared)?.shape;
            let own = [u32::try_from(shape.context).unwrap_or(u32::MAX).min(1024)];
            let lengths = if self.length.is_empty() { &own[..] } else { &self.length };
            for length in lengths {
                all.extend(of_model(&shape, self.batch.unwrap_or(BATCH) as usize, *length as usize));
            }
            return Ok(each_once(all));
        }
        if let Some(batch) = self.batch {
            let what = "the grid has sequences of its own";
            return Err(format!("`--batch {batch}` goes with `--preset` or `--shape`: {what}").into());
        }
        let lengths = if self.length.is_empty() { &GRID_LENGTHS[..] } else { &self.length };
        for head_dim in &self.head_dim {
            for mask in &self.mask {
                let causal = *mask == GridMask::Causal;
                let window = self.window.map(|window| window as usize);
                let mask = Case { causal, window, softcap: self.softcap, ..Case::CAUSAL };
                for group in &self.group {
                    let heads = self.heads.map(|heads| heads as usize);
                    let sizes = |length: &u32| [*head_dim, *group, *length].map(|size| size as usize);
                    all.extend(lengths.iter().map(|length| case(sizes(length), heads, mask)));
                }
            }
        }
        Ok(each_once(all))
    }

    /// The passes.
    pub(super) fn passes(&self) -> Vec<Pass> {
        each_once(self.pass.iter().copied())
    }

    /// The target of a list, without a GPU to ask.
    pub(super) fn listed_arch(&self) -> Arch {
        let default = || arch::find("sm_90a").unwrap_or(&arch::ALL[0]).clone();
        self.arch.as_ref().map_or_else(default, |gpu| gpu.arch.clone())
    }

    /// A Shape that may bring targets with limits of their own.
    pub(super) fn any_shape(&self, declared: Option<Declared>) -> Result<Shape, Box<dyn Error>> {
        match declared {
            Some(_) => Ok(ShapeArguments::default().resolve(declared)?.shape),
            None => Ok(presets::ALL[0].shape()),
        }
    }

    /// Files: the table, what was measured, the picture.
    pub(super) fn paths(&self, card: &str) -> [PathBuf; 3] {
        let name = match &self.arch {
            Some(gpu) => gpu.arch.name.to_string(),
            None => card.to_lowercase().replace(' ', "-"),
        };
        let table = self.table.clone().unwrap_or_else(|| PathBuf::from(format!("tuning/{name}.toml")));
        let state = self.state.clone().unwrap_or_else(|| table.with_extension("jsonl"));
        let picture = table.with_extension("svg");
        [table, state, picture]
    }

    /// Lines at the head of the table.
    pub(super) fn head(&self, card: &str, arch: &Arch, dtype: Dtype) -> Vec<String> {
        let mut head = vec![format!(
            "Tiles of kernels for {}, measured by `kernwright tune` {} on {card} in {}, medians of {} replays (docs/tuning.md).",
            arch.name,
            env!("CARGO_PKG_VERSION"),
            dtype.name(),
            self.steps
        )];
        head.push(
            "`before` is what the tile of before took, both in microseconds of the whole pass.".to_owned(),
        );
        head.push(
            "Where one took the other's place they took five turns; gains below 1.5% are left out."
                .to_owned(),
        );
        if self.arch.is_some() {
            head.push(format!(
                "The limits are those of {}, and so is how many blocks run at a time; the times are of {card}, which stood in for it.",
                arch.name
            ));
        }
        head.extend(self.note.iter().map(|note| note.lines().collect::<Vec<_>>().join(" ")));
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_or_is_in_seconds() {
        let seconds = |text: &str| duration(text).map(|time| time.as_secs());
        assert_eq!(["90s", "10m", "2h", "45"].map(seconds), [Ok(90), Ok(600), Ok(7200), Ok(45)]);
        for wrong in ["", "s", "-1s", "1.5h", "3d", "0s"] {
            assert!(duration(wrong).is_err_and(|error| error.contains("`90s`")), "{wrong}");
        }
    }
}
