// 64 threads, 4 bytes of shared memory
// The count is read while the other warp may still add to it.
extern "C" __global__ void atomic_without_barrier(float* out, const float* in) {
    u32* const count = reinterpret_cast<u32*>(shared_memory());
    if (threadIdx.x == 0) *count = 0;
    barrier();
    if (in[threadIdx.x] > 0.0f) atomic_add(count, 1u);
    out[threadIdx.x] = static_cast<float>(*count);
}
