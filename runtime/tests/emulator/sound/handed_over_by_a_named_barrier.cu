// 96 threads, 512 bytes of shared memory
// Warp 0 fills two buffers in turn for warp 1; warp 2 takes no part. "Full" and "empty" are barriers of two warps, at which
// one only arrives.
extern "C" __global__ void handed_over_by_a_named_barrier(float* out, const float* in) {
    float* const room = reinterpret_cast<float*>(shared_memory());
    if (warp_index() == 0) {
        for (i32 round = 0; round < 6; ++round) {
            const i32 buffer = round % 2;
            if (round >= 2) named_barrier(3 + buffer, 64);
            room[32 * buffer + lane_index()] = in[32 * round + lane_index()];
            named_barrier_arrive(1 + buffer, 64);
        }
    } else if (warp_index() == 1) {
        for (i32 round = 0; round < 6; ++round) {
            const i32 buffer = round % 2;
            named_barrier(1 + buffer, 64);
            out[32 * round + lane_index()] = room[32 * buffer + 31 - lane_index()];
            if (round < 4) named_barrier_arrive(3 + buffer, 64);
        }
    }
}
