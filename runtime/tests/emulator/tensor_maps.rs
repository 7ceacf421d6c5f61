//! Copies of TMA against the tensors they come from: where each element lies, swizzled or not, and what becomes of those
//! outside. The patterns of the swizzles are written down as the PTX ISA shows them.

use super::setup::{Bench, options};
use kernwright_plan::dtype::Dtype;
use kernwright_plan::tensor_map::{Dimension, Swizzle, TensorLayout};
use kernwright_runtime::emulator::Word;

/// Which 16-byte word of 128 bytes lies at each place, line by line until it repeats.
fn pattern(swizzle: Swizzle) -> &'static [[usize; 8]] {
    const LINES: [[usize; 8]; 8] = [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [1, 0, 3, 2, 5, 4, 7, 6],
        [2, 3, 0, 1, 6, 7, 4, 5],
        [3, 2, 1, 0, 7, 6, 5, 4],
        [4, 5, 6, 7, 0, 1, 2, 3],
        [5, 4, 7, 6, 1, 0, 3, 2],
        [6, 7, 4, 5, 2, 3, 0, 1],
        [7, 6, 5, 4, 3, 2, 1, 0],
    ];
    match swizzle {
        Swizzle::None => &LINES[..1],
        Swizzle::Bytes32 => &LINES[..2],
        Swizzle::Bytes64 => &LINES[..4],
        Swizzle::Bytes128 => &LINES,
    }
}

/// Where byte `at` of unswizzled memory is found.
pub(crate) fn swizzled(at: usize, swizzle: Swizzle) -> usize {
    let lines = pattern(swizzle);
    let (line, word) = (at / 128, at / 16 % 8);
    let place = lines[line % lines.len()].iter().position(|&one| one == word).expect("a permutation");
    line * 128 + place * 16 + at % 16
}

const SIZES: [u64; 5] = [100, 7, 3, 2, 2];
const STRIDES: [u64; 5] = [1, 104, 744, 2240, 4488];
const LENGTH: usize = 2 * 4488;

/// A tensor of 2-byte elements and a box.
fn layout(rank: usize, extents: [u32; 5], swizzle: Swizzle) -> TensorLayout {
    let dimension = |i: usize| Dimension { size: SIZES[i], stride: STRIDES[i], extent: extents[i] };
    TensorLayout::new(Dtype::Bf16, swizzle, &(0..rank).map(dimension).collect::<Vec<_>>())
}

const BOXES: [(usize, [u32; 5], Swizzle); 6] = [
    (2, [24, 5, 1, 1, 1], Swizzle::None),
    (3, [64, 4, 2, 1, 1], Swizzle::Bytes128),
    (3, [32, 3, 3, 1, 1], Swizzle::Bytes64),
    (4, [16, 5, 2, 2, 1], Swizzle::Bytes32),
    (5, [64, 2, 2, 2, 2], Swizzle::Bytes128),
    (5, [8, 3, 1, 2, 1], Swizzle::None),
];

/// Inside; over the end of the first dimensions; before the beginning.
const PLACES: [[i32; 5]; 4] = [[8, 1, 0, 0, 0], [72, 5, 2, 1, 1], [-5, -2, -1, 0, -1], [99, 6, 2, 1, 0]];

/// For each element of a box: its place in it, and its place in the tensor if it has one.
fn elements(rank: usize, extents: [u32; 5], at: [i32; 5]) -> Vec<Option<usize>> {
    let count: u32 = extents[..rank].iter().product();
    let of = |mut index: u32| {
        let mut place = 0;
        for i in 0..rank {
            let coordinate = at[i] + (index % extents[i]) as i32;
            index /= extents[i];
            if coordinate < 0 || coordinate as u64 >= SIZES[i] {
                return None;
            }
            place += coordinate as usize * STRIDES[i] as usize;
        }
        Some(place)
    };
    (0..count).map(of).collect()
}

fn coordinates(rank: usize) -> String {
    ["x", "y", "z", "u", "v"][..rank].join(", ")
}

fn words(at: [i32; 5]) -> Vec<Word> {
    at.into_iter().map(Word::I32).collect()
}

#[test]
fn a_box_arrives_swizzled_with_zeros_for_what_is_outside() {
    let Some(options) = options("loads of boxes") else { return };
    let content: Vec<u16> = (0..LENGTH).map(|i| 1 + i as u16).collect();
    for (rank, extents, swizzle) in BOXES {
        let layout = layout(rank, extents, swizzle);
        let mut bench = Bench::new(
            options.clone(),
            &format!(
                "extern \"C\" __global__ void kernel(u16* out, const __grid_constant__ TensorMap map, i32 x, i32 y, i32 z, i32 u, i32 v, i32 bytes) {{
                    Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared_memory());
                    u16* const room = reinterpret_cast<u16*>(shared_memory() + 1024);
                    if (threadIdx.x == 0) {{
                        mbarrier_init(full, 1);
                        fence_mbarrier_init();
                        mbarrier_expect_bytes_and_arrive(full, bytes);
                        tma_prefetch(map);
                        tma_load<CacheHint::evict_last>(room, map, full, {});
                    }}
                    barrier();
                    mbarrier_wait(full, 0);
                    (void)z; (void)u; (void)v;
                    for (i32 i = threadIdx.x; i < bytes / 2; i += 64) out[i] = room[i];
                }}",
                coordinates(rank)
            ),
        );
        let tensor = bench.input("tensor", &content);
        let count = layout.box_bytes() / 2;
        let out = bench.output::<u16>("out", count);
        for at in PLACES {
            let mut arguments = vec![Word::Address(out), Word::TensorMap { at: tensor, layout }];
            arguments.extend(words(at));
            arguments.push(Word::I32(layout.box_bytes() as i32));
            bench.run([1, 1, 1], 64, 64 << 10, &arguments);
            let found = bench.read::<u16>(out, count);
            for (index, from) in elements(rank, extents, at).into_iter().enumerate() {
                let wanted = from.map_or(0, |from| content[from]);
                let place = swizzled(2 * index, swizzle) / 2;
                assert_eq!(found[place], wanted, "{extents:?} {swizzle:?} at {at:?}, element {index}");
            }
        }
    }
}

