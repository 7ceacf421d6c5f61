<% include "device/warp.cuh" %>
// The threads of a block: its dynamic shared memory, its barrier, sums in one fixed order.

#ifndef KERNWRIGHT_EMULATOR

// The block's one piece of shared memory.
__device__ __forceinline__ u8* shared_memory() {
    alignas(1024) extern __shared__ u8 shared_bytes[];
    return shared_bytes;
}

// Waits for every thread of the block; what they wrote before is then seen by all.
__device__ __forceinline__ void barrier() { __syncthreads(); }

// A barrier of its own for `threads` threads of the block, whole warps. `id` is 1 to 15; `barrier` is 0. One may wait
// there, or only say that it came.
__device__ __forceinline__ void named_barrier(i32 id, i32 threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(i32 id, i32 threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#endif

// Floats of shared memory that `block_sums` needs for `n` sums at once.
__device__ constexpr i32 block_sums_floats(i32 threads, i32 n) { return threads / WARP_SIZE * n; }

// Sums each of `values` over the block: within warps first, then over the warps from the first to the last. Every
// thread gets the same bits. `room` may be used again at once: the first barrier guards it.
template <i32 THREADS, i32 N>
__device__ __forceinline__ void block_sums(float (&values)[N], float* room) {
    constexpr i32 WARPS = THREADS / WARP_SIZE;
#pragma unroll
    for (i32 i = 0; i < N; ++i) values[i] = warp_sum(values[i]);
    if constexpr (WARPS > 1) {
        // Guards `room`: readers of an earlier sum are done.
        barrier();
        if (lane_index() == 0) {
#pragma unroll
            for (i32 i = 0; i < N; ++i) room[warp_index() * N + i] = values[i];
        }
        // Guards `room`: every warp's sum is there.
        barrier();
#pragma unroll
        for (i32 i = 0; i < N; ++i) values[i] = room[i];
        for (i32 warp = 1; warp < WARPS; ++warp) {
#pragma unroll
            for (i32 i = 0; i < N; ++i) values[i] += room[warp * N + i];
        }
    }
}

template <i32 THREADS>
__device__ __forceinline__ float block_sum(float value, float* room) {
    float values[1] = {value};
    block_sums<THREADS>(values, room);
    return values[0];
}

// The greatest value of the block, for every thread. A value that is not a number is passed over. `room` is as large as
// for one sum, and may be used again at once.
template <i32 THREADS>
__device__ __forceinline__ float block_max(float value, float* room) {
    constexpr i32 WARPS = THREADS / WARP_SIZE;
    value = warp_max(value);
    if constexpr (WARPS > 1) {
        // Guards `room`: readers of an earlier sum are done.
        barrier();
        if (lane_index() == 0) room[warp_index()] = value;
        // Guards `room`: every warp's value is there.
        barrier();
        for (i32 warp = 0; warp < WARPS; ++warp) value = room[warp] > value ? room[warp] : value;
    }
    return value;
}
