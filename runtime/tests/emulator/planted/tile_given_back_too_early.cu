// 64 threads, 1024 bytes of shared memory
// The consumer says that the tile may be overwritten, and reads it then.
extern "C" __global__ void tile_given_back_too_early(float* out, const float* in) {
    Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared_memory());
    Mbarrier* const empty = full + 1;
    float* const room = reinterpret_cast<float*>(shared_memory() + 128);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        mbarrier_init(empty, 32);
        fence_mbarrier_init();
    }
    barrier();
    for (i32 i = 0; i < 2; ++i) {
        if (threadIdx.x == 0) {
            mbarrier_wait(empty, (i & 1) ^ 1);
            mbarrier_expect_bytes_and_arrive(full, 256);
            bulk_load(room, in + 64 * i, 256, full);
        }
        if (warp_index() == 1) {
            mbarrier_wait(full, i & 1);
            mbarrier_arrive(empty);
            out[32 * i + lane_index()] = room[lane_index()];
        }
    }
}
