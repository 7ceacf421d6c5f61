//! Launches: what does not fit, large blocks, many blocks, faults and what comes after them.

use super::setup::{Bench, options, text};
use kernwright_runtime::emulator::{Address, Emulator, EmulatorError, Options, Word};

const SCALE: &str =
    "extern \"C\" __global__ void kernel(float* out, const float* in, i32 n, i64 stride, float factor) {
    const i32 i = static_cast<i32>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) out[i * stride] = in[i] * factor;
}";

#[test]
fn arguments_and_limits_are_checked_before_anything_runs() {
    let Some(options) = options("launch limits") else { return };
    let mut bench = Bench::new(options, SCALE);
    let (out, input) = (bench.output::<f32>("out", 64), bench.input("in", &[2.0f32; 64]));
    let right = [Word::Address(out), Word::Address(input), Word::I32(64), Word::I64(1), Word::F32(3.0)];
    let mut said =
        |grid, block, shared, arguments: &[Word]| match bench.try_run(grid, block, shared, arguments) {
            Ok(()) => "well".to_owned(),
            Err(error) => error.to_string(),
        };
    assert_eq!(
        said([1, 1, 1], 64, 0, &right[1..]),
        "`kernel` takes (pointer, pointer, i32, i64, float), found (pointer, i32, i64, float)"
    );
    let mut swapped = right;
    swapped.swap(2, 3);
    assert_eq!(
        said([1, 1, 1], 64, 0, &swapped),
        "`kernel` takes (pointer, pointer, i32, i64, float), found (pointer, pointer, i64, i32, float)"
    );
    for (grid, block, shared, wanted) in [
        ([0, 1, 1], 64, 0, "the grid's x must be 1 to 2147483647, found `0`"),
        ([1, 65_536, 1], 64, 0, "the grid's y must be 1 to 65535, found `65536`"),
        ([1, 1, 0], 64, 0, "the grid's z must be 1 to 65535, found `0`"),
        ([1, 1, 1], 0, 0, "a block's threads must be 1 to 1024, found `0`"),
        ([1, 1, 1], 1025, 0, "a block's threads must be 1 to 1024, found `1025`"),
        ([1, 1, 1], 64, 232_449, "a block's shared memory must be 0 to 232448, found `232449`"),
    ] {
        assert_eq!(said(grid, block, shared, &right), format!("`kernel`: {wanted}"));
    }
    assert_eq!(said([1, 1, 1], 64, 0, &right), "well");
    assert_eq!(bench.read::<f32>(out, 64), [6.0; 64]);
}

#[test]
fn the_largest_block_may_use_the_most_shared_memory() {
    let Some(options) = options("the largest block") else { return };
    let kernel = "extern \"C\" __global__ void __launch_bounds__(1024) kernel(u32* out, u32 words) {
        u32* const room = reinterpret_cast<u32*>(shared_memory());
        for (u32 i = threadIdx.x; i < words; i += 1024) room[i] = i;
        barrier();
        u32 sum = 0;
        for (u32 i = threadIdx.x; i < words; i += 1024) sum += room[words - 1 - i];
        const u32 total = static_cast<u32>(block_sum<1024>(static_cast<float>(sum % 1000), reinterpret_cast<float*>(room)));
        out[blockIdx.x * 1024 + threadIdx.x] = total;
    }";
    let words = 227 * 256u32;
    let sums =
        (0..1024).map(|thread| (thread..words).step_by(1024).map(|i| words - 1 - i).sum::<u32>() % 1000);
    let wanted: u32 = sums.sum();
    for workers in [1, 3] {
        let mut bench = Bench::new(Options { workers, ..options.clone() }, kernel);
        let out = bench.output::<u32>("out", 4096);
        bench.run([4, 1, 1], 1024, 4 * words, &[Word::Address(out), Word::I32(words as i32)]);
        assert_eq!(bench.read::<u32>(out, 4096), [wanted; 4096]);
    }
}

#[test]
fn block_and_thread_indices_cover_the_grid() {
    let Some(options) = options("indices") else { return };
    let kernel = "extern \"C\" __global__ void kernel(u32* out) {
        const u32 block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        atomic_add(out + block * blockDim.x + threadIdx.x, 1u + block);
    }";
    let mut bench = Bench::new(Options { workers: 3, ..options }, kernel);
    let out = bench.input("out", &[0u32; 30 * 40]);
    bench.run([5, 3, 2], 40, 0, &[Word::Address(out)]);
    let wanted: Vec<u32> = (0..30 * 40).map(|i| 1 + i / 40).collect();
    assert_eq!(bench.read::<u32>(out, 30 * 40), wanted);
}

