// 96 threads, 0 bytes of shared memory
// Threads past the end leave before the barrier that the others wait at.
extern "C" __global__ void short_barrier(float* out, const float* in) {
    if (threadIdx.x >= 60) return;
    out[threadIdx.x] = in[threadIdx.x];
    barrier();
    out[threadIdx.x] = in[59 - threadIdx.x];
}
