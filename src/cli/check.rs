//! `check`: every kernel of a model, run on the CPU and held to the definition of its op.
//!
//! In: a Shape, GPUs, perhaps edited kernels. Out: a table of ops and every fault, as text or as JSON; exit code 1 when
//! there is one. `work` says what is run, `walk` runs it, `report` shows it, `texts` holds what the kernels are.

mod bar;
mod content;
mod counters;
mod debugger;
mod lines;
mod report;
mod texts;
mod walk;
mod work;

use super::plan_flags::PlanFlags;
use super::{Declared, Outcome, kernels, units};
use crate::environment::Environment;
use crate::terminal::{line, note};
use bar::Bar;
use clap::Args;
use clap::builder::PossibleValuesParser;
use kernwright_compile::HostCompiler;
use kernwright_plan::gpu::Gpu;
use kernwright_plan::shape::Shape;
use kernwright_plan::tile::attention_backward_hopper::takes_turns;
use kernwright_plan::{Options, ops};
use kernwright_runtime::emulator;
use report::Findings;
use serde::Serialize;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use texts::Texts;
use walk::Setting;
use work::Sizes;

/// Flags of `check`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
No GPU is needed: the generated CUDA is compiled by the C++ compiler of this machine (`CXX`, else `c++`) and run thread \
by thread, with every access to memory checked. What each step of training and of generation writes is compared with \
the op's definition, computed in fp64; twice the error of its rounded operands and 4 units in the last place are allowed.

A kernel depends on the widths of a model, not on how many tokens or layers there are. So a model is run as four small \
ones, each of which keeps some of its widths: the heads; d_model; d_ff; the vocabulary. Each different text is compiled \
once, also where several GPUs have it, and compiled kernels are kept (`KERNWRIGHT_CACHE` sets where).

Examples:
  kernwright check                                          the tiny model, for every GPU
  kernwright check --preset seed-102m --gpu sm_90a --op norm
  kernwright check --set attention.head_dim=80 --gpu sm_90a --op attention
  kernwright cuda --preset tiny --gpu sm_90a --out mine     write the kernels, edit one, then
  kernwright check --gpu sm_90a --kernels mine              run it in place of the built-in one
  kernwright check --gpu sm_90a --op attention --counters   bank conflicts and loads that do not lie together, by line
  kernwright check --json | jq '.ops[] | select(.verdict != \"pass\")'")]
