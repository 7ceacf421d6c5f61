//! Products of a warpgroup against whole matrices, with operands laid out as the PTX ISA draws them: nested shapes with a
//! stride each, exchanged by the swizzle's pattern. Elements are small whole numbers, so that every sum is exact.

use super::matrices::{bf16, fp16};
use super::setup::{Bench, options, random};
use super::tensor_maps::swizzled;
use kernwright_plan::tensor_map::Swizzle;
use kernwright_runtime::emulator::Word;

/// Where an index of nested shapes lies: the first shape runs fastest.
fn nested(mut index: usize, shape: &[(usize, usize)]) -> usize {
    let mut place = 0;
    for &(size, stride) in shape {
        place += index % size * stride;
        index /= size;
    }
    place
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Major {
    K,
    Mn,
}

/// An operand of `rows` (of m, or of n) by 16 of k.
#[derive(Clone, Copy, Debug)]
struct Operand {
    swizzle: Swizzle,
    major: Major,
    leading: usize,
    stride: usize,
}

impl Operand {
    /// The byte at which an element lies, from the matrix's first one.
    fn place(&self, row: usize, k: usize) -> usize {
        const MANY: usize = 1 << 20;
        let Operand { swizzle, major, leading, stride } = *self;
        // In 16-byte words, of 8 elements: shapes and strides of the canonical layouts.
        let (leading, stride) = (leading / 16, stride / 16);
        let span = swizzle.row_bytes().map_or(1, |bytes| bytes as usize / 16);
        let (element, word) = match (major, swizzle) {
            (Major::K, Swizzle::None) => {
                (k % 8, nested(row, &[(8, 1), (MANY, stride)]) + nested(k / 8, &[(2, leading)]))
            }
            (Major::K, _) => (k % 8, nested(row, &[(8, span), (MANY, stride)]) + k / 8),
            (Major::Mn, Swizzle::None) => {
                (row % 8, nested(row / 8, &[(MANY, stride)]) + nested(k, &[(8, 1), (2, leading)]))
            }
            (Major::Mn, _) => (
                row % 8,
                nested(row / 8, &[(span, 1), (MANY, leading)]) + nested(k, &[(8, span), (2, stride)]),
            ),
        };
        swizzled(16 * word + 2 * element, swizzle)
    }

    fn words(&self) -> [Word; 3] {
        let number = match self.swizzle {
            Swizzle::None => 0,
            Swizzle::Bytes128 => 1,
            Swizzle::Bytes64 => 2,
            Swizzle::Bytes32 => 3,
        };
        [number, self.leading as i32, self.stride as i32].map(Word::I32)
    }
}

/// Layouts of both kinds with every swizzle; gaps where the form allows them.
fn operands(rows: usize) -> Vec<Operand> {
    let mut all = vec![
        Operand { swizzle: Swizzle::None, major: Major::K, leading: 128, stride: 256 },
        Operand { swizzle: Swizzle::None, major: Major::K, leading: rows * 16 + 128, stride: 128 },
        Operand { swizzle: Swizzle::None, major: Major::Mn, leading: 128, stride: 272 },
    ];
    for (swizzle, bytes) in [(Swizzle::Bytes32, 32), (Swizzle::Bytes64, 64), (Swizzle::Bytes128, 128)] {
        all.push(Operand { swizzle, major: Major::K, leading: 16, stride: 8 * bytes });
        all.push(Operand { swizzle, major: Major::K, leading: 16, stride: 16 * bytes });
        let wide = Operand { swizzle, major: Major::Mn, leading: 16 * bytes, stride: 8 * bytes };
        all.push(wide);
        all.push(Operand { leading: 8 * bytes, stride: 8 * bytes * rows.div_ceil(bytes / 2), ..wide });
    }
    all
}

fn kernel(width: usize, dtype: &str, a: Major, b: Major) -> String {
    let word = |major| if major == Major::K { "k" } else { "mn" };
    format!(
        "extern \"C\" __global__ void kernel(float* out, const u16* image, const u32* registers, i32 a_swizzle, i32 a_leading, i32 a_stride, i32 b_swizzle, i32 b_leading, i32 b_stride) {{
            u8* const room = shared_memory();
            for (i32 i = threadIdx.x; i < 98304 / 16; i += 128) store_16(reinterpret_cast<u16*>(room) + 8 * i, load_16(image + 8 * i));
            fence_proxy_async();
            barrier();
            const u64 a = wgmma_matrix(room, static_cast<Swizzle>(a_swizzle), a_leading, a_stride);
            const u64 b = wgmma_matrix(room + 32768, static_cast<Swizzle>(b_swizzle), b_leading, b_stride);
            float d[{width} / 2];
            float e[{width} / 2];
            u32 own[4];
            for (i32 i = 0; i < {width} / 2; ++i) e[i] = static_cast<float>(i);
            for (i32 i = 0; i < 4; ++i) own[i] = registers[4 * threadIdx.x + i];
            wgmma_fence(d, e);
            wgmma_m64k16<{dtype}, Major::{}, Major::{}>(d, a, b, false);
            wgmma_commit();
            wgmma_m64k16<{dtype}, Major::{}>(e, own, b, true);
            wgmma_m64k16<{dtype}, Major::{}, Major::{}>(e, a, b, true);
            wgmma_commit();
            wgmma_wait<1>(d);
            for (i32 i = 0; i < {width} / 2; ++i) out[{width} / 2 * threadIdx.x + i] = d[i];
            wgmma_wait<0>(e);
            for (i32 i = 0; i < {width} / 2; ++i) out[{width} / 2 * (128 + threadIdx.x) + i] = e[i];
        }}",
        word(a),
        word(b),
        word(b),
        word(a),
        word(b)
    )
}

