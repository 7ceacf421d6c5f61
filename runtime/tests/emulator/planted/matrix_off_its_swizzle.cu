// 128 threads, 4096 bytes of shared memory
// The matrix begins in the third row of the swizzle's pattern.
extern "C" __global__ void matrix_off_its_swizzle(float* out, const float* in) {
    u32* const room = reinterpret_cast<u32*>(shared_memory());
    for (i32 i = threadIdx.x; i < 1024; i += 128) room[i] = 0x3f803f80u;
    fence_proxy_async();
    barrier();
    const u64 tile = wgmma_matrix(room + 64, Swizzle::bytes_128, 16, 1024);
    float d[4];
    wgmma_fence(d);
    wgmma_m64k16<bf16>(d, tile, tile, false);
    wgmma_commit();
    wgmma_wait<0>(d);
    out[threadIdx.x] = d[0];
}
