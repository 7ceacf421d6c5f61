//! `doctor`: what is on this machine, what is missing and how to get it, and what works as it is.
//!
//! In: the environment. Out: text or JSON, and always exit code 0: a machine without a GPU is not ill. The facts are
//! `kernwright_compile`'s; this file only shows them.

use super::table::{Row, Side, Table, wrapped};
use super::{Declared, Outcome, libraries, units};
use crate::environment::Environment;
use crate::terminal::line;
use clap::Args;
use kernwright_compile::{Fact, Gpu, Place, Probe, probe};
use kernwright_plan::arch;
use kernwright_runtime::gpu::OLDEST_DRIVER;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Flags of `doctor`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Nothing on the list is needed to plan a model, to write its CUDA or to train it on the CPU.

Examples:
  kernwright doctor
  KERNWRIGHT_CUDA_PATH=/opt/cuda-13.0 kernwright doctor
  kernwright doctor --json | jq '.facts[] | select(.present | not)'")]
pub(super) struct Arguments {
    /// Print everything as one JSON document, the folders that were searched included
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    version: &'static str,
    facts: Vec<FactRow<'a>>,
    gpus: Vec<GpuRow<'a>>,
    kernel_cache: Option<&'a Path>,
    searched: Vec<PlaceRow<'a>>,
    works: Vec<Ability>,
}

#[derive(Serialize)]
struct FactRow<'a> {
    name: &'a str,
    present: bool,
    version: Option<&'a str>,
    path: Option<&'a PathBuf>,
    problem: Option<&'a str>,
    advice: Option<&'a str>,
}

#[derive(Serialize)]
struct GpuRow<'a> {
    index: u32,
    name: &'a str,
    compute_capability: (u32, u32),
    /// The target that generates for it, if there is one.
    arch: Option<&'static str>,
    memory_bytes: u64,
    n_multiprocessors: u32,
    shared_memory_bytes: u32,
}

#[derive(Serialize)]
struct PlaceRow<'a> {
    origin: String,
    folder: &'a Path,
    exists: bool,
}

/// Something that Kernwright can do, and what it lacks for it here.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Ability {
    what: &'static str,
    works: bool,
    needs: Vec<String>,
}

