// 64 threads, 1024 bytes of shared memory
// Two copies come, and the bytes of one are expected.
extern "C" __global__ void more_bytes_than_expected(float* out, const float* in) {
    Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared_memory());
    float* const room = reinterpret_cast<float*>(shared_memory() + 128);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
        mbarrier_expect_bytes_and_arrive(full, 256);
        bulk_load(room, in, 256, full);
        bulk_load(room + 64, in + 64, 256, full);
    }
    barrier();
    mbarrier_wait(full, 0);
    out[threadIdx.x] = room[threadIdx.x];
}
