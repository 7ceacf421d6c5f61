// 32 threads, 128 bytes of shared memory
// The block ends, and with it its shared memory, before the copy has read that.
extern "C" __global__ void block_ends_under_a_store(float* out, const float* in) {
    float* const room = reinterpret_cast<float*>(shared_memory());
    room[threadIdx.x] = in[threadIdx.x];
    fence_proxy_async();
    barrier();
    if (threadIdx.x == 0) {
        bulk_store(out, room, 128);
        bulk_commit();
    }
}
