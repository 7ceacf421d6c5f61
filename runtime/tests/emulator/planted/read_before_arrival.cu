// 64 threads, 1024 bytes of shared memory
// A barrier of the block stands where the copy must be waited for.
extern "C" __global__ void read_before_arrival(float* out, const float* in) {
    Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared_memory());
    float* const room = reinterpret_cast<float*>(shared_memory() + 128);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
        mbarrier_expect_bytes_and_arrive(full, 256);
        bulk_load(room, in, 256, full);
    }
    barrier();
    out[threadIdx.x] = room[threadIdx.x];
    mbarrier_wait(full, 0);
}
