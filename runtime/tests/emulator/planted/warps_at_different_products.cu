// 128 threads, 4096 bytes of shared memory
// One warp of the four takes another branch.
extern "C" __global__ void warps_at_different_products(float* out, const float* in) {
    u32* const room = reinterpret_cast<u32*>(shared_memory());
    for (i32 i = threadIdx.x; i < 1024; i += 128) room[i] = 0x3f803f80u;
    fence_proxy_async();
    barrier();
    const u64 tile = wgmma_matrix(room, Swizzle::none, 128, 256);
    float d[4];
    wgmma_fence(d);
    if (warp_index() < 3) {
        wgmma_m64k16<bf16>(d, tile, tile, false);
    } else {
        wgmma_m64k16<fp16>(d, tile, tile, false);
    }
    wgmma_commit();
    wgmma_wait<0>(d);
    out[threadIdx.x] = d[0];
}
