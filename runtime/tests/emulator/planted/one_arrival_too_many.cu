// 64 threads, 1024 bytes of shared memory
// A warp of 32 arrives where one lane of it should, while bytes are still expected.
extern "C" __global__ void one_arrival_too_many(float* out, const float* in) {
    Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared_memory());
    float* const room = reinterpret_cast<float*>(shared_memory() + 128);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
    }
    barrier();
    if (warp_index() == 0) mbarrier_expect_bytes_and_arrive(full, 256);
    if (threadIdx.x == 0) bulk_load(room, in, 256, full);
    mbarrier_wait(full, 0);
    out[threadIdx.x] = room[threadIdx.x];
}
