//! The vocabulary of sm_90a in small kernels that are no op's: they compile without a spill or a remark, and a product of
//! matrices through all of it is right on the emulator.

#![cfg(feature = "render")]

mod matrix_product;

use kernwright_codegen::render::{File, render_file};
use kernwright_compile::{Source, compile_all, testing};
use kernwright_plan::spec::{KernelSpec, SpecValue, field};
use kernwright_runtime::driver::Layout;
use kernwright_runtime::emulator::{Emulator, EmulatorDriver, Options};
use std::path::PathBuf;

/// Every name once.
const VOCABULARY: File =
    File { path: "tests/hopper/vocabulary.cu.tera", text: include_str!("vocabulary.cu.tera") };
/// A product of each width, with every way to lay operands out.
const PRODUCTS: File = File { path: "tests/hopper/products.cu.tera", text: include_str!("products.cu.tera") };

fn spec(widths: &[u64]) -> KernelSpec {
    let fields = vec![field("wgmma_widths", "", SpecValue::List(widths.to_vec()))];
    KernelSpec { template: "hopper", block: 256, shared_memory: 64 << 10, fields }
}

#[test]
fn the_vocabulary_compiles_without_spills_or_remarks() {
    let Some(compiler) = testing::compiler_or_skip(std::env::vars_os(), "the vocabulary of sm_90a") else {
        return;
    };
    let mut texts = vec![("every name".to_owned(), spec(&[64]), VOCABULARY)];
    for width in (8..=256).step_by(8) {
        texts.push((format!("width {width}"), spec(&[width]), PRODUCTS));
    }
    let mut rendered: Vec<String> = texts
        .iter()
        .map(|(what, spec, file)| render_file(spec, file).unwrap_or_else(|error| panic!("{what}: {error}")))
        .collect();
    let mut names: Vec<String> = texts.iter().map(|(_, spec, _)| spec.name()).collect();
    for product in matrix_product::texts() {
        names.push(product.spec.name());
        rendered.push(product.text);
    }
    let sources: Vec<Source<'_>> = rendered
        .iter()
        .zip(&names)
        .map(|(text, name)| Source { name, text, arch: "sm_90a", options: &[] })
        .collect();
    let reports = compile_all(&compiler, None, &sources, 0, &|_| {});
    for (what, report) in names.iter().zip(&reports) {
        assert!(report.result.is_ok(), "{what}: {:?}", report.result);
        assert!(report.notes.is_empty(), "{what}: {:?}", report.notes);
        let [entry] = report.resources.as_slice() else { panic!("{what}: {:?}", report.resources) };
        assert!(!entry.spills() && entry.stack_bytes == 0, "{what}: {entry:?}");
    }
}

#[test]
fn a_product_of_matrices_is_exact_on_the_emulator() {
    let Some(compiler) = testing::host_compiler_or_skip(std::env::vars_os(), "a product for sm_90a") else {
        return;
    };
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("emulator");
    let options = Options { compiler, cache, workers: 2, checks: true, debug: false };
    let emulator = Emulator::new(options).unwrap_or_else(|error| panic!("{error}"));
    matrix_product::check(&mut EmulatorDriver::new(emulator, Layout::Separate));
}
