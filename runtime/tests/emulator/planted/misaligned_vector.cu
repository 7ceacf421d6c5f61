// 32 threads, 0 bytes of shared memory
// Rows of 7 floats do not begin at multiples of 16 bytes.
extern "C" __global__ void misaligned_vector(float* out, const float* in) {
    const Words4 words = load_16(in + 7 * threadIdx.x);
    out[threadIdx.x] = float_of_bits(words.word[0]);
}
