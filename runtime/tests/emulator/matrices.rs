//! Tensor-core products and the loads that feed them, against whole matrices in Rust. Elements are small whole numbers,
//! so that every sum is exact and its order does not matter; rounding has its own test.

use super::setup::{Bench, options, random};
use kernwright_runtime::emulator::Word;

/// A whole number of -8 to 7 as bits of a type.
type Encode = fn(i32) -> u32;

pub(crate) fn bf16(value: i32) -> u32 {
    (value as f32).to_bits() >> 16
}

pub(crate) fn fp16(value: i32) -> u32 {
    if value == 0 {
        return 0;
    }
    let bits = (value as f32).to_bits();
    bits >> 16 & 0x8000 | ((bits >> 23 & 0xff) - 112) << 10 | bits >> 13 & 0x3ff
}

/// With bits that tensor cores drop.
fn tf32(value: i32) -> u32 {
    (value as f32).to_bits() | 0xfff
}

/// What a lane's registers hold: rows and columns of the lower and the upper half of each.
struct Form {
    name: &'static str,
    call: &'static str,
    depth: usize,
    encode: Encode,
    is_wide: bool,
}

const FORMS: [Form; 5] = [
    Form { name: "bf16 k16", call: "mma_m16n8k16<bf16>(d, a, b);", depth: 16, encode: bf16, is_wide: false },
    Form { name: "fp16 k16", call: "mma_m16n8k16<fp16>(d, a, b);", depth: 16, encode: fp16, is_wide: false },
    Form {
        name: "bf16 k8",
        call: "mma_m16n8k8<bf16>(d, half, b[0]);",
        depth: 8,
        encode: bf16,
        is_wide: false,
    },
    Form {
        name: "fp16 k8",
        call: "mma_m16n8k8<fp16>(d, half, b[0]);",
        depth: 8,
        encode: fp16,
        is_wide: false,
    },
    Form { name: "tf32 k8", call: "mma_m16n8k8_tf32(d, a, b);", depth: 8, encode: tf32, is_wide: true },
];

#[test]
fn products_have_the_fragments_of_the_instruction_set() {
    let Some(options) = options("tensor-core products") else { return };
    for form in &FORMS {
        let mut bench = Bench::new(
            options.clone(),
            &format!(
                "extern \"C\" __global__ void kernel(float* out, const u32* left, const u32* right) {{
                    float d[4];
                    u32 a[4];
                    u32 b[2];
                    for (i32 i = 0; i < 4; ++i) d[i] = out[4 * threadIdx.x + i];
                    for (i32 i = 0; i < 4; ++i) a[i] = left[4 * threadIdx.x + i];
                    for (i32 i = 0; i < 2; ++i) b[i] = right[2 * threadIdx.x + i];
                    const u32 half[2] = {{a[0], a[1]}};
                    (void)half;
                    {}
                    for (i32 i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
                }}",
                form.call
            ),
        );
        let small =
            |seed| -> Vec<i32> { random(256, seed).iter().map(|bits| (bits >> 28) as i32 - 8).collect() };
        let (a, b, d) = (small(1), small(2), small(3));
        // a is 16 x depth, b depth x 8, d 16 x 8, all row-major here.
        let k = form.depth;
        let a_at = |row: usize, column: usize| (form.encode)(a[row * k + column]);
        let b_at = |row: usize, column: usize| (form.encode)(b[row * 8 + column]);
        let (mut left, mut right, mut out) = (vec![0u32; 128], vec![0u32; 64], vec![0f32; 128]);
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4);
            if form.is_wide {
                let fragment = [(g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)];
                for (i, (row, column)) in fragment.into_iter().enumerate() {
                    left[4 * lane + i] = a_at(row, column);
                }
                right[2 * lane] = b_at(t, g);
                right[2 * lane + 1] = b_at(t + 4, g);
            } else {
                let fragment = [(g, 2 * t), (g + 8, 2 * t), (g, 2 * t + 8), (g + 8, 2 * t + 8)];
                for (i, (row, column)) in fragment.into_iter().enumerate().take(k / 4) {
                    left[4 * lane + i] = a_at(row, column) | a_at(row, column + 1) << 16;
                }
                for i in 0..k / 8 {
                    let row = 2 * t + 8 * i;
                    right[2 * lane + i] = b_at(row, g) | b_at(row + 1, g) << 16;
                }
            }
            let fragment = [(g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1)];
            for (i, (row, column)) in fragment.into_iter().enumerate() {
                out[4 * lane + i] = d[row * 8 + column] as f32;
            }
        }
        let out = bench.input("out", &out);
        let (left, right) = (bench.input("left", &left), bench.input("right", &right));
        bench.run([1, 1, 1], 32, 0, &[Word::Address(out), Word::Address(left), Word::Address(right)]);
        let found = bench.read::<f32>(out, 128);
        for row in 0..16 {
            for column in 0..8 {
                let products = (0..k).map(|i| a[row * k + i] * b[i * 8 + column]).sum::<i32>();
                let wanted = d[row * 8 + column] + products;
                let lane = row % 8 * 4 + column / 2;
                let at = 4 * lane + row / 8 * 2 + column % 2;
                assert_eq!(found[at], wanted as f32, "{}: row {row}, column {column}", form.name);
            }
        }
    }
}

