//! What the compiler says of every kernel: registers, spills, shared memory, occupancy, time.
//!
//! In: kernels. Out: a table, or the same as data for `--json`. Compiles through the cache of cubins what the program
//! does not carry compiled.

use super::super::kernels::Kernel;
use super::super::table::{Row, Side, Table};
use super::super::{libraries, units};
use crate::environment::Environment;
use crate::model::Cubin;
use crate::terminal::note;
use indicatif::{ProgressBar, ProgressStyle};
use kernwright_compile::{Cache, Compiler, Error, Report, Resources, Source, compile_all, notes, resources};
use kernwright_plan::occupancy::{self, Block, Occupancy};
use serde::Serialize;
use std::time::Instant;

/// All reports and what made them.
#[derive(Debug)]
pub(super) struct Compilation {
    /// In the order of the kernels.
    pub(super) reports: Vec<Report>,
    compiler: String,
    seconds: f64,
}

/// What a report adds to a kernel in `--json`.
#[derive(Serialize)]
pub(super) struct Compiled<'a> {
    #[serde(flatten)]
    resources: Option<&'a Resources>,
    /// Blocks that a multiprocessor runs at a time; absent for a text of another version.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks_per_multiprocessor: Option<u32>,
    /// Their threads as a share of the most it can run.
    #[serde(skip_serializing_if = "Option::is_none")]
    occupancy: Option<f64>,
    /// What runs out first.
    limited_by: Vec<&'static str>,
    cubin_bytes: usize,
    seconds: f64,
    cached: bool,
    notes: &'a [String],
    error: Option<String>,
}

/// Totals.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    compiler: String,
    n_kernels: usize,
    n_cached: usize,
    n_failed: usize,
    n_spilling: usize,
    seconds: f64,
}

/// Compiles those that the program does not carry compiled.
pub(super) fn compile(
    kernels: &[Kernel],
    n_threads: usize,
    environment: &Environment,
) -> Result<Compilation, Box<dyn std::error::Error>> {
    let start = Instant::now();
    let missing: Vec<&Kernel> = kernels.iter().filter(|kernel| kernel.cubin.is_none()).collect();
    let (compiler, compiled) = if missing.is_empty() && !kernels.is_empty() {
        ("the program's build script".to_owned(), Vec::new())
    } else {
        compile_now(&missing, n_threads, environment)?
    };
    let mut compiled = compiled.into_iter();
    let reports = kernels.iter().filter_map(|kernel| match kernel.cubin {
        Some(cubin) => Some(carried(kernel, cubin)),
        None => compiled.next(),
    });
    Ok(Compilation { reports: reports.collect(), compiler, seconds: start.elapsed().as_secs_f64() })
}

/// The report of a kernel that was compiled ahead of time.
fn carried(kernel: &Kernel, cubin: Cubin) -> Report {
    Report {
        name: kernel.name.clone(),
        arch: kernel.arch.name.to_string(),
        resources: resources(cubin.log),
        log: cubin.log.to_owned(),
        notes: notes(cubin.log),
        cubin_bytes: cubin.cubin.len(),
        seconds: 0.0,
        cached: true,
        result: Ok(cubin.cubin.to_vec()),
    }
}

/// Compiles with a progress bar where standard error is a terminal; gives the compiler's name, too.
fn compile_now(
    kernels: &[&Kernel],
    n_threads: usize,
    environment: &Environment,
) -> Result<(String, Vec<Report>), Box<dyn std::error::Error>> {
    let compiler = Compiler::open(&libraries::find(&environment.places))
        .map_err(|error| format!("{error}; `kernwright doctor` says where it was looked for"))?;
    let cache = environment.cache.as_deref().map(Cache::open);
    let sources: Vec<Source<'_>> = kernels
        .iter()
        .map(|kernel| Source {
            name: &kernel.name,
            text: &kernel.text,
            arch: &kernel.arch.name,
            options: &[],
        })
        .collect();
    // Draws nothing where standard error is no terminal.
    let bar = ProgressBar::new(sources.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} [{bar:30}] {msg}") {
        bar.set_style(style);
    }
    let reports = compile_all(&compiler, cache.as_ref(), &sources, n_threads, &|progress| {
        bar.set_message(format!("{} {}", progress.report.arch, progress.report.name));
        bar.set_position(progress.n_done as u64);
    });
    bar.finish_and_clear();
    if let Some(trouble) = cache.and_then(|cache| cache.note()) {
        note(&format!("note: {trouble}"));
    }
    Ok((format!("NVRTC {}", compiler.version()), reports))
}

impl<'a> Compiled<'a> {
    /// Of one report.
    pub(super) fn of(kernel: &Kernel, report: &'a Report) -> Self {
        let occupancy = occupancy(kernel, report);
        Self {
            resources: report.resources.first(),
            blocks_per_multiprocessor: occupancy.as_ref().map(|occupancy| occupancy.blocks),
            occupancy: occupancy.as_ref().map(|occupancy| occupancy.share),
            limited_by: occupancy.map(|occupancy| occupancy.limits).unwrap_or_default(),
            cubin_bytes: report.cubin_bytes,
            seconds: report.seconds,
            cached: report.cached,
            notes: &report.notes,
            error: report.result.as_ref().err().map(ToString::to_string),
        }
    }
}

