// 64 threads, 128 bytes of shared memory
// Two warps write the two halves of each word.
extern "C" __global__ void neighbouring_halves(float* out, const float* in) {
    bf16* const room = reinterpret_cast<bf16*>(shared_memory());
    room[2 * lane_index() + warp_index()] = round_to_bf16(in[threadIdx.x]);
    barrier();
    out[threadIdx.x] = to_float(room[threadIdx.x]);
}
