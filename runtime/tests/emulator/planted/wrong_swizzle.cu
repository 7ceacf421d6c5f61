// 64 threads, 1024 bytes of shared memory
// 8 rows of 8 chunks of 16 bytes, chunk c of row r at c ^ r; the reader adds where the writer exclusive-ors.
extern "C" __global__ void wrong_swizzle(float* out, const float* in) {
    float* const tile = reinterpret_cast<float*>(shared_memory());
    const i32 row = static_cast<i32>(threadIdx.x) / 8;
    const i32 chunk = static_cast<i32>(threadIdx.x) % 8;
    store_16(tile + 4 * (8 * row + (chunk ^ row)), load_16(in + 4 * threadIdx.x));
    barrier();
    store_16(out + 4 * threadIdx.x, load_16(tile + 4 * (8 * row + chunk + row)));
}
