//! What is believed of sm_90a, on one.

use crate::device::{open, options};
use crate::matrix_product::check;
use kernwright_runtime::gpu::products::Pick;

#[test]
fn a_product_of_matrices_is_exact_on_a_gpu_of_sm_90a() {
    let Some(options) = options("a product for sm_90a") else { return };
    if options.arch.name != "sm_90a" {
        eprintln!("skipped: a product for sm_90a: this is a GPU of {}", options.arch.name);
        return;
    }
    check(&mut open(&options, true, Pick::First));
}
