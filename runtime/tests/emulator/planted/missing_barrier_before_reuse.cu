// 64 threads, 256 bytes of shared memory
// The second round overwrites what the other warp may still read.
extern "C" __global__ void missing_barrier_before_reuse(float* out, const float* in) {
    float* const room = reinterpret_cast<float*>(shared_memory());
    float sum = 0.0f;
    for (i32 round = 0; round < 2; ++round) {
        room[threadIdx.x] = in[64 * round + threadIdx.x];
        barrier();
        sum += room[63 - threadIdx.x];
    }
    out[threadIdx.x] = sum;
}
