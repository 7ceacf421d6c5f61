// 32 threads, 0 bytes of shared memory
// A recursion without an end that the compiler cannot turn into a loop.
__attribute__((noinline)) float depth(const float* in, i32 level) {
    return level < 0 ? 0.0f : in[level % 8] + 1.5f * depth(in, level + (in[0] > -1.0f));
}
extern "C" __global__ void deep_recursion(float* out, const float* in) { out[threadIdx.x] = depth(in, 1); }