/// How many of its blocks a multiprocessor runs at a time.
fn occupancy(kernel: &Kernel, report: &Report) -> Option<Occupancy> {
    let (spec, resources) = (kernel.spec.as_ref()?, report.resources.first()?);
    let shared_memory = spec.shared_memory + resources.static_shared_bytes;
    let block = Block { threads: spec.block, registers: resources.registers, shared_memory };
    Some(occupancy::occupancy(&kernel.arch, block))
}

/// From which NVRTC on there is a GPU that this one does not know.
fn first_nvrtc(kernel: &Kernel, error: &Error) -> String {
    match (error, kernel.arch.nvrtc) {
        (Error::Arch { .. }, Some((major, minor))) => {
            format!(", {major}.{minor} or later (`pip install -U nvidia-cuda-nvrtc`)")
        }
        _ => String::new(),
    }
}

/// Totals of it.
pub(super) fn summary(compilation: &Compilation) -> Summary {
    let count = |is: &dyn Fn(&Report) -> bool| compilation.reports.iter().filter(|report| is(report)).count();
    Summary {
        compiler: compilation.compiler.clone(),
        n_kernels: compilation.reports.len(),
        n_cached: count(&|report| report.cached),
        n_failed: count(&|report| report.result.is_err()),
        n_spilling: count(&|report| report.resources.iter().any(Resources::spills)),
        seconds: compilation.seconds,
    }
}

/// The table, what deserves a look, and totals.
pub(super) fn text(kernels: &[Kernel], compilation: &Compilation) -> Vec<String> {
    use Side::{Left, Right};
    let columns = vec![
        ("kernel", Left),
        ("arch", Left),
        ("threads", Right),
        ("registers", Right),
        ("spills", Right),
        ("shared memory", Right),
        ("blocks", Right),
        ("occupancy", Right),
        ("limited by", Left),
        ("time", Right),
        ("", Left),
    ];
    let mut table = Table { columns, rows: Vec::new() };
    let mut remarks = Vec::new();
    for (kernel, report) in kernels.iter().zip(&compilation.reports) {
        let entry = report.resources.first();
        let number = |of: &dyn Fn(&Resources) -> u32| {
            entry.map_or_else(|| "-".to_owned(), |entry| of(entry).to_string())
        };
        let occupancy = occupancy(kernel, report);
        let shared = kernel.shared_memory() + entry.map_or(0, |entry| entry.static_shared_bytes);
        table.rows.push(Row::Cells(vec![
            kernel.name.clone(),
            kernel.arch.name.to_string(),
            kernel.spec.as_ref().map_or(String::new(), |spec| spec.block.to_string()),
            number(&|entry| entry.registers),
            number(&|entry| entry.spill_stores_bytes + entry.spill_loads_bytes),
            units::bytes(shared.into()),
            occupancy.as_ref().map_or("-".to_owned(), |occupancy| occupancy.blocks.to_string()),
            occupancy.as_ref().map_or("-".to_owned(), |occupancy| format!("{:.0}%", 100.0 * occupancy.share)),
            occupancy.map_or(String::new(), |occupancy| occupancy.limits.join(", ")),
            units::seconds(report.seconds),
            match &report.result {
                Err(_) => "failed".to_owned(),
                Ok(_) if report.cached => "cached".to_owned(),
                Ok(_) => String::new(),
            },
        ]));
        let place = format!("`{}` for `{}`", kernel.name, kernel.arch.name);
        remarks.extend(report.notes.iter().map(|note| format!("note: {place}: {note}")));
        if let Err(error) = &report.result {
            remarks.push(format!("error: {error}{}", first_nvrtc(kernel, error)));
        }
    }
    let mut lines = table.lines();
    lines.push(
        "\nblocks: as many as a multiprocessor runs at a time; occupancy: their threads as a share of its most"
            .to_owned(),
    );
    if !remarks.is_empty() {
        lines.push(String::new());
        lines.extend(remarks);
    }
    let sum = summary(compilation);
    lines.push(format!(
        "\n{} kernels by {} in {}: {} from the cache, {} spill, {} failed",
        sum.n_kernels,
        sum.compiler,
        units::seconds(sum.seconds),
        sum.n_cached,
        sum.n_spilling,
        sum.n_failed
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_compile::Places;
    use kernwright_plan::arch;

    const LOG: &str = "ptxas info    : Compiling entry function 'norm' for 'sm_86'\n\
                       ptxas info    : Used 24 registers, used 1 barriers, 368 bytes cmem[0]";

    #[test]
    fn what_the_program_carries_compiled_needs_no_compiler() {
        let mut places = Places::from_variables([] as [(&str, &str); 0]);
        places.root = "/nothing/is/here".into();
        let environment =
            Environment { places, cache: None, gpu_synchronous: false, no_color: true, dumb_terminal: false };
        let cubin = Cubin { arch: "sm_86", kernel: "norm", log: LOG, cubin: b"ELF" };
        let kernel = |cubin| Kernel {
            arch: arch::ALL[1].clone(),
            name: "norm".into(),
            spec: None,
            text: String::new(),
            cubin,
        };
        let compilation = compile(&[kernel(Some(cubin))], 0, &environment).expect("nothing is compiled");
        assert_eq!(compilation.reports[0].resources[0].registers, 24);
        assert_eq!(compilation.reports[0].cubin_bytes, 3);
        assert_eq!(summary(&compilation).n_cached, 1);
        let error = compile(&[kernel(Some(cubin)), kernel(None)], 0, &environment).expect_err("no NVRTC");
        assert!(error.to_string().contains("libnvrtc"), "{error}");
    }
}