/// Row and column of register `i` of a thread's results.
fn of_result(thread: usize, i: usize) -> (usize, usize) {
    let (warp, group, within) = (thread / 32, thread % 32 / 4, thread % 4);
    (16 * warp + group + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * within + i % 2)
}

#[test]
fn products_have_every_layout_and_the_fragments_of_the_instruction_set() {
    let Some(options) = options("products of warpgroups") else { return };
    let small = |count, seed| -> Vec<i32> {
        random(count, seed).iter().map(|bits| (bits >> 28) as i32 - 8).collect()
    };
    for (number, width) in [8, 24, 80, 128, 256].into_iter().enumerate() {
        let (dtype, encode) =
            if number % 2 == 0 { ("bf16", bf16 as fn(i32) -> u32) } else { ("fp16", fp16 as fn(i32) -> u32) };
        let (left, right, own) = (small(64 * 16, 1), small(16 * width, 2), small(64 * 16, 3));
        for (a_major, b_major) in
            [(Major::K, Major::K), (Major::K, Major::Mn), (Major::Mn, Major::K), (Major::Mn, Major::Mn)]
        {
            let mut bench = Bench::new(options.clone(), &kernel(width, dtype, a_major, b_major));
            let registers: Vec<u32> = (0..512)
                .map(|i| {
                    let (thread, i) = (i / 4, i % 4);
                    let row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (i % 2);
                    let k = 2 * (thread % 4) + 8 * (i / 2);
                    encode(own[16 * row + k]) | encode(own[16 * row + k + 1]) << 16
                })
                .collect();
            let registers = bench.input("registers", &registers);
            let of = |rows: usize, major: Major| {
                operands(rows).into_iter().filter(move |one| one.major == major).collect::<Vec<_>>()
            };
            let (all_a, all_b) = (of(64, a_major), of(width, b_major));
            for number in 0..all_a.len().max(all_b.len()) {
                let (a, b) = (all_a[number % all_a.len()], all_b[number % all_b.len()]);
                let mut image = vec![0xffffu16; 98304 / 2];
                for (row, k) in (0..64).flat_map(|row| (0..16).map(move |k| (row, k))) {
                    image[a.place(row, k) / 2] = encode(left[16 * row + k]) as u16;
                }
                for (column, k) in (0..width).flat_map(|row| (0..16).map(move |k| (row, k))) {
                    image[(32768 + b.place(column, k)) / 2] = encode(right[width * k + column]) as u16;
                }
                let image = bench.input("image", &image);
                let out = bench.output::<f32>("out", 128 * width);
                let mut arguments = vec![Word::Address(out), Word::Address(image), Word::Address(registers)];
                arguments.extend(a.words());
                arguments.extend(b.words());
                bench.run([1, 1, 1], 128, 98304, &arguments);
                let found = bench.read::<f32>(out, 128 * width);
                let product = |of: &[i32], row: usize, column: usize| -> i32 {
                    (0..16).map(|k| of[16 * row + k] * right[width * k + column]).sum()
                };
                for (thread, i) in (0..128).flat_map(|thread| (0..width / 2).map(move |i| (thread, i))) {
                    let (row, column) = of_result(thread, i);
                    let what = || format!("{width} {dtype} {a:?} {b:?}, row {row}, column {column}");
                    let wanted = product(&left, row, column);
                    assert_eq!(found[width / 2 * thread + i], wanted as f32, "{}", what());
                    let wanted = wanted + product(&own, row, column) + i as i32;
                    assert_eq!(found[width / 2 * (128 + thread) + i], wanted as f32, "{}", what());
                }
            }
        }
    }
}
