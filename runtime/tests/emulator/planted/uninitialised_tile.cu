// 32 threads, 1024 bytes of shared memory
// Half a tile is filled, and all of it fed to the tensor cores.
extern "C" __global__ void uninitialised_tile(float* out, const float* in) {
    bf16* const tile = reinterpret_cast<bf16*>(shared_memory());
    for (i32 i = 0; i < 8; ++i) tile[8 * threadIdx.x + i] = round_to_bf16(in[8 * threadIdx.x + i]);
    warp_barrier();
    u32 fragment[4];
    ldmatrix_x4(fragment, tile + 16 * threadIdx.x);
    out[threadIdx.x] = float_of_bits(fragment[0]);
}
