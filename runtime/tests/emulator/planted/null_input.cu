// 32 threads, 0 bytes of shared memory
// A kernel without a weight reads it all the same.
extern "C" __global__ void null_input(float* out, const float* in) {
    const float* const weight = nullptr;
    out[threadIdx.x] = in[threadIdx.x] * weight[threadIdx.x + 5];
}
