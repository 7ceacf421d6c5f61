// 32 threads, 0 bytes of shared memory
// ldmatrix reads shared memory only.
extern "C" __global__ void global_ldmatrix(float* out, const float* in) {
    u32 fragment[2];
    ldmatrix_x2(fragment, in + 4 * (threadIdx.x % 16));
    out[threadIdx.x] = float_of_bits(fragment[0] ^ fragment[1]);
}
