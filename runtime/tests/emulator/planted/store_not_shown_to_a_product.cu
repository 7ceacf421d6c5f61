// 128 threads, 4096 bytes of shared memory
// A barrier orders the writes before the product; no fence shows them to it.
extern "C" __global__ void store_not_shown_to_a_product(float* out, const float* in) {
    u32* const room = reinterpret_cast<u32*>(shared_memory());
    for (i32 i = threadIdx.x; i < 1024; i += 128) room[i] = 0x3f803f80u;
    barrier();
    const u64 tile = wgmma_matrix(room, Swizzle::none, 128, 256);
    float d[4];
    wgmma_fence(d);
    wgmma_m64k16<bf16>(d, tile, tile, false);
    wgmma_commit();
    wgmma_wait<0>(d);
    out[threadIdx.x] = d[0];
}