#[test]
fn a_stored_box_changes_what_is_inside_and_nothing_else() {
    let Some(options) = options("stores of boxes") else { return };
    for (rank, extents, swizzle) in BOXES {
        let layout = layout(rank, extents, swizzle);
        let mut bench = Bench::new(
            options.clone(),
            &format!(
                "extern \"C\" __global__ void kernel(const u16* in, const __grid_constant__ TensorMap map, i32 x, i32 y, i32 z, i32 u, i32 v, i32 bytes) {{
                    u16* const room = reinterpret_cast<u16*>(shared_memory());
                    for (i32 i = threadIdx.x; i < bytes / 2; i += 64) room[i] = in[i];
                    fence_proxy_async();
                    barrier();
                    (void)z; (void)u; (void)v;
                    if (threadIdx.x == 0) {{
                        tma_store(map, room, {});
                        bulk_commit();
                        bulk_wait<0>();
                    }}
                }}",
                coordinates(rank)
            ),
        );
        let count = layout.box_bytes() / 2;
        let sent: Vec<u16> = (0..count).map(|i| 20_000 + i as u16).collect();
        let input = bench.input("in", &sent);
        for at in PLACES {
            let mut wanted: Vec<u16> = (0..LENGTH).map(|i| 1 + i as u16).collect();
            let tensor = bench.input("tensor", &wanted);
            let mut arguments = vec![Word::Address(input), Word::TensorMap { at: tensor, layout }];
            arguments.extend(words(at));
            arguments.push(Word::I32(layout.box_bytes() as i32));
            bench.run([1, 1, 1], 64, 64 << 10, &arguments);
            for (index, to) in elements(rank, extents, at).into_iter().enumerate() {
                if let Some(to) = to {
                    wanted[to] = sent[swizzled(2 * index, swizzle) / 2];
                }
            }
            assert_eq!(bench.read::<u16>(tensor, LENGTH), wanted, "{extents:?} {swizzle:?} at {at:?}");
        }
    }
}

#[test]
fn plain_bytes_come_go_and_are_added() {
    let Some(options) = options("bulk copies") else { return };
    let mut bench = Bench::new(
        options,
        "extern \"C\" __global__ void kernel(float* out, float* sums, const float* in) {
            Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared_memory());
            float* const room = reinterpret_cast<float*>(shared_memory() + 128);
            if (threadIdx.x == 0) {
                mbarrier_init(full, 1);
                fence_mbarrier_init();
                mbarrier_expect_bytes(full, 512);
                bulk_load(room, in + 4, 256, full);
                bulk_load(room + 64, in + 128, 256, full);
                mbarrier_arrive(full);
                mbarrier_wait(full, 0);
                bulk_store(out + 4, room, 512);
                bulk_commit();
                bulk_add(sums, room + 64, 256);
                bulk_add(sums, room, 64);
                bulk_commit();
                bulk_wait_read<1>();
                bulk_wait_read<0>();
            }
        }",
    );
    let values: Vec<f32> = (0..192).map(|i| i as f32).collect();
    let input = bench.input("in", &values);
    let out = bench.input("out", &[-1.0f32; 136]);
    let sums = bench.input("sums", &[0.5f32; 64]);
    bench.run([3, 1, 1], 32, 1024, &[out, sums, input].map(Word::Address));
    let found = bench.read::<f32>(out, 136);
    assert_eq!(found[..4], [-1.0; 4]);
    assert_eq!(found[4..68], values[4..68]);
    assert_eq!(found[68..132], values[128..]);
    assert_eq!(found[132..], [-1.0; 4]);
    for (i, found) in bench.read::<f32>(sums, 64).into_iter().enumerate() {
        let once = values[128 + i] + if i < 16 { values[4 + i] } else { 0.0 };
        assert_eq!(found, 0.5 + 3.0 * once, "three blocks, {i}");
    }
}

#[test]
fn tensors_that_no_gpu_takes_are_refused_before_anything_runs() {
    let Some(options) = options("tensor maps") else { return };
    let kernel =
        "extern \"C\" __global__ void kernel(const __grid_constant__ TensorMap map) { tma_prefetch(map); }";
    let mut bench = Bench::new(options, kernel);
    let tensor = bench.input("tensor", &[0u16; 256]);
    let layout = layout(2, [16, 4, 1, 1, 1], Swizzle::Bytes32);
    let mut said = |argument| match bench.try_run([1, 1, 1], 32, 0, &[argument]) {
        Ok(()) => "well".to_owned(),
        Err(error) => error.to_string(),
    };
    assert_eq!(said(Word::TensorMap { at: tensor, layout }), "well");
    assert_eq!(said(Word::I32(1)), "`kernel` takes (TensorMap), found (i32)");
    let refused = said(Word::TensorMap { at: tensor.after(2), layout });
    assert!(
        refused.starts_with("`kernel`: the address of a tensor map must be a multiple of 16, found"),
        "{refused}"
    );
    let wide = TensorLayout { dimensions: [Dimension { extent: 300, ..layout.dimensions[0] }; 5], ..layout };
    assert_eq!(
        said(Word::TensorMap { at: tensor, layout: wide }),
        "`kernel`: the box of dimension 0 of a tensor map must be 1 to 256, found `300`"
    );
}
