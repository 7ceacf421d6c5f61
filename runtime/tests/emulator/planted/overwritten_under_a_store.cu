// 64 threads, 1024 bytes of shared memory
// The next tile is written while the copy may still read this one.
extern "C" __global__ void overwritten_under_a_store(float* out, const float* in) {
    float* const room = reinterpret_cast<float*>(shared_memory());
    for (i32 i = 0; i < 2; ++i) {
        room[threadIdx.x] = in[64 * i + threadIdx.x];
        fence_proxy_async();
        barrier();
        if (threadIdx.x == 0) {
            bulk_store(out + 64 * i, room, 256);
            bulk_commit();
        }
        barrier();
    }
    if (threadIdx.x == 0) bulk_wait_read<0>();
}
