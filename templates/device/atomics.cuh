<% include "device/types.cuh" %>
// Sums in memory that many threads add to. The order is that of the race: floats may differ in their last bits from run
// to run.

#ifndef KERNWRIGHT_EMULATOR

__device__ __forceinline__ void atomic_add(float* to, float value) {
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to), "f"(value) : "memory");
}

// Gives what was there before.
__device__ __forceinline__ u32 atomic_add(u32* to, u32 value) { return atomicAdd(to, value); }

// Counts by which blocks take turns: what a thread wrote before it adds is seen by who loads the sum.
__device__ __forceinline__ void add_release(u32* to, u32 value) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ u32 load_acquire(const u32* from) {
    u32 value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

// Two neighbours at once, each for itself; `to` is a multiple of 4.
template <typename T>
__device__ __forceinline__ void atomic_add_pair(u32* to, u32 pair);

template <>
__device__ __forceinline__ void atomic_add_pair<bf16>(u32* to, u32 pair) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.noftz.bf16x2 [%0], %1;" ::"l"(to), "r"(pair) : "memory");
#else
    u32 before = *reinterpret_cast<volatile u32*>(to);
    for (;;) {
        const u32 now = pack_bf16(float_of_bits(before << 16) + float_of_bits(pair << 16),
                                  float_of_bits(before & 0xffff0000u) + float_of_bits(pair & 0xffff0000u));
        const u32 seen = atomicCAS(to, before, now);
        if (seen == before) break;
        before = seen;
    }
#endif
}

template <>
__device__ __forceinline__ void atomic_add_pair<fp16>(u32* to, u32 pair) {
    asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(to), "r"(pair) : "memory");
}

// Four neighbours at once, each for itself; `to` is a multiple of 16.
__device__ __forceinline__ void atomic_add_4(float* to, const float (&values)[4]) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(values[0]), "f"(values[1]), "f"(values[2]),
                 "f"(values[3])
                 : "memory");
#else
#pragma unroll
    for (i32 i = 0; i < 4; ++i) atomic_add(to + i, values[i]);
#endif
}

#endif