#[test]
fn ldmatrix_spreads_rows_or_columns() {
    let Some(options) = options("ldmatrix") else { return };
    let mut bench = Bench::new(
        options,
        "extern \"C\" __global__ void kernel(u32* out, const u16* in) {
            u16* const room = reinterpret_cast<u16*>(shared_memory());
            const u32 lane = threadIdx.x;
            for (i32 i = 0; i < 8; ++i) room[8 * lane + i] = in[8 * lane + i];
            warp_barrier();
            u32 four[4];
            u32 two[2];
            u32* to = out + 12 * lane;
            // Rows in another order: the address counts, not the lane.
            const u16* const row = room + 8 * (lane ^ 3);
            ldmatrix_x4(four, row);
            for (i32 i = 0; i < 4; ++i) to[i] = four[i];
            ldmatrix_x4_transposed(four, row);
            for (i32 i = 0; i < 4; ++i) to[4 + i] = four[i];
            ldmatrix_x2(two, lane < 16 ? row : nullptr);
            to[8] = two[0];
            to[9] = two[1];
            ldmatrix_x2_transposed(two, lane < 16 ? row : nullptr);
            to[10] = two[0];
            to[11] = two[1];
        }",
    );
    let values: Vec<u16> = (0..256).collect();
    let (out, input) = (bench.output::<u32>("out", 384), bench.input("in", &values));
    bench.run([1, 1, 1], 32, 512, &[Word::Address(out), Word::Address(input)]);
    let found = bench.read::<u32>(out, 384);
    let element =
        |matrix: usize, row: usize, column: usize| u32::from(values[8 * ((8 * matrix + row) ^ 3) + column]);
    for lane in 0..32 {
        let (g, t) = (lane / 4, 2 * (lane % 4));
        for matrix in 0..4 {
            let plain = element(matrix, g, t) | element(matrix, g, t + 1) << 16;
            let transposed = element(matrix, t, g) | element(matrix, t + 1, g) << 16;
            assert_eq!(found[12 * lane + matrix], plain, "x4, lane {lane}, matrix {matrix}");
            assert_eq!(
                found[12 * lane + 4 + matrix],
                transposed,
                "x4 transposed, lane {lane}, matrix {matrix}"
            );
            if matrix < 2 {
                assert_eq!(found[12 * lane + 8 + matrix], plain, "x2, lane {lane}, matrix {matrix}");
                assert_eq!(found[12 * lane + 10 + matrix], transposed, "x2 transposed, {lane}, {matrix}");
            }
        }
    }
}

