//! `cuda`: the generated kernels of a Shape, to list, read, write to files, or compile and report.
//!
//! In: a Shape and GPUs. Out: text or JSON; exit code 1 when a kernel does not compile. Where the text comes from is
//! `cli::kernels`, files are `copies`, what the compiler says is `report`.

mod copies;
mod report;

use super::kernels::{self, Kernel};
use super::table::{Row, Side, Table};
use super::{Declared, Outcome, units};
use crate::environment::Environment;
use crate::terminal::{line, note};
use clap::Args;
use kernwright_compile::Report;
use kernwright_plan::gpu::Gpu;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Flags of `cuda`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Without flags it lists the kernels and writes nothing. Compiling needs NVRTC, but no GPU and no driver; compiled \
kernels are kept, so that a second report takes no time (`KERNWRIGHT_CACHE` sets where).

Examples:
  kernwright cuda --preset seed-102m --out kernels
  kernwright cuda --preset seed-102m --gpu sm_90a --report
  kernwright cuda --preset seed-102m --set attention.window=256 --gpu sm_90a --out kernels
  kernwright cuda --preset tiny --gpu rtx-3060 --show $(kernwright cuda --preset tiny --list | head -1)")]
pub(super) struct Arguments {
    #[command(flatten)]
    shape: super::shape::changed::ChangedShape,
    /// GPUs to generate for (--help lists them), between commas or repeated [default: those the shape declares, else all]
    #[arg(long, alias = "arch", value_name = "GPU", value_delimiter = ',', value_parser = super::gpu::parse,
        long_help = super::gpu::list("GPUs to generate for, between commas or repeated [default: those the shape declares, else all]"))]
    gpu: Vec<Gpu>,
    /// Write DIR/<arch>/<kernel>.cu and a manifest.json beside them, only what changed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Compile every kernel and report registers, spills, shared memory and occupancy
    #[arg(long)]
    report: bool,
    /// Print the bare names of the kernels, each once
    #[arg(long, conflicts_with_all = ["report", "json", "out"])]
    list: bool,
    /// Print the CUDA of one kernel
    #[arg(long, value_name = "KERNEL", conflicts_with_all = ["report", "json", "out", "list"])]
    show: Option<String>,
    /// Print everything as one JSON document
    #[arg(long)]
    json: bool,
    /// Threads that compile; 0 takes one per core
    #[arg(long, value_name = "N", default_value_t = 0, requires = "report")]
    threads: usize,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    model: &'a str,
    shape: Vec<&'a str>,
    kernels: Vec<Entry<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<report::Summary>,
}

#[derive(Serialize)]
struct Entry<'a> {
    kernel: &'a str,
    arch: &'a str,
    block: Option<u32>,
    shared_memory: u32,
    n_lines: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a Path>,
    #[serde(flatten)]
    compiled: Option<report::Compiled<'a>>,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, environment: &Environment) -> Outcome {
    let named = arguments.shape.resolve(declared)?;
    let declared = declared.filter(|_| !arguments.shape.is_given());
    let kernels = kernels::kernels(&named, &arguments.gpu, declared)?;
    if let Some(name) = &arguments.show {
        let Some(kernel) = kernels.iter().find(|kernel| kernel.name == *name) else {
            return Err(kernels::unknown(&named.name, name, &kernels).into());
        };
        line(kernel.text.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.list {
        let mut names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        line(&names.join("\n"))?;
        return Ok(ExitCode::SUCCESS);
    }

    let compiled = match arguments.report {
        true => Some(report::compile(&kernels, arguments.threads, environment)?),
        false => None,
    };
    let reports = compiled.as_ref().map_or(&[][..], |compiled| &compiled.reports);
    let paths = match &arguments.out {
        Some(folder) => copies::write(folder, &named, &kernels, reports)?,
        None => Vec::new(),
    };
    let failed = reports.iter().any(|report| report.result.is_err());
    let code = if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };

    if arguments.json {
        let text = named.shape.text();
        let entries = kernels
            .iter()
            .enumerate()
            .map(|(index, kernel)| entry(kernel, paths.get(index), reports.get(index)));
        let document = Document {
            model: &named.name,
            shape: text.lines().collect(),
            kernels: entries.collect(),
            report: compiled.as_ref().map(report::summary),
        };
        line(&serde_json::to_string_pretty(&document)?)?;
        return Ok(code);
    }

    if kernels.is_empty() {
        note(&format!("no op of `{}` has a kernel for these GPUs yet", named.name));
    } else if let Some(compiled) = &compiled {
        line(&report::text(&kernels, compiled).join("\n"))?;
    } else if paths.is_empty() {
        line(&table(&kernels).lines().join("\n"))?;
    }
    if let (Some(folder), false) = (&arguments.out, paths.is_empty()) {
        line(&format!("{} kernels in `{}`", units::grouped(paths.len()), folder.display()))?;
    }
    Ok(code)
}

fn entry<'a>(kernel: &'a Kernel, path: Option<&'a PathBuf>, report: Option<&'a Report>) -> Entry<'a> {
    Entry {
        kernel: &kernel.name,
        arch: &kernel.arch.name,
        block: kernel.spec.as_ref().map(|spec| spec.block),
        shared_memory: kernel.shared_memory(),
        n_lines: kernel.text.lines().count(),
        path: path.map(PathBuf::as_path),
        compiled: report.map(|report| report::Compiled::of(kernel, report)),
    }
}

fn table(kernels: &[Kernel]) -> Table {
    let columns = vec![
        ("kernel", Side::Left),
        ("arch", Side::Left),
        ("threads", Side::Right),
        ("shared memory", Side::Right),
        ("lines", Side::Right),
    ];
    let row = |kernel: &Kernel| {
        Row::Cells(vec![
            kernel.name.clone(),
            kernel.arch.name.to_string(),
            kernel.spec.as_ref().map_or(String::new(), |spec| spec.block.to_string()),
            units::bytes(kernel.shared_memory().into()),
            kernel.text.lines().count().to_string(),
        ])
    };
    Table { columns, rows: kernels.iter().map(row).collect() }
}
