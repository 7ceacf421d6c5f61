//! Walks: a plan runs step by step on the definitions of its ops, and the asked steps beside it on the emulator.
//!
//! In: [`Walk`]s. Out: a [`Finding`] per step that was asked for, in order. Each such step becomes a plan of its own, whose
//! inputs are what the definitions have come to, so that one wrong kernel spoils no other. They run on several threads.

use super::content;
use super::texts::{Text, Texts};
use super::work::{Stop, Walk, order};
use kernwright_plan::arch::Arch;
use kernwright_plan::buffer::BufferId;
use kernwright_plan::excerpt::{Excerpt, excerpt};
use kernwright_plan::executor::{Executor, ExecutorError, Values};
use kernwright_plan::lockstep::{Lockstep, Outcome};
use kernwright_plan::plan::Plan;
use kernwright_plan::reference::{Reference, Rounding};
use kernwright_runtime::Cuda;
use kernwright_runtime::driver::Layout;
use kernwright_runtime::emulator::{Counter, Emulator, EmulatorDriver, EmulatorError, Options};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What came of one step.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) op: &'static str,
    pub(super) stop: Stop,
    pub(super) outcome: Outcome,
    /// Kernels launched for it.
    pub(super) launches: usize,
    /// What its kernels' speed depends on, where that was asked for.
    pub(super) counters: Vec<Counter>,
    pub(super) seconds: f64,
}

/// A step with all that it takes to run it.
struct Job {
    number: usize,
    stop: Stop,
    plan: Plan,
    inputs: Vec<(BufferId, Vec<f32>)>,
}

/// How to run.
pub(super) struct Setting {
    pub(super) options: Options,
    pub(super) texts: Arc<Texts>,
    pub(super) threads: usize,
    /// Count?
    pub(super) counts: bool,
}

/// Compiles the kernels of all walks, each text once, in rounds of as many as there are threads; `tell` hears how many are
/// done. What does not compile is told by the step that needs it.
pub(super) fn compile(
    walks: &[Walk],
    setting: &Setting,
    tell: &dyn Fn(usize, usize),
) -> Result<(), EmulatorError> {
    let mut texts: BTreeMap<usize, (&str, &Text)> = BTreeMap::new();
    for stop in walks.iter().flat_map(|walk| &walk.stops) {
        for name in &stop.kernels {
            if let Some(text) = setting.texts.get(&stop.arch, name) {
                texts.insert(text.number, (name, text));
            }
        }
    }
    let mut emulator = Emulator::new(setting.options.clone())?;
    let kernels: Vec<(&str, &str)> = texts.values().map(|(name, text)| (*name, &*text.text)).collect();
    tell(0, kernels.len());
    let mut done = 0;
    for round in kernels.chunks(setting.threads.max(1)) {
        let _ = emulator.load_all(round);
        done += round.len();
        tell(done, kernels.len());
    }
    Ok(())
}

/// Runs all; `tell` hears of each step that is done.
pub(super) fn run(
    walks: &[Walk],
    setting: &Setting,
    tell: &(dyn Fn(&Finding) + Sync),
) -> Result<Vec<Finding>, Box<dyn Error>> {
    let (sender, receiver) = sync_channel::<Job>(setting.threads);
    // The workers' alone, so that sending fails, and does not wait for ever, once the last of them has gone.
    let receiver = Arc::new(Mutex::new(receiver));
    let findings = Mutex::new(Vec::new());
    let mut first = 0;
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let workers: Vec<_> = (0..setting.threads)
            .map(|_| {
                let (receiver, findings) = (Arc::clone(&receiver), &findings);
                scope.spawn(move || {
                    while let Some(job) = next(&receiver) {
                        let number = job.number;
                        let finding = hold(job, setting);
                        tell(&finding);
                        if let Ok(mut findings) = findings.lock() {
                            findings.push((number, finding));
                        }
                    }
                })
            })
            .collect();
        drop(receiver);
        for walk in walks {
            let send = |job| sender.send(job).map_err(|_| "every thread has ended before its work was done");
            along(walk, first, &mut |job| Ok(send(job)?))?;
            first += walk.stops.len();
        }
        drop(sender);
        let panicked = workers.into_iter().any(|worker| worker.join().is_err());
        if panicked { Err("a thread of the check has panicked".into()) } else { Ok(()) }
    })?;
    let mut findings = findings.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    findings.sort_by_key(|(number, _)| *number);
    Ok(findings.into_iter().map(|(_, finding)| finding).collect())
}

