// 32 threads, 128 bytes of shared memory
// The second barrier is used; only the first was made.
extern "C" __global__ void no_barrier_was_made(float* out, const float* in) {
    Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared_memory());
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
    }
    barrier();
    if (threadIdx.x == 0) mbarrier_arrive(full);
    mbarrier_wait(full + 1, 0);
    out[threadIdx.x] = in[threadIdx.x];
}
