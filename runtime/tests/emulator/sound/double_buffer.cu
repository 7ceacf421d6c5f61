// 64 threads, 2048 bytes of shared memory
// The next tile is under way while this one is read.
extern "C" __global__ void double_buffer(float* out, const float* in) {
    float* const room = reinterpret_cast<float*>(shared_memory());
    const i32 i = static_cast<i32>(threadIdx.x);
    float sum = 0.0f;
    cp_async_16(room + 4 * i, in + 4 * i);
    cp_async_commit();
    for (i32 round = 0; round < 4; ++round) {
        // Guards the other buffer: nobody reads it any more.
        barrier();
        if (round < 3) cp_async_16(room + 256 * ((round + 1) % 2) + 4 * i, in + 4 * (63 - i));
        cp_async_commit();
        cp_async_wait<1>();
        // Guards this buffer: it is whole.
        barrier();
        sum += room[256 * (round % 2) + 255 - i];
    }
    out[i] = sum;
}
