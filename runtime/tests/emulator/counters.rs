//! What is counted, on a kernel whose counts are known.

use super::setup::{Bench, options};
use kernwright_runtime::emulator::Word;

/// Two warps and two blocks: every line is passed four times or a multiple of that.
const KERNEL: &str = "#line 1 \"counted.cu\"
extern \"C\" __global__ void kernel(float* out, const float* in) {
    float* const room = reinterpret_cast<float*>(shared_memory());
    const i32 i = static_cast<i32>(threadIdx.x);
    for (i32 k = i; k < 2048; k += 64) room[k] = 1.0f;
    float sum = in[i] + in[2 * i] + in[0];
    barrier();
    sum += room[i / 4];
    sum += room[i * 32];
    sum += room[i * 2 % 64];
    const Words4 rows = load_16(room + 32 * i);
    const Words4 spread = load_16(room + 32 * i + 4 * (i % 8));
    u32 fragment[4];
    ldmatrix_x4(fragment, room + 32 * lane_index());
    ldmatrix_x4(fragment, room + 32 * lane_index() + 4 * (i % 8));
    float d[4] = {};
    const u32 b[2] = {};
    for (i32 k = 0; k < 3; ++k) mma_m16n8k16<bf16>(d, fragment, b);
    store_8(out + 2 * i, load_8(room + 2 * i));
    out[128 + i] = sum + d[0] + float_of_bits(rows.word[0] ^ spread.word[0]);
    for (i32 k = 0; k < i % 3; ++k) out[i + 64 * k] = 1.0f;
}";

/// Line, function, what; then times, units, least units.
const EXPECTED: &str = "\
4 - SharedMemory 128 128 128
5 - GlobalMemory 12 52 36
6 barrier Barriers 4 4 4
7 - SharedMemory 4 4 4
8 - SharedMemory 4 128 4
9 - SharedMemory 4 8 4
10 load_16 SharedMemory 4 128 16
11 load_16 SharedMemory 4 16 16
13 ldmatrix_x4 SharedMemory 4 128 16
14 ldmatrix_x4 SharedMemory 4 16 16
17 mma_m16n8k16 Products 12 12 12
18 load_8 SharedMemory 4 8 8
18 store_8 GlobalMemory 4 32 32
19 - GlobalMemory 4 16 16
20 - GlobalMemory 8 32 20
";

#[test]
fn conflicts_sectors_products_and_barriers_are_counted_by_line() {
    let Some(options) = options("counters") else { return };
    let mut bench = Bench::new(options, KERNEL);
    let (input, out) = (bench.input("in", &[1.0f32; 128]), bench.output::<f32>("out", 256));
    let arguments = [Word::Address(out), Word::Address(input)];
    bench.run([2, 1, 1], 64, 8192, &arguments);
    assert_eq!(bench.emulator.counters(), [], "nothing is counted unasked");
    bench.emulator.count(true);
    bench.run([2, 1, 1], 64, 8192, &arguments);
    let mut found = String::new();
    for one in bench.emulator.counters() {
        let function = one.function.as_deref().unwrap_or("-");
        found +=
            &format!("{} {function} {:?} {} {} {}\n", one.line, one.what, one.requests, one.units, one.least);
    }
    assert_eq!(found, EXPECTED);
}