/// A product of square matrices: 128 threads own a 64 x 64 tile of d; b is stored by its columns.
const GEMM: &str = "
constexpr i32 TILE = 64;
constexpr i32 DEPTH = 32;
constexpr i32 PITCH = DEPTH + 8;
extern \"C\" __global__ void __launch_bounds__(128) kernel(float* d, const bf16* a, const bf16* b, i32 n) {
    bf16* const left = reinterpret_cast<bf16*>(shared_memory());
    bf16* const right = left + TILE * PITCH;
    const i32 thread = static_cast<i32>(threadIdx.x);
    const i32 first_row = static_cast<i32>(blockIdx.y) * TILE;
    const i32 first_column = static_cast<i32>(blockIdx.x) * TILE;
    const i32 lane = lane_index();
    float sum[8][4] = {};
    for (i32 depth = 0; depth < n; depth += DEPTH) {
        for (i32 part = thread; part < TILE * DEPTH / 8; part += 128) {
            const i32 row = part / (DEPTH / 8);
            const i32 column = part % (DEPTH / 8) * 8;
            cp_async_16(left + row * PITCH + column, a + (first_row + row) * n + depth + column);
            cp_async_16(right + row * PITCH + column, b + (first_column + row) * n + depth + column);
        }
        cp_async_commit();
        cp_async_wait<0>();
        // Guards `left` and `right`: they are whole.
        barrier();
        for (i32 k = 0; k < DEPTH; k += 16) {
            u32 fragment[4];
            ldmatrix_x4(fragment, left + (warp_index() * 16 + lane % 16) * PITCH + k + lane / 16 * 8);
            for (i32 column = 0; column < 8; ++column) {
                u32 other[2];
                ldmatrix_x2(other, right + (column * 8 + lane % 8) * PITCH + k + lane / 8 % 2 * 8);
                mma_m16n8k16<bf16>(sum[column], fragment, other);
            }
        }
        // Guards `left` and `right`: nobody reads them any more.
        barrier();
    }
    for (i32 column = 0; column < 8; ++column) {
        for (i32 i = 0; i < 4; ++i) {
            const i32 row = first_row + warp_index() * 16 + lane / 4 + i / 2 * 8;
            d[row * n + first_column + column * 8 + lane % 4 * 2 + i % 2] = sum[column][i];
        }
    }
}";

#[test]
fn a_whole_product_is_right_and_the_same_for_any_number_of_workers() {
    let Some(options) = options("a whole product") else { return };
    const N: usize = 256;
    let narrow = |seed| -> Vec<u16> {
        let draw = |bits: &u32| (((*bits >> 8) as f32 / 16_777_216.0 - 0.5).to_bits() >> 16) as u16;
        random(N * N, seed).iter().map(draw).collect()
    };
    let (a, b) = (narrow(1), narrow(2));
    let wide = |bits: u16| f64::from(f32::from_bits(u32::from(bits) << 16));
    let mut results = Vec::new();
    for (workers, checks) in [(1, true), (2, true), (5, true), (1, false), (3, false)] {
        let mut bench =
            Bench::new(kernwright_runtime::emulator::Options { workers, checks, ..options.clone() }, GEMM);
        let (left, right) = (bench.input("a", &a), bench.input("b", &b));
        let d = bench.output::<f32>("d", N * N);
        let arguments = [Word::Address(d), Word::Address(left), Word::Address(right), Word::I32(N as i32)];
        bench.run([4, 4, 1], 128, 2 * 64 * 40 * 2, &arguments);
        results.push(bench.read::<f32>(d, N * N));
    }
    for (index, result) in results.iter().enumerate() {
        let first = results[0].iter().map(|value| value.to_bits());
        assert!(first.eq(result.iter().map(|value| value.to_bits())), "run {index} differs from the first");
    }
    for row in 0..N {
        for column in 0..N {
            let wanted: f64 = (0..N).map(|k| wide(a[row * N + k]) * wide(b[column * N + k])).sum();
            let found = f64::from(results[0][row * N + column]);
            assert!((found - wanted).abs() < 1e-4, "{row}, {column}: {found} {wanted}");
        }
    }
}
