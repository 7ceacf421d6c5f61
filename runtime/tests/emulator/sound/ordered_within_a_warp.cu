// 128 threads, 512 bytes of shared memory
// Each warp transposes a part of its own; a warp's barrier is enough.
extern "C" __global__ void ordered_within_a_warp(float* out, const float* in) {
    float* const room = reinterpret_cast<float*>(shared_memory()) + 32 * warp_index();
    float value = in[threadIdx.x];
    for (i32 round = 0; round < 3; ++round) {
        room[lane_index()] = value;
        warp_barrier();
        value = room[lane_index() * 5 % 32];
        warp_barrier();
    }
    out[threadIdx.x] = value;
}
