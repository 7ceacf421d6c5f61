// Fixed-width names and bf16. Conversions round to nearest, ties to even.

using u8 = unsigned char;
using i16 = short;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;

static_assert(sizeof(i32) == 4 && sizeof(i64) == 8 && sizeof(float) == 4, "unexpected sizes");

// The upper half of an fp32.
struct alignas(2) bf16 {
    u16 bits;
};

// Two neighbours in memory; the lower half is the one at the lower address.
using bf16_pair = u32;

#ifndef KERNWRIGHT_EMULATOR

__device__ __forceinline__ float float_of_bits(u32 bits) { return __uint_as_float(bits); }
__device__ __forceinline__ u32 bits_of_float(float value) { return __float_as_uint(value); }

__device__ __forceinline__ bf16 round_to_bf16(float value) {
    bf16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}

__device__ __forceinline__ bf16_pair pack_bf16(float low, float high) {
    bf16_pair pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

#endif

__device__ __forceinline__ float unpack_low(bf16_pair pair) { return float_of_bits(pair << 16); }
__device__ __forceinline__ float unpack_high(bf16_pair pair) { return float_of_bits(pair & 0xffff0000u); }

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(bf16 value) { return float_of_bits(static_cast<u32>(value.bits) << 16); }

template <typename T>
__device__ __forceinline__ T from_float(float value);

template <>
__device__ __forceinline__ float from_float<float>(float value) {
    return value;
}

template <>
__device__ __forceinline__ bf16 from_float<bf16>(float value) {
    return round_to_bf16(value);
}
