//! Mbarriers, and what else a warpgroup has beside its products, on kernels whose results are known.

use super::setup::{Bench, options, random};
use kernwright_runtime::emulator::Word;

/// A producer warp fills a ring of tiles that two consumer warps add up, each handing its places back.
const RING: &str = "extern \"C\" __global__ void kernel(float* out, const float* in, i32 tiles) {
    Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared_memory());
    Mbarrier* const empty = full + 3;
    float* const ring = reinterpret_cast<float*>(shared_memory() + 128);
    if (threadIdx.x == 0) {
        for (i32 i = 0; i < 3; ++i) {
            mbarrier_init(full + i, 1);
            mbarrier_init(empty + i, 2);
        }
        fence_mbarrier_init();
    }
    barrier();
    if (warp_index() == 0) {
        if (elect_one()) {
            for (i32 i = 0; i < tiles; ++i) {
                mbarrier_wait(empty + i % 3, (i / 3 & 1) ^ 1);
                mbarrier_expect_bytes_and_arrive(full + i % 3, 256);
                bulk_load(ring + 64 * (i % 3), in + 64 * i, 256, full + i % 3);
            }
        }
        return;
    }
    float sum = 0.0f;
    for (i32 i = 0; i < tiles; ++i) {
        if (i % 2 == 0) {
            while (!mbarrier_try_wait(full + i % 3, i / 3 & 1)) {
            }
        } else {
            mbarrier_wait(full + i % 3, i / 3 & 1);
        }
        sum += ring[64 * (i % 3) + 95 - threadIdx.x];
        // All lanes have read the tile.
        warp_barrier();
        if (lane_index() == 0) mbarrier_arrive(empty + i % 3);
    }
    out[threadIdx.x - 32] = sum;
}";

#[test]
fn a_ring_of_tiles_passes_through_all_its_phases() {
    let Some(options) = options("mbarriers") else { return };
    let mut bench = Bench::new(options, RING);
    let values: Vec<f32> = random(64 * 11, 4).iter().map(|bits| (bits >> 20) as f32).collect();
    let input = bench.input("in", &values);
    let out = bench.output::<f32>("out", 64);
    for tiles in [1, 2, 3, 7, 11] {
        bench.run([2, 1, 1], 96, 1024, &[Word::Address(out), Word::Address(input), Word::I32(tiles)]);
        let wanted: Vec<f32> =
            (0..64).map(|i| (0..tiles as usize).map(|tile| values[64 * tile + 63 - i]).sum()).collect();
        assert_eq!(bench.read::<f32>(out, 64), wanted, "{tiles} tiles");
    }
}

#[test]
fn stored_matrices_are_what_loaded_ones_were() {
    let Some(options) = options("stmatrix") else { return };
    let mut bench = Bench::new(
        options,
        "extern \"C\" __global__ void kernel(u16* out, const u16* in) {
            u16* const room = reinterpret_cast<u16*>(shared_memory());
            const i32 i = static_cast<i32>(threadIdx.x);
            store_16(room + 8 * i, load_16(in + 8 * i));
            warp_barrier();
            u32 all[4];
            ldmatrix_x4(all, room + 8 * i);
            stmatrix_x4(room + 256 + 8 * i, all);
            stmatrix_x4_transposed(room + 512 + 8 * i, all);
            const u32 two[2] = {all[1], all[2]};
            stmatrix_x2(room + 768 + 8 * i, two);
            stmatrix_x2_transposed(room + 896 + 8 * i, two);
            warp_barrier();
            for (i32 k = 0; k < 24; ++k) out[32 * k + i] = room[256 + 32 * k + i];
        }",
    );
    let values: Vec<u16> = random(256, 8).iter().map(|&bits| bits as u16).collect();
    let input = bench.input("in", &values);
    let out = bench.output::<u16>("out", 768);
    bench.run([1, 1, 1], 32, 4096, &[Word::Address(out), Word::Address(input)]);
    let found = bench.read::<u16>(out, 768);
    for matrix in 0..4 {
        for (row, column) in (0..64).map(|i| (i / 8, i % 8)) {
            let at = |matrix: usize, row: usize, column: usize| values[64 * matrix + 8 * row + column];
            let place = 64 * matrix + 8 * row + column;
            assert_eq!(found[place], at(matrix, row, column));
            assert_eq!(found[256 + place], at(matrix, column, row));
            if matrix < 2 {
                assert_eq!(found[512 + place], at(matrix + 1, row, column));
                assert_eq!(found[640 + place], at(matrix + 1, column, row));
            }
        }
    }
}

#[test]
fn registers_pass_from_one_warpgroup_to_others() {
    let Some(options) = options("registers") else { return };
    let mut bench = Bench::new(
        options,
        "extern \"C\" __global__ void kernel(u32* out) {
            if (warpgroup_index() == 0) {
                registers_release<24>();
            } else {
                registers_acquire<240>();
            }
            out[threadIdx.x] = elect_one() + 2u * static_cast<u32>(warpgroup_index());
            grid_dependency_wait();
            grid_launch_dependents();
        }",
    );
    let out = bench.output::<u32>("out", 384);
    bench.run([1, 1, 1], 384, 0, &[Word::Address(out)]);
    let wanted: Vec<u32> = (0..384).map(|i| u32::from(i % 32 == 0) + 2 * (i / 128)).collect();
    assert_eq!(bench.read::<u32>(out, 384), wanted);
}
