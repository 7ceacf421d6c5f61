// Fixed-width names, bf16 and fp16. Conversions round to nearest, ties to even.

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

// IEEE half precision.
struct alignas(2) fp16 {
    u16 bits;
};

// Two neighbours in memory of a 2-byte type; the lower half is the one at the lower address.
using bf16_pair = u32;
using fp16_pair = u32;

// 16 and 8 bytes that are moved at once.
struct alignas(16) Words4 {
    u32 word[4];
};

struct alignas(8) Words2 {
    u32 word[2];
};

#ifdef KERNWRIGHT_EMULATOR
// CUDA's own names, and a second definition of everything that stands behind `#ifndef KERNWRIGHT_EMULATOR`.
#include "kernwright_emulator.h"
#else

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

__device__ __forceinline__ fp16 round_to_fp16(float value) {
    fp16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}

__device__ __forceinline__ fp16_pair pack_fp16(float low, float high) {
    fp16_pair pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ float float_of_fp16(fp16 value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}

#endif

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(bf16 value) { return float_of_bits(static_cast<u32>(value.bits) << 16); }
__device__ __forceinline__ float to_float(fp16 value) { return float_of_fp16(value); }

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

template <>
__device__ __forceinline__ fp16 from_float<fp16>(float value) {
    return round_to_fp16(value);
}

// The pair of two numbers rounded to T, a 2-byte type.
template <typename T>
__device__ __forceinline__ u32 pack(float low, float high);

template <>
__device__ __forceinline__ u32 pack<bf16>(float low, float high) {
    return pack_bf16(low, high);
}

template <>
__device__ __forceinline__ u32 pack<fp16>(float low, float high) {
    return pack_fp16(low, high);
}

// The numbers of a pair.
template <typename T>
__device__ __forceinline__ float unpack_low(u32 pair) {
    return to_float(T{static_cast<u16>(pair)});
}

template <typename T>
__device__ __forceinline__ float unpack_high(u32 pair) {
    return to_float(T{static_cast<u16>(pair >> 16)});
}
