// 32 threads, 128 bytes of shared memory
// A shuffle does not order the memory of a warp.
extern "C" __global__ void missing_warp_barrier(float* out, const float* in) {
    float* const room = reinterpret_cast<float*>(shared_memory());
    room[lane_index()] = in[lane_index()];
    const float sum = warp_sum(in[lane_index()]);
    out[lane_index()] = sum * room[31 - lane_index()];
}
