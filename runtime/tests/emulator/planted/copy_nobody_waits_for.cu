// 32 threads, 1024 bytes of shared memory
// The last tile is copied ahead, and the block ends.
extern "C" __global__ void copy_nobody_waits_for(float* out, const float* in) {
    Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared_memory());
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
        mbarrier_expect_bytes_and_arrive(full, 256);
        bulk_load(shared_memory() + 128, in, 256, full);
    }
    out[threadIdx.x] = in[threadIdx.x];
}