/// Runs it.
pub(super) fn run(arguments: &Arguments, _declared: Option<Declared>, environment: &Environment) -> Outcome {
    let libraries = libraries::find(&environment.places);
    let probe = probe(&libraries, &environment.places);
    let cache = environment.cache.as_deref();
    if arguments.json {
        line(&serde_json::to_string_pretty(&document(&probe, cache))?)?;
        return Ok(ExitCode::SUCCESS);
    }
    line(&text(&probe, cache).join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn facts(probe: &Probe) -> [&Fact; 5] {
    [&probe.driver, &probe.nvrtc, &probe.cublas_lt, &probe.nccl, &probe.host_compiler]
}

fn abilities(probe: &Probe) -> Vec<Ability> {
    let ability = |what, facts: &[&Fact]| {
        let absent = facts.iter().filter(|fact| !fact.present);
        let needs: Vec<_> = absent.map(|fact| fact.name.to_owned()).collect();
        Ability { what, works: needs.is_empty(), needs }
    };
    let mut on_gpu = ability("train on a GPU", &[&probe.driver, &probe.nvrtc, &probe.cublas_lt]);
    if probe.driver.present {
        on_gpu.needs.extend(lacks(probe));
        on_gpu.works = on_gpu.needs.is_empty();
    }
    let mut render = ability("write the CUDA of any preset (`cuda --out`)", &[]);
    if !cfg!(feature = "render") {
        render.needs.push("feature `render`".to_owned());
        render.works = false;
    }
    vec![
        ability("plan a model (`plan`)", &[]),
        ability("train and generate on the CPU (`train`, `generate`)", &[]),
        render,
        ability("compile kernels, report registers and spills (`cuda --report`)", &[&probe.nvrtc]),
        ability("run every kernel on the CPU, every access checked (`check`)", &[&probe.host_compiler]),
        on_gpu,
    ]
}

/// What a GPU lacks to be trained on, where there is a driver: the same that is asked where one is opened.
fn lacks(probe: &Probe) -> Option<String> {
    let (major, minor) = OLDEST_DRIVER;
    let version = probe.driver.version.as_deref().unwrap_or_default();
    let parts: Vec<u32> = version.split('.').filter_map(|part| part.parse().ok()).collect();
    if parts < vec![major, minor] {
        return Some(format!("a driver of CUDA {major}.{minor} or later"));
    }
    let has_target = probe.gpus.iter().any(|gpu| arch::of_capability(gpu.compute_capability).is_some());
    match (probe.gpus.is_empty(), has_target) {
        (true, _) => Some("a GPU".to_owned()),
        (false, false) => Some("a GPU with a target, of compute capability 8.0 or later".to_owned()),
        (false, true) => None,
    }
}

fn document<'a>(probe: &'a Probe, cache: Option<&'a Path>) -> Document<'a> {
    let fact = |fact: &'a Fact| FactRow {
        name: fact.name,
        present: fact.present,
        version: fact.version.as_deref(),
        path: fact.path.as_ref(),
        problem: fact.problem.as_deref(),
        advice: Some(fact.advice.as_str()).filter(|advice| !advice.is_empty()),
    };
    let gpu = |one: &'a Gpu| GpuRow {
        index: one.index,
        name: &one.name,
        compute_capability: one.compute_capability,
        arch: arch::of_capability(one.compute_capability).map(|arch| &*arch.name),
        memory_bytes: one.memory_bytes,
        n_multiprocessors: one.n_multiprocessors,
        shared_memory_bytes: one.shared_memory_bytes,
    };
    let place = |place: &'a Place| PlaceRow {
        origin: place.origin.to_string(),
        folder: &place.folder,
        exists: place.folder.is_dir(),
    };
    Document {
        version: env!("CARGO_PKG_VERSION"),
        facts: facts(probe).into_iter().map(fact).collect(),
        gpus: probe.gpus.iter().map(gpu).collect(),
        kernel_cache: cache,
        searched: probe.searched.iter().map(place).collect(),
        works: abilities(probe),
    }
}

fn text(probe: &Probe, cache: Option<&Path>) -> Vec<String> {
    let columns = vec![("", Side::Left), ("", Side::Left), ("", Side::Left)];
    let mut rows = Vec::new();
    let cells = |cells: [&str; 3]| Row::Cells(cells.map(str::to_owned).to_vec());
    let below = |first: &str, text: &str| wrapped(first, text).into_iter().map(Row::Heading);
    for fact in facts(probe) {
        let path = fact.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let version = fact.version.as_deref().map_or("present", number);
        let state = if fact.present { version } else { "missing" };
        rows.push(cells([fact.name, state, &path]));
        if let Some(problem) = &fact.problem {
            rows.extend(below("    ", problem));
        }
        if !fact.advice.is_empty() {
            rows.extend(below("    -> ", &fact.advice));
        }
        if std::ptr::eq(fact, &raw const probe.driver) {
            for one in &probe.gpus {
                rows.push(cells([&format!("GPU {}", one.index), "present", &one.name]));
                rows.extend(below("    ", &describe(one)));
            }
            if probe.gpus.is_empty() {
                rows.push(cells(["GPU", "missing", ""]));
                rows.extend(below(
                    "    ",
                    "the driver shows the GPUs; planning, writing and compiling need none",
                ));
            }
        }
    }
    match cache {
        Some(folder) => rows.push(cells(["kernel cache", "present", &folder.display().to_string()])),
        None => {
            rows.push(cells(["kernel cache", "missing", ""]));
            rows.extend(below(
                "    -> ",
                "set `KERNWRIGHT_CACHE` or `HOME`, or kernels are compiled at each start",
            ));
        }
    }
    let mut lines = Table { columns: columns.clone(), rows }.lines();

    let folders: Vec<&Place> = probe.searched.iter().filter(|place| place.folder.is_dir()).collect();
    let absent = probe.searched.len() - folders.len();
    lines.push(format!(
        "\nsearched for NVIDIA's libraries, in this order ({absent} more do not exist: `--json`):"
    ));
    let row = |place: &&Place| {
        Row::Cells(vec![format!("    {}", place.origin), place.folder.display().to_string()])
    };
    let rows = folders.iter().map(row).collect();
    lines.extend(Table { columns: columns[..2].to_vec(), rows }.lines());

    lines.push("\nwhat works on this machine:".to_owned());
    for ability in abilities(probe) {
        let works = if ability.works { "yes" } else { "no" };
        lines.extend(wrapped(&format!("    {works:<3}  "), ability.what));
        if !ability.works {
            lines.extend(wrapped("         needs ", &ability.needs.join(", ")));
        }
    }
    lines
}