pub(super) struct Arguments {
    #[command(flatten)]
    shape: super::shape::changed::ChangedShape,
    /// GPUs whose kernels are run (--help lists them), between commas or repeated [default: those the shape declares,
    /// else all]
    #[arg(long, alias = "arch", value_name = "GPU", value_delimiter = ',', value_parser = super::gpu::parse,
        long_help = super::gpu::list("GPUs whose kernels are run, between commas or repeated [default: those the shape declares, else all]"))]
    gpu: Vec<Gpu>,
    #[command(flatten)]
    plan: PlanFlags,
    /// Sequences in a batch
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    batch: u16,
    /// Tokens per sequence [default: 131 for attention, which has tiles of them, and fewer for all else]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8192))]
    length: Option<u16>,
    /// Run the steps of this op only; may be given several times
    #[arg(long, value_name = "OP", value_parser = op_names(), hide_possible_values = true)]
    op: Vec<String>,
    /// Run the copies in DIR (<kernel>.cu, or <arch>/<kernel>.cu as `cuda --out` writes them) in place of the built-in
    /// kernels of these names
    #[arg(long, value_name = "DIR")]
    kernels: Option<PathBuf>,
    /// Count, for each kernel and its worst lines, trips through shared memory's banks, sectors of global memory, matrix
    /// products and barriers
    #[arg(long)]
    counters: bool,
    /// Compile one kernel for a debugger, run only what launches it, and print how to step through it
    #[arg(long, value_name = "KERNEL", conflicts_with = "json")]
    debug: Option<String>,
    /// Print everything as one JSON document
    #[arg(long)]
    json: bool,
    /// Threads; 0 takes one per core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=512))]
    threads: u16,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    model: &'a str,
    shape: Vec<&'a str>,
    precision: &'static str,
    gpus: Vec<&'a str>,
    compiler: &'a str,
    edited: &'a [String],
    #[serde(flatten)]
    findings: &'a Findings,
    seconds: f64,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments, declared: Option<Declared>, environment: &Environment) -> Outcome {
    let start = Instant::now();
    let named = arguments.shape.resolve(declared)?;
    let declared = declared.filter(|_| !arguments.shape.is_given());
    let (emulation, threads) = emulation(arguments, environment)?;
    let all = kernels::kernels(&named, &arguments.gpu, declared)?;
    let mut texts = Texts::new(all.clone());
    let edited = match &arguments.kernels {
        Some(folder) => texts.edit(folder, &all, &named.name)?,
        None => Vec::new(),
    };
    if let Some(name) = arguments.debug.as_ref().filter(|name| !all.iter().any(|one| one.name == **name)) {
        return Err(kernels::unknown(&named.name, name, &all).into());
    }
    let in_turns = texts.targets.iter().any(takes_turns);
    let options = arguments.plan.options(&Options { in_turns, ..Options::default() }, &named.shape)?;
    let sizes = Sizes { batch: arguments.batch.into(), length: arguments.length.map(usize::from) };
    check_length(&named.shape, sizes.length)?;
    let is_asked = |op: &str, kernels: &[String]| {
        let of_op = arguments.op.is_empty() || arguments.op.iter().any(|asked| asked == op);
        of_op && arguments.debug.as_ref().is_none_or(|asked| kernels.contains(asked))
    };
    let (walks, unreached) = work::walks(&named.shape, &options, sizes, &texts, &is_asked)?;
    check_asked(arguments, &walks, &edited, &named.name)?;

    let precision = options.precision(&named.shape).name();
    if !arguments.json {
        let gpus: Vec<&str> = texts.targets.iter().map(|arch| &*arch.name).collect();
        let parameters = units::grouped(named.shape.n_parameters());
        line(&format!("{}: {parameters} parameters, {precision}, for {}\n", named.name, gpus.join(", ")))?;
    }
    let setting = Setting { options: emulation, texts: Arc::new(texts), threads, counts: arguments.counters };
    let bar = Bar::new(environment);
    walk::compile(&walks, &setting, &|done, of| bar.compiling(done, of))?;
    if let Some(kernel) = &arguments.debug {
        line(&debugger::command(kernel))?;
    }
    bar.run(walks.iter().map(|walk| walk.stops.len()).sum());
    let found = walk::run(&walks, &setting, &|finding| bar.ran(finding));
    bar.finish();
    let findings = Findings::of(&found?, &setting.texts, &unreached);
    let seconds = start.elapsed().as_secs_f64();
    if arguments.json {
        let text = named.shape.text();
        let document = Document {
            model: &named.name,
            shape: text.lines().collect(),
            precision,
            gpus: setting.texts.targets.iter().map(|arch| &*arch.name).collect(),
            compiler: &setting.options.compiler.version,
            edited: &edited,
            findings: &findings,
            seconds,
        };
        line(&serde_json::to_string_pretty(&document)?)?;
    } else {
        line(&findings.table().join("\n"))?;
        if arguments.counters {
            line(&findings.counts().join("\n"))?;
        }
        line(&findings.summary(seconds).join("\n"))?;
    }
    Ok(if findings.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How to emulate, and on how many threads.
fn emulation(
    arguments: &Arguments,
    environment: &Environment,
) -> Result<(emulator::Options, usize), Box<dyn Error>> {
    let compiler = HostCompiler::find(&environment.places)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let is_debugged = arguments.debug.is_some();
    let threads = match (is_debugged, arguments.threads) {
        (true, _) => 1,
        (false, 0) => cores,
        (false, n) => n.into(),
    };
    let cache = match &environment.cache {
        Some(folder) => folder.join("emulator"),
        None => {
            let folder = std::env::temp_dir().join("kernwright-emulator");
            note(&format!(
                "note: compiled kernels are in `{}`: neither `KERNWRIGHT_CACHE` nor `HOME` is set",
                folder.display()
            ));
            folder
        }
    };
    // Steps run side by side, so that the blocks of one need not.
    let options = emulator::Options { compiler, cache, workers: 1, checks: true, debug: is_debugged };
    Ok((options, threads))
}

fn check_length(shape: &Shape, length: Option<usize>) -> Result<(), String> {
    match length.filter(|length| *length > shape.context) {
        Some(length) => Err(format!(
            "`--length` must be at most {}, the context of the model, found `{length}`",
            shape.context
        )),
        None => Ok(()),
    }
}

/// Something must be left to run, and every edited kernel must be in it.
fn check_asked(
    arguments: &Arguments,
    walks: &[work::Walk],
    edited: &[String],
    model: &str,
) -> Result<(), Box<dyn Error>> {
    let stops = || walks.iter().flat_map(|walk| &walk.stops);
    if stops().next().is_none() {
        let what = match &arguments.debug {
            Some(kernel) => format!("no step of this check launches `{kernel}`"),
            None => format!("no step of `{model}` is of op `{}`", arguments.op.join("`, `")),
        };
        return Err(what.into());
    }
    let is_run = |name: &&String| stops().any(|stop| stop.kernels.contains(name));
    if let Some(name) = edited.iter().find(|name| !is_run(name)) {
        let folder = arguments.kernels.as_deref().unwrap_or(Path::new(""));
        return Err(format!(
            "`{name}` in `{}` is not as it was, but this check does not run it: `--op` and how the \
             steps are planned (`--precision`, `--attention`, `--nondeterministic`, `--without` and others) choose what is run",
            folder.display()
        )
        .into());
    }
    Ok(())
}

fn op_names() -> PossibleValuesParser {
    PossibleValuesParser::new(ops::ALL.iter().map(|row| row.name))
}
