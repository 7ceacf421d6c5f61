//! `bench sweep`: `bench step` over several shapes and batches, each in a process of its own.
//!
//! In: shapes, batches, the flags of a step. Out: a row per pair, as text or as JSON; a pair that fails is a row that says
//! why. What one run leaves behind, in memory or in a driver, so cannot reach the next.

use super::super::shape::changed::ChangedShape;
use super::super::shape::{ShapeArguments, preset_names};
use super::super::signals;
use super::super::table::{Row, Side, Table};
use super::super::{Declared, Outcome, units};
use super::figures::Figures;
use super::setting::Setting;
use crate::environment::Environment;
use crate::terminal::{line, note};
use clap::Args;
use serde::Serialize;
use std::error::Error;
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a row that runs is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Flags of `bench sweep`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A row that fails, such as one that needs more memory than there is, says why, and the next one begins. Ctrl-C ends the row \
that runs and prints those that are done.

Examples:
  kernwright bench sweep --preset seed-102m,gpt2-124m --batch 4,32
  kernwright bench sweep --preset tiny --shape mine.toml --batch 1,2,4 --length 256 --device cpu
  kernwright bench sweep --preset seed-102m --batch 4,8,16,32 --set model.residual=bf16 --json > sweep.json")]
pub(super) struct Arguments {
    /// Named shapes, between commas or repeated [default: the declared model, or `tiny` where none is declared]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = preset_names())]
    preset: Vec<String>,
    /// Shapes in files, as `shape --toml` prints them; may be given several times
    #[arg(long, value_name = "FILE.toml")]
    shape: Vec<PathBuf>,
    /// Change a field of every shape, as in `--set model.layers=4`; may be given several times
    #[arg(long, value_name = "FIELD=VALUE", value_parser = super::super::shape::changed::assignment)]
    set: Vec<String>,
    #[command(flatten)]
    setting: Setting,
    /// Sequences per step, between commas or repeated
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Vec<u32>,
    /// Measured steps of each row
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// Print everything as one JSON document
    #[arg(long)]
    json: bool,
}

/// A pair of shape and batch, and what came of it.
#[derive(Debug, Serialize)]
struct Outcomes {
    shape: String,
    batch: u32,
    figures: Option<Figures>,
    /// Why there are none.
    error: Option<String>,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, _environment: &Environment) -> Outcome {
    let program = std::env::current_exe()?;
    let stop = signals::watch("stopping; the rows so far follow")?;
    let shapes = arguments.shapes(declared);
    let mut rows: Vec<Outcomes> = Vec::new();
    'all: for (name, shape) in &shapes {
        for batch in &arguments.batch {
            note(&format!(
                "{name}, batch {batch} ({} of {})",
                rows.len() + 1,
                shapes.len() * arguments.batch.len()
            ));
            let result = row(&program, &arguments.flags(shape, *batch), &stop);
            if signals::has_arrived(&stop) {
                break 'all;
            }
            let (figures, error) = match result {
                Ok(figures) => (Some(*figures), None),
                Err(error) => (None, Some(error.to_string())),
            };
            rows.push(Outcomes { shape: name.clone(), batch: *batch, figures, error });
        }
    }
    if arguments.json {
        line(&serde_json::to_string_pretty(&rows)?)?;
    } else {
        line(&table(&rows).join("\n"))?;
    }
    let is_whole = rows.iter().all(|row| row.figures.is_some());
    Ok(signals::exit_code(&stop, if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

impl Arguments {
    /// A shape and what was changed of it.
    fn named(&self, name: &str) -> String {
        if self.set.is_empty() { name.to_owned() } else { format!("{name} ({})", self.set.join(", ")) }
    }

    /// What rows are called, and the flags that choose their shapes.
    fn shapes(&self, declared: Option<Declared>) -> Vec<(String, ChangedShape)> {
        let of = |base| ChangedShape { base, set: self.set.clone() };
        let presets = self.preset.iter().map(|name| {
            let base = ShapeArguments { preset: Some(name.clone()), shape: None };
            (self.named(name), of(base))
        });
        let files = self.shape.iter().map(|path| {
            let base = ShapeArguments { preset: None, shape: Some(path.clone()) };
            (self.named(&path.display().to_string()), of(base))
        });
        let mut all: Vec<_> = presets.chain(files).collect();
        if all.is_empty() {
            let name = declared.map_or("tiny", |declared| declared.name);
            all.push((self.named(name), of(ShapeArguments::default())));
        }
        all
    }

    fn flags(&self, shape: &ChangedShape, batch: u32) -> Vec<OsString> {
        let mut flags = shape.flags();
        flags.extend(self.setting.flags());
        flags.extend(["--batch".into(), batch.to_string().into()]);
        flags.extend(["--steps".into(), self.steps.to_string().into()]);
        flags
    }
}

/// One row, by this program run anew; a signal ends it, whomever it was sent to.
fn row(
    program: &std::path::Path,
    flags: &[OsString],
    stop: &AtomicUsize,
) -> Result<Box<Figures>, Box<dyn Error>> {
    let mut command = Command::new(program);
    command.args(["bench", "step", "--json"]).args(flags);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let cannot = |error: std::io::Error| format!("cannot run `{}`: {error}", program.display());
    let mut child = command.spawn().map_err(cannot)?;
    // Both are read while it runs, or it would wait for room in a pipe.
    let (out, said) = (read(child.stdout.take()), read(child.stderr.take()));
    let status = loop {
        if let Some(status) = child.try_wait().map_err(cannot)? {
            break status;
        }
        if signals::has_arrived(stop) {
            child.kill().map_err(cannot)?;
        }
        std::thread::sleep(POLL);
    };
    let (out, said) = (out.join().unwrap_or_default(), said.join().unwrap_or_default());
    let said = String::from_utf8_lossy(&said);
    if !status.success() {
        let error = said.lines().rev().find_map(|line| line.strip_prefix("error: "));
        return Err(error.map_or_else(|| format!("it ended with {status}"), str::to_owned).into());
    }
    said.lines().filter(|line| !line.starts_with("device: ")).for_each(note);
    Ok(serde_json::from_slice(&out)?)
}

/// All that a process says, read beside it.
fn read(from: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read is missed by who looks into it.
        let _ = from.map(|mut from| from.read_to_end(&mut bytes));
        bytes
    })
}

fn table(rows: &[Outcomes]) -> Vec<String> {
    let columns = vec![
        ("shape", Side::Left),
        ("batch", Side::Right),
        ("tokens/s", Side::Right),
        ("ms/step", Side::Right),
        ("MFU", Side::Right),
        ("planned", Side::Right),
        ("taken", Side::Right),
        ("", Side::Left),
    ];
    let cells = |row: &Outcomes| {
        let mut cells = vec![row.shape.clone(), row.batch.to_string()];
        match (&row.figures, &row.error) {
            (Some(figures), _) => cells.extend([
                units::grouped(figures.tokens_per_second.round() as usize),
                format!("{:.2}", figures.milliseconds.median),
                figures.mfu.map_or("n/a".to_owned(), |mfu| format!("{mfu:.3}")),
                units::bytes(figures.memory.planned as f64),
                figures.memory.taken.map_or("n/a".to_owned(), |bytes| units::bytes(bytes as f64)),
                if figures.is_contended() { "contended" } else { "" }.to_owned(),
            ]),
            (None, error) => {
                cells.extend(std::iter::repeat_n("-".to_owned(), 5));
                cells.push(error.clone().unwrap_or_default());
            }
        }
        Row::Cells(cells)
    };
    Table { columns, rows: rows.iter().map(cells).collect() }.lines()
}
