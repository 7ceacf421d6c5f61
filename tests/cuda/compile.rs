//! Kernels through the compiler, and what it may not say of them.

use super::Text;
use kernwright_compile::{Report, Resources, Source, compile_all, testing};
use std::time::Instant;

/// Compiles all and panics with every fault; `None` where there is no compiler, else the seconds it took.
pub(super) fn compile(what: &str, all: &[Text]) -> Option<f64> {
    let what = format!("compiling {} kernels of {what}", all.len());
    let compiler = testing::compiler_or_skip(std::env::vars_os(), &what)?;
    let names: Vec<String> = all.iter().map(|one| one.spec.name()).collect();
    let sources: Vec<Source<'_>> = all
        .iter()
        .zip(&names)
        .map(|(one, name)| Source { name, text: &one.text, arch: &one.arch.name, options: &[] })
        .collect();
    let start = Instant::now();
    let reports = compile_all(&compiler, None, &sources, 0, &|_| {});
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("{what}: {seconds:.1} s");
    let faults: Vec<String> =
        all.iter().zip(&reports).flat_map(|(one, report)| faults(one, report)).collect();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    Some(seconds)
}

fn faults(one: &Text, report: &Report) -> Vec<String> {
    let name = one.spec.name();
    let mut faults = report.notes.clone();
    match (&report.result, report.resources.as_slice()) {
        (Err(error), _) => faults.push(error.to_string()),
        (Ok(_), [entry]) => {
            if entry.entry != name {
                faults.push(format!("its entry is called `{}`", entry.entry));
            }
            let Resources {
                registers, spill_stores_bytes: out, spill_loads_bytes: back, stack_bytes, ..
            } = entry;
            if entry.spills() || *stack_bytes > 0 {
                faults.push(format!(
                    "spills {out} bytes out and {back} in at {registers} registers, and has {stack_bytes} bytes of \
                     local memory"
                ));
            }
            // All shared memory is dynamic, or the limits the plan counts with are wrong.
            if entry.static_shared_bytes > 0 {
                faults.push(format!("has {} bytes of static shared memory", entry.static_shared_bytes));
            }
            if one.spec.shared_memory > one.arch.shared_memory {
                faults.push(format!("asks for {} bytes of shared memory", one.spec.shared_memory));
            }
        }
        (Ok(_), entries) => faults.push(format!("has {} entries, 1 is allowed", entries.len())),
    }
    faults.into_iter().map(|fault| format!("{name} for {}: {fault}", one.arch.name)).collect()
}
