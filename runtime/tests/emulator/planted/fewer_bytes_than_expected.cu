// 64 threads, 1024 bytes of shared memory
// The bytes of two copies are expected, and one comes: nobody can go on.
extern "C" __global__ void fewer_bytes_than_expected(float* out, const float* in) {
    Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared_memory());
    float* const room = reinterpret_cast<float*>(shared_memory() + 128);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
        mbarrier_expect_bytes_and_arrive(full, 512);
        bulk_load(room, in, 256, full);
    }
    barrier();
    mbarrier_wait(full, 0);
    out[threadIdx.x] = room[threadIdx.x];
}