/// A fault in blocks 3 and up: the lowest is told, whoever runs it, and the emulator goes on.
#[test]
fn the_lowest_faulty_block_is_reported_and_the_next_launch_works() {
    let Some(options) = options("faults in many blocks") else { return };
    for workers in [1, 2, 7] {
        let mut bench = Bench::new(Options { workers, ..options.clone() }, SCALE);
        let (out, input) = (bench.output::<f32>("out", 100), bench.input("in", &[1.0f32; 1024]));
        let arguments =
            |n| [Word::Address(out), Word::Address(input), Word::I32(n), Word::I64(1), Word::F32(0.5)];
        for _ in 0..3 {
            let error = bench.try_run([32, 1, 1], 32, 0, &arguments(1024)).expect_err("a fault");
            let wanted = "thread (4, 0, 0) of block (3, 0, 0), line 3: writes 4 bytes at `out` + 400, past the end of its 400 bytes";
            let said = error.to_string();
            let line = said
                .split("line ")
                .nth(1)
                .and_then(|rest| rest.split(':').next())
                .expect("a line")
                .to_owned();
            assert_eq!(said.replace(&format!("line {line}"), "line 3"), format!("`kernel`: {wanted}"));
            let text = text(SCALE);
            let at = text.lines().nth(line.parse::<usize>().expect("a number") - 1);
            assert_eq!(at.map(str::trim), Some("if (i < n) out[i * stride] = in[i] * factor;"));
            bench.run([32, 1, 1], 32, 0, &arguments(100));
        }
    }
}

#[test]
fn memory_of_the_host_s_making_is_bounded_too() {
    let Some(options) = options("memory") else { return };
    let mut blind =
        Emulator::new(Options { checks: false, ..options.clone() }).unwrap_or_else(|error| panic!("{error}"));
    let unknown = blind.allocate("x", 100).expect("room");
    assert_eq!(blind.first_unwritten(unknown, 100).expect("inside"), None, "kernels tell only when checked");
    let mut emulator = Emulator::new(options).unwrap_or_else(|error| panic!("{error}"));
    let x = emulator.allocate("x", 100).expect("room");
    assert_eq!(x.0 % 256, 0);
    assert_eq!(emulator.first_unwritten(x, 100).expect("inside"), Some(0));
    emulator.zero(x, 60).expect("inside");
    assert_eq!(emulator.first_unwritten(x, 100).expect("inside"), Some(60));
    let y = emulator.allocate("y", 100).expect("room");
    emulator.copy(y.after(10), x, 90).expect("inside");
    assert_eq!(emulator.first_unwritten(y.after(10), 90).expect("inside"), Some(60), "nobody wrote the rest");
    emulator.upload(x, &[7; 100]).expect("inside");
    emulator.discard(x.after(40), 8).expect("inside");
    let mut bytes = [0; 100];
    emulator.download(x, &mut bytes).expect("inside");
    assert_eq!((bytes[39], bytes[40], bytes[47], bytes[48]), (7, 0xff, 0xff, 7));
    let error = emulator.upload(x.after(1), &[0; 100]).expect_err("too long").to_string();
    assert_eq!(
        error,
        format!("100 bytes at {:#x} are in no live allocation: `x` has 100 bytes, this is byte 1", x.0 + 1)
    );
    emulator.free(x).expect("live");
    assert!(matches!(emulator.free(x), Err(EmulatorError::Memory { .. })));
    assert!(matches!(emulator.download(x, &mut bytes), Err(EmulatorError::Memory { .. })));
    assert!(emulator.zero(Address::NULL, 1).is_err());
}

/// The kernel of a product uses every way of waiting but named barriers.
#[test]
fn fibers_work_without_assembly_and_modules_without_optimisation() {
    let Some(options) = options("the portable fibers") else { return };
    let kernel = "extern \"C\" __global__ void kernel(float* out, const float* in) {
        float* const room = reinterpret_cast<float*>(shared_memory());
        cp_async_16(room + 4 * threadIdx.x, in + 4 * threadIdx.x);
        cp_async_commit();
        cp_async_wait<0>();
        barrier();
        const float sum = warp_sum(room[255 - threadIdx.x]);
        named_barrier(3, 64);
        out[threadIdx.x] = sum;
    }";
    let mut portable = options.clone();
    portable.compiler.arguments.push("-DKERNWRIGHT_UCONTEXT".to_owned());
    for options in [Options { debug: true, ..options }, portable] {
        let mut bench = Bench::new(options, kernel);
        let values: Vec<f32> = (0..256).map(|i| i as f32).collect();
        let (out, input) = (bench.output::<f32>("out", 64), bench.input("in", &values));
        bench.run([1, 1, 1], 64, 1024, &[Word::Address(out), Word::Address(input)]);
        let found = bench.read::<f32>(out, 64);
        let sum = |first: i32| (0..32).map(|i| (255 - first - i) as f32).sum::<f32>();
        assert_eq!((found[0], found[31], found[32], found[63]), (sum(0), sum(0), sum(32), sum(32)));
        let error = bench.try_run([1, 1, 1], 64, 1008, &[Word::Address(out), Word::Address(input)]);
        let said = error.expect_err("too little shared memory").to_string();
        assert!(
            said.ends_with("writes 16 bytes at shared memory + 1008, past the end of its 1008 bytes"),
            "{said}"
        );
    }
}
