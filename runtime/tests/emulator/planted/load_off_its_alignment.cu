// 32 threads, 4096 bytes of shared memory
// The tile of a map with a swizzle of 128 bytes begins at 512.
extern "C" __global__ void load_off_its_alignment(float* out, const float* in, const __grid_constant__ TensorMap in_map, const __grid_constant__ TensorMap out_map) {
    Mbarrier* const full = reinterpret_cast<Mbarrier*>(shared_memory());
    float* const room = reinterpret_cast<float*>(shared_memory() + 512);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
        mbarrier_expect_bytes_and_arrive(full, 1024);
        tma_load(room, in_map, full, 0, 0);
    }
    barrier();
    mbarrier_wait(full, 0);
    out[threadIdx.x] = room[threadIdx.x];
}
