// 256 threads, 20480 bytes of shared memory
// A producer fills two places in turn; one thread of the warpgroup that multiplies hands them back for all of it.
extern "C" __global__ void ring_of_products(float* out, const float* in, const __grid_constant__ TensorMap in_map, const __grid_constant__ TensorMap out_map) {
    Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared_memory());
    Mbarrier* const empty = full + 2;
    u8* const ring = shared_memory() + 1024;
    if (threadIdx.x == 0) {
        for (i32 i = 0; i < 2; ++i) {
            mbarrier_init(full + i, 1);
            mbarrier_init(empty + i, 1);
        }
        fence_mbarrier_init();
    }
    barrier();
    if (warpgroup_index() == 0) {
        registers_release<40>();
        if (warp_index() == 0 && elect_one()) {
            tma_prefetch(in_map);
            for (i32 i = 0; i < 6; ++i) {
                mbarrier_wait(empty + i % 2, (i / 2 & 1) ^ 1);
                mbarrier_expect_bytes_and_arrive(full + i % 2, 8192);
                for (i32 part = 0; part < 8; ++part) {
                    tma_load(ring + 8192 * (i % 2) + 1024 * part, in_map, full + i % 2, 0, part % 3 - 1);
                }
            }
        }
    } else {
        registers_acquire<216>();
        float d[4];
        for (i32 i = 0; i < 6; ++i) {
            mbarrier_wait(full + i % 2, i / 2 & 1);
            const u64 tile = wgmma_matrix(ring + 8192 * (i % 2), Swizzle::bytes_128, 16, 1024);
            wgmma_fence(d);
            for (i32 k = 0; k < 4; ++k) {
                wgmma_m64k16<bf16>(d, wgmma_further(tile, 32 * k), wgmma_further(tile, 32 * k), i + k > 0);
            }
            wgmma_commit();
            wgmma_wait<0>(d);
            if (threadIdx.x == 128) mbarrier_arrive(empty + i % 2);
        }
        float* const room = reinterpret_cast<float*>(ring + 16384);
        room[threadIdx.x - 128] = d[0];
        room[threadIdx.x] = d[1];
        fence_proxy_async();
        named_barrier(1, 128);
        if (threadIdx.x == 128) {
            tma_store(out_map, room, 0, 0);
            bulk_commit();
            bulk_wait_read<0>();
        }
    }
}