/// The number in what a compiler says of itself, `12.2.0` of `c++ (Debian 12.2.0-14) 12.2.0`, else all of it.
fn number(version: &str) -> &str {
    let mut depth = 0_usize;
    for word in version.split_whitespace() {
        let is_number = word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.');
        if depth == 0 && is_number {
            return word;
        }
        depth = (depth + word.matches('(').count()).saturating_sub(word.matches(')').count());
    }
    version
}

fn describe(one: &Gpu) -> String {
    let (major, minor) = one.compute_capability;
    let target = arch::of_capability(one.compute_capability)
        .map_or_else(|| "no target generates for it yet".to_owned(), |arch| format!("target {}", arch.name));
    #[allow(clippy::cast_precision_loss)]
    let memory = units::bytes(one.memory_bytes as f64);
    format!(
        "compute capability {major}.{minor}, {target}, {memory}, {} multiprocessors",
        one.n_multiprocessors
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernwright_compile::{Libraries, Places};

    #[test]
    fn a_version_is_shown_as_its_number() {
        let shown = [
            number("c++ (Debian 12.2.0-14+deb12u1) 12.2.0"),
            number("g++ (GCC) 14.2.1 20240801 (Red Hat 14.2.1-1)"),
            number("Apple clang version 15.0.0 (clang-1500.3.9.4)"),
            number("13.0"),
            number("unheard of"),
        ];
        assert_eq!(shown, ["12.2.0", "14.2.1", "15.0.0", "13.0", "unheard of"]);
    }

    #[test]
    fn a_gpu_that_would_be_refused_is_not_promised() {
        let mut places = Places::from_variables(Vec::<(String, String)>::new());
        places.root = "/no/such/root".into();
        let mut probe = probe(&Libraries::find(&places), &places);
        let gpu = |compute_capability| Gpu {
            index: 0,
            name: "A".to_owned(),
            compute_capability,
            memory_bytes: 1 << 30,
            n_multiprocessors: 1,
            shared_memory_bytes: 1 << 16,
        };
        let mut asked = |version: &str, gpus: Vec<Gpu>| {
            probe.driver.version = Some(version.to_owned());
            probe.gpus = gpus;
            lacks(&probe)
        };
        assert_eq!(asked("13.0", vec![gpu((9, 0))]), None);
        assert_eq!(asked("12.8", vec![gpu((7, 5)), gpu((8, 6))]), None);
        assert_eq!(asked("12.7", vec![gpu((9, 0))]).as_deref(), Some("a driver of CUDA 12.8 or later"));
        assert_eq!(asked("13.0", vec![]).as_deref(), Some("a GPU"));
        let none = asked("13.0", vec![gpu((7, 5))]);
        assert_eq!(none.as_deref(), Some("a GPU with a target, of compute capability 8.0 or later"));
    }

    #[test]
    fn a_bare_machine_is_told_what_it_lacks_and_what_works() {
        let mut places = Places::from_variables(Vec::<(String, String)>::new());
        // No folder of this machine, and no search by the loader.
        places.root = "/no/such/root".into();
        let probe = probe(&Libraries::find(&places), &places);
        let text = text(&probe, None).join("\n");
        for wanted in ["pip install nvidia-cuda-nvrtc", "pip install nvidia-cublas", "install g++", "GPU 580"]
        {
            let wanted = wanted.trim_start_matches("GPU ");
            assert!(text.contains(wanted), "{wanted}:\n{text}");
        }
        let works: Vec<bool> = abilities(&probe).iter().map(|ability| ability.works).collect();
        assert_eq!(works, [true, true, cfg!(feature = "render"), false, false, false]);
    }
}
