//! Compiles many kernels at once, through the cache, and says what came of each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use rayon::prelude::*;

use crate::cache::Cache;
use crate::error::Error;
use crate::nvrtc::{Compiler, Source};
use crate::resources::Resources;

/// What came of one kernel.
#[derive(Clone, Debug)]
pub struct Report {
    /// The kernel's name.
    pub name: String,
    /// The architecture.
    pub arch: String,
    /// What each entry function takes; empty after a failure.
    pub resources: Vec<Resources>,
    /// The compiler's whole log, of which the two around this are taken; empty after a failure.
    pub log: String,
    /// Warnings and remarks of the compiler.
    pub notes: Vec<String>,
    /// The size of the cubin, 0 after a failure.
    pub cubin_bytes: usize,
    /// Time this call spent on it: compiling, or reading the cache.
    pub seconds: f64,
    /// Whether it came from the cache.
    pub cached: bool,
    /// The cubin, or why there is none.
    pub result: Result<Vec<u8>, Error>,
}

/// Handed to the caller each time a kernel is done.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// How many are done, this one included.
    pub n_done: usize,
    /// How many there are.
    pub n_total: usize,
    /// The one that is done.
    pub report: &'a Report,
}

/// ptxas and the front end recurse deeply on long unrolled kernels; the default 2 MiB of a thread may not do.
const STACK_BYTES: usize = 64 << 20;

/// Compiles all sources on `n_threads` threads (0: one per core). Reports come in the order of the sources; one
/// kernel's failure does not stop the others. `progress` is called from those threads.
pub fn compile_all(
    compiler: &Compiler,
    cache: Option<&Cache>,
    sources: &[Source<'_>],
    n_threads: usize,
    progress: &(dyn Fn(Progress<'_>) + Sync),
) -> Vec<Report> {
    let n_done = AtomicUsize::new(0);
    let one = |source: &Source<'_>| {
        let report = compile_one(compiler, cache, source);
        let n_done = n_done.fetch_add(1, Ordering::Relaxed) + 1;
        progress(Progress { n_done, n_total: sources.len(), report: &report });
        report
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(n_threads.min(sources.len().max(1)))
        .stack_size(STACK_BYTES)
        .thread_name(|index| format!("compile-{index}"))
        .build();
    match pool {
        // One at a time: neighbours are often variants of the same slow kernel.
        Ok(pool) => pool.install(|| sources.par_iter().with_max_len(1).map(one).collect()),
        // No threads to be had: slower, but the same.
        Err(_) => sources.iter().map(one).collect(),
    }
}

fn compile_one(compiler: &Compiler, cache: Option<&Cache>, source: &Source<'_>) -> Report {
    let start = Instant::now();
    let key = cache.map(|_| Cache::key(compiler, source));
    let entry = cache.zip(key.as_ref());
    let loaded = entry.and_then(|(cache, key)| cache.load(key));
    let cached = loaded.is_some();
    let compiled = match loaded {
        Some(compiled) => Ok(compiled),
        None => compiler.compile(source),
    };
    if let (Ok(compiled), Some((cache, key)), false) = (&compiled, entry, cached) {
        cache.store(key, compiled);
    }
    let seconds = start.elapsed().as_secs_f64();
    let (name, arch) = (source.name.to_owned(), source.arch.to_owned());
    match compiled {
        Ok(compiled) => Report {
            name,
            arch,
            resources: compiled.resources,
            log: compiled.log,
            notes: compiled.notes,
            cubin_bytes: compiled.cubin.len(),
            seconds,
            cached,
            result: Ok(compiled.cubin),
        },
        Err(error) => Report {
            name,
            arch,
            resources: Vec::new(),
            log: String::new(),
            notes: Vec::new(),
            cubin_bytes: 0,
            seconds,
            cached,
            result: Err(error),
        },
    }
}
