//! Attention alone: forward and backward on a GPU, the emulator or the CPU, held to the definition, with statistics.
//!
//!     cargo run --release --example attention                                a GPU where there is one, else the CPU
//!     cargo run --release --example attention -- emulator:sm_90a             the kernels of a Hopper, on the CPU
//!     cargo run --release --example attention -- cuda 8 4096 20              batch, length, calls

#![allow(clippy::print_stdout)]

use kernwright::{Attention, Device, DeviceKind, Error, bf16};
use std::process::ExitCode;

#[derive(Attention)]
#[attention(heads = 12, kv_heads = 4, head_dim = 64, causal, window = 256, softcap = 30.0, dtype = bf16, layout = bshd)]
#[target(sm_80, sm_86, sm_89, sm_90a)]
struct Seed;

/// What was asked for.
struct Asked {
    device: DeviceKind,
    batch: usize,
    length: usize,
    calls: usize,
}

/// Reads the command line: each word has a default.
fn asked() -> Result<Asked, String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: usize| match words.get(index) {
        None => Ok(default),
        Some(word) => {
            word.parse().map_err(|_| format!("batch, length and calls are numbers, found `{word}`"))
        }
    };
    let device = words.first().map_or(Ok(DeviceKind::Auto), |word| word.parse())?;
    Ok(Asked { device, batch: number(1, 1)?, length: number(2, 150)?, calls: number(3, 1)?.max(1) })
}

/// Numbers between -1 and 1 that look random.
fn numbers(seed: u64, n: usize) -> Vec<bf16> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| bf16::from_f32(next())).collect()
}

/// The output and the gradients, on one device.
fn compute(device: &Device, asked: &Asked, calls: usize) -> Result<[Vec<bf16>; 4], Error> {
    let &Asked { batch, length, .. } = asked;
    let attention = Seed::compile(device, batch, length)?;
    let shape = attention.shape();
    let (of_queries, of_keys) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let upload = |seed, width: usize| device.upload(&numbers(seed, batch * length * width));
    let (q, k, v) = (upload(1, of_queries)?, upload(2, of_keys)?, upload(3, of_keys)?);
    let d_out = upload(4, of_queries)?;

    // Calls return before the device is done; reading waits.
    let (mut out, mut lse) = attention.forward(&q, &k, &v)?;
    let mut gradients = attention.backward(&d_out, &q, &k, &v, &out, &lse)?;
    attention.time(true);
    for _ in 0..calls {
        (out, lse) = attention.forward(&q, &k, &v)?;
        gradients = attention.backward(&d_out, &q, &k, &v, &out, &lse)?;
    }
    let inferred = attention.infer(&q, &k, &v)?;

    let statistics = attention.statistics()?;
    println!("{}: workspace {} bytes", device.description(), attention.workspace_bytes());
    for (name, figures) in [
        ("forward", statistics.forward),
        ("inference", statistics.inference),
        ("backward", statistics.backward),
    ] {
        let milliseconds = figures.seconds_per_call().unwrap_or_default() * 1e3;
        println!(
            "  {name:9} {milliseconds:9.4} ms {:9.3} TFLOP/s {:9.2} GB/s",
            figures.tflops().unwrap_or_default(),
            figures.gigabytes_per_second().unwrap_or_default()
        );
    }
    let out = out.download()?;
    assert!(out == inferred.download()?, "inference gives the bits of training");
    let [d_q, d_k, d_v] = gradients;
    Ok([out, d_q.download()?, d_k.download()?, d_v.download()?])
}

fn run(asked: &Asked) -> Result<bool, Error> {
    let device = Device::open_for(&asked.device, &Seed::targets()?)?;
    let found = compute(&device, asked, asked.calls)?;
    let wanted = compute(&Device::open(&DeviceKind::Cpu)?, asked, 1)?;
    let mut is_close = true;
    for ((name, found), wanted) in ["out", "d_q", "d_k", "d_v"].into_iter().zip(&found).zip(&wanted) {
        let greatest = wanted.iter().map(|value| value.to_f32().abs()).fold(0.0, f32::max);
        let differences =
            found.iter().zip(wanted).map(|(found, wanted)| (found.to_f32() - wanted.to_f32()).abs());
        // NaN counts as far away.
        let furthest = differences.fold(0.0, |most: f32, one| if one <= most { most } else { one });
        println!("{name:4} off by {:.4} of the greatest at most", furthest / greatest);
        is_close &= furthest <= 0.03 * greatest;
    }
    Ok(is_close)
}

fn main() -> ExitCode {
    let result = asked().and_then(|asked| run(&asked).map_err(|error| error.to_string()));
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("error: the results differ from the CPU's");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