fn next(receiver: &Mutex<Receiver<Job>>) -> Option<Job> {
    receiver.lock().ok().and_then(|receiver| receiver.recv().ok())
}

/// Runs a plan on the definitions up to its last stop, and sends a job at each.
fn along(
    walk: &Walk,
    first: usize,
    send: &mut dyn FnMut(Job) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let Walk { shape, plan, stops } = walk;
    // What is handed on is rounded there.
    let mut reference = Reference::<f32>::new(Rounding::None);
    let id = reference.load(plan.clone())?;
    for (buffer, content) in content::lasting(shape, plan) {
        reference.write(id, buffer, content.values())?;
    }
    let mut current = None;
    let mut left = stops.iter().enumerate().peekable();
    for (step, micro) in order(plan) {
        if current.is_none_or(|current| current < micro) {
            current = Some(micro);
            for (buffer, content) in content::batch(shape, plan, micro as u64) {
                reference.write(id, buffer, content.values())?;
            }
        }
        while let Some((index, stop)) = left.next_if(|(_, stop)| (stop.step, stop.micro) == (step, micro)) {
            let Excerpt { plan: alone, inputs } = excerpt(plan, step, micro);
            let content = inputs.into_iter().map(|(new, old)| Ok((new, reference.read(id, old)?)));
            let inputs = content.collect::<Result<_, ExecutorError>>()?;
            send(Job { number: first + index, stop: stop.clone(), plan: alone, inputs })?;
        }
        if left.peek().is_none() {
            break;
        }
        reference.run(id, step..step + 1, micro)?;
    }
    Ok(())
}

/// Runs one step on the emulator, beside its definition.
fn hold(job: Job, setting: &Setting) -> Finding {
    let start = Instant::now();
    let Job { stop, plan, inputs, .. } = job;
    let op = plan.steps[0].op.name();
    let (mut launches, mut counters) = (0, Vec::new());
    let outcome = device(&stop.arch, setting).and_then(|mut device| {
        let outcome = compare(plan, &inputs, &stop, &mut device);
        launches = device.driver().launches();
        counters = device.driver().emulator().counters();
        outcome
    });
    let outcome = outcome.unwrap_or_else(Outcome::Failed);
    Finding { op, stop, outcome, launches, counters, seconds: start.elapsed().as_secs_f64() }
}

fn compare(
    plan: Plan,
    inputs: &[(BufferId, Vec<f32>)],
    stop: &Stop,
    device: &mut Cuda<EmulatorDriver>,
) -> Result<Outcome, ExecutorError> {
    let mut lockstep = Lockstep::new(&plan)?;
    for (buffer, values) in inputs {
        if plan.buffer(*buffer).dtype.is_integer() {
            let values: Vec<i32> = values.iter().map(|value| *value as i32).collect();
            lockstep.write(*buffer, Values::Int(&values))?;
        } else {
            lockstep.write(*buffer, Values::Float(values))?;
        }
    }
    let id = device.load(plan)?;
    lockstep.step(device, id, 0, stop.micro)
}

/// An emulated GPU. Each buffer is an allocation of its own there, so that no access outside of one goes unseen.
fn device(arch: &Arch, setting: &Setting) -> Result<Cuda<EmulatorDriver>, ExecutorError> {
    let mut emulator = Emulator::new(setting.options.clone()).map_err(|error| ExecutorError::Device {
        what: "start the emulator".to_owned(),
        source: Box::new(error),
    })?;
    emulator.count(setting.counts);
    let (texts, of) = (Arc::clone(&setting.texts), arch.clone());
    let source = move |spec: &kernwright_plan::spec::KernelSpec| {
        let name = spec.name();
        let text = texts.get(&of, &name).map(|text| text.text.to_string());
        text.ok_or_else(|| format!("the program carries none for `{}`", of.name))
    };
    Ok(Cuda::new(EmulatorDriver::new(emulator, Layout::Separate), arch.clone(), Box::new(source)))
}
