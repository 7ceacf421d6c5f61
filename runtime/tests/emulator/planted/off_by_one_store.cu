// 32 threads, 512 bytes of shared memory
// The vocabulary's own line is not where the fault lies.
extern "C" __global__ void off_by_one_store(float* out, const float* in) {
    float values[4];
    load_floats(in + 4 * threadIdx.x, values);
    float* const room = reinterpret_cast<float*>(shared_memory()) + 4;
    store_floats(room + 4 * threadIdx.x, values);
    out[threadIdx.x] = values[0];
}
