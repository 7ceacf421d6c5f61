// 384 threads, 0 bytes of shared memory
// Two warpgroups take more than the third gives: 24 and twice 248 are more than three times 168.
extern "C" __global__ void too_many_registers(float* out, const float* in) {
    if (warpgroup_index() == 0) {
        registers_release<24>();
    } else {
        registers_acquire<248>();
    }
    if (threadIdx.x < 256) out[threadIdx.x] = in[threadIdx.x];
}
