// 128 threads, 4096 bytes of shared memory
// 64 rows of 128 bytes do not fit.
extern "C" __global__ void matrix_past_the_end(float* out, const float* in) {
    u32* const room = reinterpret_cast<u32*>(shared_memory());
    for (i32 i = threadIdx.x; i < 1024; i += 128) room[i] = 0x3f803f80u;
    fence_proxy_async();
    barrier();
    const u64 tile = wgmma_matrix(room, Swizzle::bytes_128, 16, 1024);
    float d[4];
    wgmma_fence(d);
    wgmma_m64k16<bf16>(d, tile, tile, false);
    wgmma_commit();
    wgmma_wait<0>(d);
    out[threadIdx.x] = d[0];
}
