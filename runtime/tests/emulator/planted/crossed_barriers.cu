// 64 threads, 0 bytes of shared memory
// Each warp waits for the other at a barrier that the other has not reached.
extern "C" __global__ void crossed_barriers(float* out, const float* in) {
    const i32 own = warp_index();
    named_barrier(1 + own, 64);
    out[threadIdx.x] = in[threadIdx.x];
    named_barrier(2 - own, 64);
}
