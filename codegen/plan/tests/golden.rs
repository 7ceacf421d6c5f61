//! The reference executor against the golden files: our definitions are PyTorch's.

use kernwright_plan::executor::Executor;
use kernwright_plan::reference::{Reference, Rounding};

#[path = "../../../tests/golden/check.rs"]
mod check;

/// Sums of a few hundred fp32 terms in two orders differ by some 1e-6 of the largest element; wrong constants by far
/// more than this.
const SHARE: f64 = 1e-5;

fn matches(kind: &str, new: impl Fn() -> Box<dyn Executor>) {
    for golden in check::all() {
        let errors = check::check(&mut *new(), &golden, SHARE);
        eprintln!("{kind} {}: max error {:.1e}, rms error {:.1e}", golden.name, errors.max, errors.rms);
    }
}

#[test]
fn reference_in_f32_matches_the_golden_files() {
    matches("f32", || Box::new(Reference::<f32>::new(Rounding::None)));
}

#[test]
fn reference_in_f64_matches_the_golden_files() {
    matches("f64", || Box::new(Reference::<f64>::new(Rounding::None)));
}
