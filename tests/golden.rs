//! The CPU executor against the golden files: what trains is what PyTorch computes.

use kernwright_runtime::Cpu;

#[path = "golden/check.rs"]
mod check;

/// As for the reference: two orders of a sum of fp32 terms, and nothing more.
const SHARE: f64 = 1e-5;

#[test]
fn the_cpu_executor_matches_the_golden_files() {
    for golden in check::all() {
        let mut cpu = Cpu::new(Some(2)).expect("an executor");
        let errors = check::check(&mut cpu, &golden, SHARE);
        eprintln!("cpu {}: max error {:.1e}, rms error {:.1e}", golden.name, errors.max, errors.rms);
    }
}
