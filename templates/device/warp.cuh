<% include "device/types.cuh" %>
// The 32 threads of a warp: their indices, exchanges of registers, sums in one fixed order. All lanes take part.

constexpr i32 WARP_SIZE = 32;

#ifndef KERNWRIGHT_EMULATOR

// The value of lane `own ^ mask`.
__device__ __forceinline__ float shuffle_xor(float value, i32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
__device__ __forceinline__ i32 shuffle_xor(i32 value, i32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// The value of lane `lane`.
__device__ __forceinline__ float shuffle(float value, i32 lane) { return __shfl_sync(0xffffffffu, value, lane); }
__device__ __forceinline__ i32 shuffle(i32 value, i32 lane) { return __shfl_sync(0xffffffffu, value, lane); }

// Bit `lane` is that lane's answer.
__device__ __forceinline__ u32 ballot(bool answer) { return __ballot_sync(0xffffffffu, answer); }

// Orders shared memory among the lanes of one warp.
__device__ __forceinline__ void warp_barrier() { __syncwarp(); }

// Place of the lowest bit that is set; 32 when none is.
__device__ __forceinline__ i32 lowest_bit(u32 bits) { return bits == 0 ? 32 : __ffs(static_cast<i32>(bits)) - 1; }

#endif

__device__ __forceinline__ i32 lane_index() { return static_cast<i32>(threadIdx.x) % WARP_SIZE; }
__device__ __forceinline__ i32 warp_index() { return static_cast<i32>(threadIdx.x) / WARP_SIZE; }

// The sum over each group of LANES neighbouring lanes (a power of two). Every lane of a group gets the same bits: at
// each level both partners add the same two numbers.
template <i32 LANES>
__device__ __forceinline__ float lanes_sum(float value) {
    static_assert(LANES >= 1 && LANES <= WARP_SIZE && (LANES & (LANES - 1)) == 0, "a power of two up to a warp");
#pragma unroll
    for (i32 mask = LANES / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
    return value;
}

__device__ __forceinline__ float warp_sum(float value) { return lanes_sum<WARP_SIZE>(value); }

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (i32 mask = WARP_SIZE / 2; mask > 0; mask /= 2) {
        const float other = shuffle_xor(value, mask);
        value = value > other ? value : other;
    }
    return value;
}
