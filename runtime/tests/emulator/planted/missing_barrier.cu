// 64 threads, 256 bytes of shared memory
// Reverses a block's values; nothing tells a thread that its partner in the other warp has written.
extern "C" __global__ void missing_barrier(float* out, const float* in) {
    float* const room = reinterpret_cast<float*>(shared_memory());
    room[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = room[63 - threadIdx.x];
}
