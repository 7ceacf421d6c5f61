//! Broken kernels, each caught with its exact message, and correct ones that look suspicious.
//!
//! Each file of `planted/` and `sound/` holds a kernel of its own name, `(float* out, const float* in)`, with 256 floats
//! each, of which nobody wrote those of `out`; some also take both as tensors of 8 rows of 32, a box with a swizzle of 128. Its first line gives the block. What is to be said of `planted/x.cu` stands in
//! `planted/x.txt`.

use super::setup::{options, text};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::tensor_map::{Dimension, Swizzle, TensorLayout};
use kernwright_runtime::emulator::{Emulator, EmulatorError, Options, Word};
use std::fs;
use std::path::PathBuf;

fn folder(name: &str) -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/emulator").join(name);
    let mut files: Vec<_> =
        folder.read_dir().expect("a folder").flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "cu"));
    files.sort();
    files
}

/// The first numbers of the first line: threads, bytes of shared memory.
fn block(text: &str) -> [u32; 2] {
    let words = text.lines().next().unwrap_or_default().split_whitespace();
    let mut numbers = words.filter_map(|word| word.parse().ok());
    [numbers.next().expect("threads"), numbers.next().expect("shared memory")]
}

fn launch(emulator: &mut Emulator, name: &str, kernel: &str) -> Result<(), EmulatorError> {
    let id = emulator.load(name, &text(&format!("#line 1 \"{name}.cu\"\n{kernel}")))?;
    let (out, input) = (emulator.allocate("out", 1024)?, emulator.allocate("in", 1024)?);
    let content: Vec<u8> = (0..256u32).flat_map(|i| (1.0 + i as f32).to_le_bytes()).collect();
    emulator.upload(input, &content)?;
    let [threads, shared] = block(kernel);
    let mut arguments = vec![Word::Address(out), Word::Address(input)];
    if kernel.contains("TensorMap") {
        let columns = Dimension { size: 32, stride: 1, extent: 32 };
        let rows = Dimension { size: 8, stride: 32, extent: 8 };
        let layout = TensorLayout::new(Dtype::Fp32, Swizzle::Bytes128, &[columns, rows]);
        arguments.extend([input, out].map(|at| Word::TensorMap { at, layout }));
    }
    let result = emulator.launch(id, [1, 1, 1], threads, shared, &arguments);
    emulator.free(out)?;
    emulator.free(input)?;
    result
}

fn each(
    options: Options,
    name: &str,
    check: impl Fn(&str, PathBuf, Result<(), EmulatorError>) -> Option<String>,
) {
    let mut emulator = Emulator::new(options).unwrap_or_else(|error| panic!("{error}"));
    let files = folder(name);
    assert!(files.len() > 2, "{name}");
    let mut faults = String::new();
    for path in files {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let kernel = fs::read_to_string(&path).expect("a text");
        let result = launch(&mut emulator, &name, &kernel);
        faults.extend(check(&name, path.with_extension("txt"), result));
    }
    assert!(faults.is_empty(), "\n{faults}");
}

#[test]
fn every_planted_bug_is_caught_with_its_exact_message() {
    let Some(options) = options("planted bugs") else { return };
    each(options, "planted", |name, expected, result| {
        let wanted = fs::read_to_string(expected).unwrap_or_default();
        let found = result.err().map_or_else(|| "no fault".to_owned(), |error| error.to_string());
        (found != wanted.trim_end()).then(|| format!("{name}: found\n{found}\nwanted\n{wanted}\n"))
    });
}

#[test]
fn correct_kernels_that_look_suspicious_are_not_reported() {
    let Some(options) = options("suspicious kernels") else { return };
    each(options, "sound", |name, _, result| result.err().map(|error| format!("{name}: {error}\n")));
}
