// 64 threads, 0 bytes of shared memory
// Each warp reaches a barrier, but not the same one.
extern "C" __global__ void divergent_barrier(float* out, const float* in) {
    if (warp_index() == 0) {
        out[threadIdx.x] = in[threadIdx.x];
        barrier();
    } else {
        barrier();
        out[threadIdx.x] = in[threadIdx.x];
    }
}
