// 128 threads, 4096 bytes of shared memory
// What was not committed is in no group that is waited for.
extern "C" __global__ void product_without_commit(float* out, const float* in) {
    u32* const room = reinterpret_cast<u32*>(shared_memory());
    for (i32 i = threadIdx.x; i < 1024; i += 128) room[i] = 0x3f803f80u;
    fence_proxy_async();
    barrier();
    const u64 tile = wgmma_matrix(room, Swizzle::none, 128, 256);
    float d[4];
    wgmma_fence(d);
    wgmma_m64k16<bf16>(d, tile, tile, false);
    wgmma_wait<0>(d);
    out[threadIdx.x] = d[0];
}
