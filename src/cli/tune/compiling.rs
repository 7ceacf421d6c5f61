//! Compiles kernels of trials on threads of their own, while others run on the GPU.
//!
//! In: names and texts, by when they are needed. Out: of each, once every target has it, what is wrong with it. The cubins go to the
//! cache, where whoever loads a kernel finds them.

use crate::environment::Environment;
use kernwright_compile::{Cache, Compiler, Report, Source, compile_all};
use kernwright_plan::chain;
use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, available_parallelism};

/// A kernel: its name and its text.
pub(super) type Kernel = (String, String);

/// Begins to compile kernels.
pub(super) type Compile = Box<dyn Fn(Vec<Kernel>) -> Result<Compiling, Box<dyn Error>>>;

/// Compiles one, and says what is wrong with it.
pub(super) type Judge = Arc<dyn Fn(&Kernel) -> Option<String> + Send + Sync>;

/// Kernels that are being compiled; dropped, it waits for those that have begun and leaves the others.
pub(super) struct Compiling {
    queue: Arc<Mutex<VecDeque<Kernel>>>,
    threads: Vec<JoinHandle<()>>,
    done: Receiver<(String, Option<String>)>,
    /// What is known: nothing wrong, or why a kernel cannot be taken.
    faults: HashMap<String, Option<String>>,
}

impl Compiling {
    /// Waits for a kernel; an error where it was never asked for.
    pub(super) fn fault(&mut self, name: &str) -> Result<Option<String>, String> {
        loop {
            if let Some(fault) = self.faults.get(name) {
                return Ok(fault.clone());
            }
            let (name, fault) = self.done.recv().map_err(|_| format!("nobody compiles `{name}`"))?;
            self.faults.insert(name, fault);
        }
    }
}

impl Drop for Compiling {
    fn drop(&mut self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for thread in self.threads.drain(..) {
            // One that panicked has told so.
            let _ = thread.join();
        }
    }
}

/// Compiles by what `fault` says of a kernel, on so many threads.
pub(super) fn begin(
    kernels: Vec<Kernel>,
    n_threads: usize,
    fault: &Judge,
) -> Result<Compiling, Box<dyn Error>> {
    let n_threads = n_threads.min(kernels.len());
    let queue = Arc::new(Mutex::new(VecDeque::from(kernels)));
    let (sender, done) = channel();
    let mut compiling = Compiling { queue, threads: Vec::new(), done, faults: HashMap::new() };
    for index in 0..n_threads {
        let (queue, sender, fault) =
            (Arc::clone(&compiling.queue), Sender::clone(&sender), Arc::clone(fault));
        let work = move || {
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(kernel) = next else { return };
                let fault = fault(&kernel);
                if sender.send((kernel.0, fault)).is_err() {
                    return;
                }
            }
        };
        compiling.threads.push(Builder::new().name(format!("tune-{index}")).spawn(work)?);
    }
    Ok(compiling)
}

/// How to compile for a GPU, and where it stands in for another for that one too, whose registers are the ones that
/// must suffice. Also what it is compiled by.
pub(super) fn compile(
    (gpu, like): (String, Option<String>),
    environment: &Environment,
) -> Result<(Compile, String), Box<dyn Error>> {
    let compiler = Compiler::open(&super::libraries::find(&environment.places))?;
    let about = compiler.identity();
    // Of a target that only a file describes the compiler need not know.
    let like = like.filter(|like| *like != gpu && knows(&compiler, like));
    let targets: Vec<String> = std::iter::once(gpu).chain(like).collect();
    let cache = environment.cache.as_deref().map(Cache::open);
    let fault = move |(name, text): &Kernel| {
        targets.iter().enumerate().find_map(|(index, arch)| {
            let source = Source { name, text, arch, options: &[] };
            let reports = compile_all(&compiler, cache.as_ref(), &[source], 1, &|_| {});
            // Where it stands in for another, what counts is the registers of the other.
            let counts = |fault: &String| index + 1 == targets.len() || fault.starts_with(REFUSED);
            reports.iter().find_map(fault).filter(counts)
        })
    };
    let fault: Judge = Arc::new(fault);
    // One core is left to whoever measures.
    let n_threads = available_parallelism().map_or(1, |n| n.get().saturating_sub(1).max(1));
    Ok((Box::new(move |kernels| begin(kernels, n_threads, &fault)), about))
}

