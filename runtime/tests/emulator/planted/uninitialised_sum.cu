// 64 threads, 0 bytes of shared memory
// Adds to an output that nobody set to zero.
extern "C" __global__ void uninitialised_sum(float* out, const float* in) { out[threadIdx.x] += in[threadIdx.x]; }
