// 128 threads, 4096 bytes of shared memory
// The second product adds to registers that were scaled since the first.
extern "C" __global__ void product_without_fence(float* out, const float* in) {
    u32* const room = reinterpret_cast<u32*>(shared_memory());
    for (i32 i = threadIdx.x; i < 1024; i += 128) room[i] = 0x3f803f80u;
    fence_proxy_async();
    barrier();
    const u64 tile = wgmma_matrix(room, Swizzle::none, 128, 256);
    float d[4];
    wgmma_fence(d);
    for (i32 k = 0; k < 2; ++k) {
        wgmma_m64k16<bf16>(d, tile, tile, k > 0);
        wgmma_commit();
        wgmma_wait<0>(d);
        for (i32 i = 0; i < 4; ++i) d[i] *= 0.5f;
    }
    out[threadIdx.x] = d[0];
}