fn knows(compiler: &Compiler, target: &str) -> bool {
    let digits: String = target.chars().filter(char::is_ascii_digit).collect();
    digits.parse().is_ok_and(|number| compiler.archs().contains(&number))
}

/// What is said of a kernel of which there is no cubin.
const REFUSED: &str = "does not compile";

/// What the compiler says against a kernel.
fn fault(report: &Report) -> Option<String> {
    if let Err(error) = &report.result {
        return Some(format!("{REFUSED}: {}", chain(error)));
    }
    let spills = report.resources.iter().find(|entry| entry.spills());
    let spills = spills.map(|entry| {
        let (bytes, registers) = (entry.spill_stores_bytes, entry.registers);
        format!("spills registers, {bytes} bytes at {registers} for {}", report.arch)
    });
    spills.or_else(|| report.notes.first().map(|remark| format!("has a remark of the compiler: {remark}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_compilers_remark_is_a_fault() {
        let report = |log: &str| Report {
            name: "x".to_owned(),
            arch: "sm_90a".to_owned(),
            resources: kernwright_compile::resources(log),
            log: log.to_owned(),
            notes: kernwright_compile::notes(log),
            cubin_bytes: 1,
            seconds: 0.0,
            cached: false,
            result: Ok(vec![0]),
        };
        let entry = "ptxas info    : Compiling entry function 'x' for 'sm_90a'\n\
                     ptxas info    : Function properties for x\n";
        let of = |rest: &str| fault(&report(&format!("{entry}{rest}")));
        let clean = "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                     ptxas info    : Used 30 registers, used 0 barriers";
        assert_eq!(of(clean), None);
        let spills = clean.replace("0 bytes spill stores", "16 bytes spill stores");
        assert_eq!(of(&spills).as_deref(), Some("spills registers, 16 bytes at 30 for sm_90a"));
        let serial =
            format!("{clean}\nptxas info    : (C7511) Potential Performance Loss: wgmma is serialized");
        assert!(of(&serial).is_some_and(|why| why.starts_with("has a remark of the compiler: (C7511)")));
    }

    #[test]
    fn kernels_are_compiled_once_each_and_whoever_waits_hears_of_its_own() {
        let n_compiled = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&n_compiled);
        let fault: Judge = Arc::new(move |(name, _)| {
            counted.fetch_add(1, Ordering::Relaxed);
            name.ends_with('3').then(|| "spills".to_owned())
        });
        let kernels = (0..20).map(|n| (format!("k{n}"), String::new())).collect();
        let mut compiling = begin(kernels, 4, &fault).expect("there are threads");
        assert_eq!(compiling.fault("k13"), Ok(Some("spills".to_owned())));
        for n in [19, 0, 3, 3] {
            let wanted = (n == 3).then(|| "spills".to_owned());
            assert_eq!(compiling.fault(&format!("k{n}")), Ok(wanted));
        }
        assert!(compiling.fault("another").is_err_and(|why| why == "nobody compiles `another`"));
        assert_eq!(n_compiled.load(Ordering::Relaxed), 20);
    }

    #[test]
    fn what_is_not_waited_for_is_left() {
        let n_compiled = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&n_compiled);
        let fault: Judge = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(std::time::Duration::from_millis(1));
            None
        });
        let kernels = (0..10_000).map(|n| (format!("k{n}"), String::new())).collect();
        let mut compiling = begin(kernels, 1, &fault).expect("there is a thread");
        assert_eq!(compiling.fault("k0"), Ok(None));
        drop(compiling);
        assert!(n_compiled.load(Ordering::Relaxed) < 10_000);
    }
}
