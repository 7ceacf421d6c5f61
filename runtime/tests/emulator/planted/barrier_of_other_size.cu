// 96 threads, 0 bytes of shared memory
// Two warps count 64 threads at the barrier, the third counts 96.
extern "C" __global__ void barrier_of_other_size(float* out, const float* in) {
    named_barrier(1, warp_index() < 2 ? 96 : 64);
    out[threadIdx.x] = in[threadIdx.x];
}
