// 32 threads, 0 bytes of shared memory
// All lanes shuffle, but in two places.
extern "C" __global__ void shuffle_in_two_branches(float* out, const float* in) {
    const float value = in[threadIdx.x];
    float partner;
    if (threadIdx.x % 2 == 0) {
        partner = shuffle_xor(value, 2);
    } else {
        partner = shuffle_xor(-value, 2);
    }
    out[threadIdx.x] = partner;
}
