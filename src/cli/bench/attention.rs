//! `bench attention`: the kernels of attention alone, forward and both forms of the backward pass.
//!
//! In: shapes. Out: milliseconds and FLOP/s of each, from recordings that are replayed, as in training. Work is counted as
//! papers do: 4 products' worth of length x length x head_dim forward, half of it under a causal mask, 2.5 times that backward.
//! A CPU does one small shape where none was asked for: the table would take it hours.

mod flags;
mod table;

use super::super::device::{self, Device};
use super::super::memory::Need;
use super::super::signals;
use super::super::tables;
use super::super::{Declared, Outcome};
use super::ablation::Stage;
use super::case::{Case, SMALL};
use super::figures::{Memory, Spread};
use super::loaded::Loaded;
use super::peers::{self, Errors, Peers};
use crate::environment::Environment;
use crate::terminal::{line, note};
pub(super) use flags::Arguments;
use kernwright_plan::Options;
use kernwright_plan::chain;
use kernwright_plan::dtype::Dtype;
use kernwright_plan::plan::Phase;
use kernwright_plan::shape::presets;
use kernwright_runtime::gpu::products::Order;
use serde::Serialize;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicUsize;

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

impl Pass {
    fn flops_per_second(&self) -> f64 {
        1e12 * self.tflops
    }
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
