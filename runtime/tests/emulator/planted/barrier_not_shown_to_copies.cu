// 32 threads, 1024 bytes of shared memory
// No fence shows the barrier to the copy that is to arrive there.
extern "C" __global__ void barrier_not_shown_to_copies(float* out, const float* in) {
    Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared_memory());
    float* const room = reinterpret_cast<float*>(shared_memory() + 128);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_expect_bytes_and_arrive(full, 256);
        bulk_load(room, in, 256, full);
    }
    barrier();
    mbarrier_wait(full, 0);
    out[threadIdx.x] = room[threadIdx.x];
}
