//! Runs works on the device beside the definition of each op, on as many host threads as there are.

use crate::cases;
use crate::device::{options, text};
use crate::devices::{Devices, NAME, archs, compile};
use crate::models;
use crate::work::{Work, narrow_types};
use kernwright_plan::arch::Arch;
use kernwright_plan::executor::{Executor, MicroStep};
use kernwright_plan::launch::{Launch, Lowered};
use kernwright_plan::lockstep::{Lockstep, Outcome};
use kernwright_plan::ops;
use kernwright_plan::spec::KernelSpec;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::time::Instant;

/// So many faults are printed.
const MOST_FAULTS: usize = 40;

/// What came of works.
#[derive(Default)]
pub(crate) struct Tally {
    kernels: BTreeSet<String>,
    /// Steps compared and the greatest share of the tolerance, by op and the types it wrote.
    shares: BTreeMap<(&'static str, &'static str), (usize, f64)>,
    faults: Vec<String>,
}

/// The kernels of a work for a GPU: their specs, and all that its steps launch.
fn lowered(work: &Work, arch: &Arch) -> (Vec<KernelSpec>, Vec<Lowered>) {
    let mut all = Vec::new();
    let mut specs = Vec::new();
    for (step, micro) in work
        .plan
        .steps
        .iter()
        .flat_map(|step| [MicroStep::First, MicroStep::Later].map(|micro| (step, micro)))
    {
        let step = step.at(micro);
        let lowered = step.op.lower(&work.plan.io(&step), arch);
        if let Lowered::Launches(launches) = &lowered {
            specs.extend(launches.iter().filter_map(|launch| match launch {
                Launch::Kernel { spec, .. } => Some(spec.clone()),
                _ => None,
            }));
        }
        all.push(lowered);
    }
    (specs, all)
}

/// GPUs on which a work launches what it launches on no earlier one, with the names and texts of its kernels there.
fn distinct<'a>(
    work: &Work,
    archs: &[&'a Arch],
    texts: &mut HashMap<(String, &'static [&'static str]), String>,
    faults: &mut Vec<String>,
) -> Vec<(&'a Arch, Vec<(String, String)>)> {
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for &arch in archs {
        let (specs, launches) = lowered(work, arch);
        let mut kernels = Vec::new();
        for spec in &specs {
            let key = (spec.name(), arch.families);
            if !texts.contains_key(&key) {
                match text(spec, arch) {
                    Ok(text) => drop(texts.insert(key.clone(), text)),
                    Err(error) => faults.push(format!("{}: {error}", work.label)),
                }
            }
            kernels.extend(texts.get(&key).map(|text| (key.0, text.clone())));
        }
        let key = (launches, kernels.clone());
        if !seen.contains(&key) {
            seen.push(key);
            found.push((arch, kernels));
        }
    }
    found
}

fn run(work: &Work, arch: &Arch, devices: &mut Devices, tally: &Mutex<Tally>) -> Result<(), String> {
    let device = devices.fresh(arch);
    let chain = |error: &dyn std::error::Error| format!("{error:?}");
    let id = device.load(work.plan.clone()).map_err(|error| chain(&error))?;
    let mut lockstep = Lockstep::new(&work.plan).map_err(|error| chain(&error))?;
    for (number, run) in work.runs.iter().enumerate() {
        for (buffer, content) in &run.content {
            lockstep.write(*buffer, content.values()).map_err(|error| chain(&error))?;
        }
        for index in run.steps.clone() {
            let outcome = lockstep.step(device, id, index, run.micro).map_err(|error| chain(&error))?;
            let mut tally = tally.lock().map_err(|error| error.to_string())?;
            if let Some(fault) = outcome.fault() {
                tally.faults.push(format!("{} on {}, run {number}, {fault}", work.label, arch.name));
            }
            match outcome {
                Outcome::Compared { rows, .. } => {
                    for row in rows {
                        let (count, share) = tally.shares.entry((row.op, row.dtype.name())).or_default();
                        *count += 1;
                        *share = share.max(row.share);
                    }
                }
                Outcome::NoKernel(why) => {
                    let op = work.plan.steps[index].op.name();
                    tally
                        .faults
                        .push(format!("{} on {}: `{op}` has no kernel: {why}", work.label, arch.name));
                }
                Outcome::Failed(_) => {}
            }
        }
    }
    let mut tally = tally.lock().map_err(|error| error.to_string())?;
    tally.kernels.extend(device.kernels().into_iter().map(str::to_owned));
    Ok(())
}

/// Runs all and panics with every fault; `None` where there is no device.
pub(crate) fn sweep(what: &str, works: Vec<Work>) -> Option<Tally> {
    let options = options(what)?;
    let archs = archs(&options);
    let start = Instant::now();
    let mut tally = Tally::default();
    let mut texts = HashMap::new();
    let mut jobs = Vec::new();
    let mut kernels = BTreeMap::new();
    for work in &works {
        for (arch, named) in distinct(work, &archs, &mut texts, &mut tally.faults) {
            jobs.push((work, arch));
            kernels.extend(named.into_iter().map(|(name, text)| (text, name)));
        }
    }
    let planned = start.elapsed().as_secs_f64();
    // Compiled together, each once, before several works want the same one.
    let kernels: Vec<(&str, &str)> =
        kernels.iter().map(|(text, name)| (name.as_str(), text.as_str())).collect();
    compile(&options, &kernels);
    let ready = start.elapsed().as_secs_f64();
    let tally = Mutex::new(tally);
    let jobs = Mutex::new(jobs.into_iter());
    let next = || jobs.lock().ok().and_then(|mut jobs| jobs.next());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let mut devices = Devices::new(&options);
                while let Some((work, arch)) = next() {
                    if let (Err(error), Ok(mut tally)) = (run(work, arch, &mut devices, &tally), tally.lock())
                    {
                        tally.faults.push(format!("{} on {}: {error}", work.label, arch.name));
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap_or_else(|error| panic!("{error}"));
    for ((op, dtype), (count, share)) in &tally.shares {
        eprintln!("{op:20} {dtype:5} {count:6} buffers, at most {share:.2} of the tolerance");
    }
    let n_buffers: usize = tally.shares.values().map(|(count, _)| count).sum();
    let (n_kernels, seconds) = (tally.kernels.len(), start.elapsed().as_secs_f64());
    eprintln!(
        "{what}: {n_kernels} kernels on {NAME}, {n_buffers} buffers compared in {seconds:.1} s ({planned:.1} s planned, {:.1} s compiled)",
        ready - planned
    );
    let n_faults = tally.faults.len();
    let shown: Vec<_> = tally.faults.iter().take(MOST_FAULTS).cloned().collect();
    assert!(shown.is_empty(), "{n_faults} faults:\n{}", shown.join("\n"));
    assert!(n_kernels > 0 && n_buffers > 0);
    Some(tally)
}

#[test]
fn every_kernel_of_every_case_matches_the_reference() {
    let Some(tally) = sweep("cases", cases::all()) else { return };
    for row in ops::ALL {
        let types: Vec<&str> =
            tally.shares.keys().filter(|(op, _)| *op == row.name).map(|(_, dtype)| *dtype).collect();
        assert!(types.contains(&"fp32"), "`{}` was compared in {types:?}", row.name);
    }
    for dtype in narrow_types() {
        assert!(
            tally.shares.keys().filter(|(_, name)| *name == dtype.name()).count() > 5,
            "{}",
            dtype.name()
        );
    }
}

#[test]
fn every_step_of_whole_models_matches_the_reference() {
    sweep("models", models::all());
}
