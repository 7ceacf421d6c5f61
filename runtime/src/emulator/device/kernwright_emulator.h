// The second definition of every name of the device vocabulary: what a generated kernel sees when it is compiled for
// the emulator by the host's C++ compiler.
//
// In: the plain types of device/types.cuh, right behind which this file is included. Out: CUDA's words and built-ins
// and the vocabulary's CUDA-only functions. No system header, so that a kernel compiles in a moment. What takes more than
// a few instructions, or waits for other threads, is a call into the emulator's library (the functions named
// `kernwright_...`); operands travel by value, in registers, so that the compiler's hooks do not see them as memory.
//
// Every vocabulary function is inlined: its call into the library then returns to a line of the kernel, and that
// address is the place a report speaks of.
#pragma once

#include "kernwright_numbers.h"

#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __global__ __attribute__((noinline, used))
#define __launch_bounds__(...)
#define __restrict__ __restrict

#define threadIdx (kernwright_thread_index())
#define blockIdx (kernwright_block_index())
#define blockDim (kernwright_block_dim())
#define gridDim (kernwright_grid_dim())

#define KERNWRIGHT_INLINE inline __attribute__((always_inline))

struct KernwrightIndex {
    unsigned x, y, z;
};

struct KernwrightFloats4 {
    float of[4];
};

struct KernwrightWords4 {
    u64 of[2];
};

// The library. Values that never change for a thread are `const` to the compiler: it may ask once.
extern "C" {
KernwrightIndex kernwright_thread_index() __attribute__((const));
KernwrightIndex kernwright_block_index() __attribute__((const));
KernwrightIndex kernwright_block_dim() __attribute__((const));
KernwrightIndex kernwright_grid_dim() __attribute__((const));
u8* kernwright_shared_memory() __attribute__((const));
void kernwright_barrier();
void kernwright_named_barrier(i32 id, i32 threads);
void kernwright_named_barrier_arrive(i32 id, i32 threads);
void kernwright_warp_barrier();
u32 kernwright_shuffle_xor(u32 value, i32 mask);
u32 kernwright_shuffle(u32 value, i32 lane);
u32 kernwright_ballot(i32 answer);
KernwrightWords4 kernwright_load_16(const void* from);
u64 kernwright_load_8(const void* from);
u32 kernwright_load_4(const void* from);
void kernwright_store_16(void* to, u64 low, u64 high);
void kernwright_store_8(void* to, u64 value);
void kernwright_store_4(void* to, u32 value);
void kernwright_cp_async(void* to, const void* from, i32 real);
void kernwright_cp_async_commit();
void kernwright_cp_async_wait(i32 newest);
KernwrightFloats4 kernwright_mma(KernwrightFloats4 d, u64 a_low, u64 a_high, u64 b, i32 form);
KernwrightWords4 kernwright_ldmatrix(const void* row, i32 matrices, i32 transposed);
void kernwright_atomic_add_float(float* to, float value);
u32 kernwright_atomic_add_word(u32* to, u32 value);
void kernwright_add_release(u32* to, u32 value);
u32 kernwright_load_acquire(const u32* from);
void kernwright_atomic_add_pair(u32* to, u32 pair, i32 is_bf16);
void kernwright_atomic_add_4(float* to, KernwrightFloats4 values);
void kernwright_sine_cosine_pi(float x, float* sine, float* cosine);
}

// types.cuh

KERNWRIGHT_INLINE float float_of_bits(u32 bits) { return kernwright::float_of_word(bits); }
KERNWRIGHT_INLINE u32 bits_of_float(float value) { return kernwright::word_of_float(value); }
KERNWRIGHT_INLINE bf16 round_to_bf16(float value) { return bf16{kernwright::bf16_of_float(value)}; }
KERNWRIGHT_INLINE fp16 round_to_fp16(float value) { return fp16{kernwright::fp16_of_float(value)}; }
KERNWRIGHT_INLINE float float_of_fp16(fp16 value) { return kernwright::float_of_fp16_bits(value.bits); }
KERNWRIGHT_INLINE u32 pack_bf16(float low, float high) {
    return kernwright::bf16_of_float(low) | static_cast<u32>(kernwright::bf16_of_float(high)) << 16;
}
KERNWRIGHT_INLINE u32 pack_fp16(float low, float high) {
    return kernwright::fp16_of_float(low) | static_cast<u32>(kernwright::fp16_of_float(high)) << 16;
}

// math.cuh

KERNWRIGHT_INLINE float exponential(float x) { return __builtin_expf(x); }
KERNWRIGHT_INLINE float exponential_minus_1(float x) { return __builtin_expm1f(x); }
KERNWRIGHT_INLINE float exponential_2(float x) { return __builtin_exp2f(x); }
KERNWRIGHT_INLINE float logarithm_1_plus(float x) { return __builtin_log1pf(x); }
KERNWRIGHT_INLINE float logarithm_2(float x) { return __builtin_log2f(x); }
KERNWRIGHT_INLINE float natural_logarithm(float x) { return __builtin_logf(x); }
KERNWRIGHT_INLINE float reciprocal(float x) { return 1.0f / x; }
KERNWRIGHT_INLINE float maximum(float x, float y) { return __builtin_fmaxf(x, y); }
KERNWRIGHT_INLINE float magnitude(float x) { return __builtin_fabsf(x); }
KERNWRIGHT_INLINE float fused_multiply_add(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
KERNWRIGHT_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
KERNWRIGHT_INLINE float reciprocal_root(float x) { return static_cast<float>(1.0 / __builtin_sqrt(x)); }
KERNWRIGHT_INLINE float hyperbolic_tangent(float x) { return __builtin_tanhf(x); }
KERNWRIGHT_INLINE float error_function(float x) { return __builtin_erff(x); }
KERNWRIGHT_INLINE void sine_cosine_pi(float x, float& sine, float& cosine) {
    float both[2];
    kernwright_sine_cosine_pi(x, both, both + 1);
    sine = both[0];
    cosine = both[1];
}

// warp.cuh and block.cuh

KERNWRIGHT_INLINE float shuffle_xor(float value, i32 mask) {
    return float_of_bits(kernwright_shuffle_xor(bits_of_float(value), mask));
}
KERNWRIGHT_INLINE i32 shuffle_xor(i32 value, i32 mask) {
    return static_cast<i32>(kernwright_shuffle_xor(static_cast<u32>(value), mask));
}
KERNWRIGHT_INLINE float shuffle(float value, i32 lane) {
    return float_of_bits(kernwright_shuffle(bits_of_float(value), lane));
}
KERNWRIGHT_INLINE i32 shuffle(i32 value, i32 lane) {
    return static_cast<i32>(kernwright_shuffle(static_cast<u32>(value), lane));
}
KERNWRIGHT_INLINE u32 ballot(bool answer) { return kernwright_ballot(answer); }
KERNWRIGHT_INLINE void warp_barrier() { kernwright_warp_barrier(); }
KERNWRIGHT_INLINE i32 lowest_bit(u32 bits) { return bits == 0 ? 32 : __builtin_ctz(bits); }
KERNWRIGHT_INLINE u8* shared_memory() { return kernwright_shared_memory(); }
KERNWRIGHT_INLINE void barrier() { kernwright_barrier(); }
KERNWRIGHT_INLINE void named_barrier(i32 id, i32 threads) { kernwright_named_barrier(id, threads); }
KERNWRIGHT_INLINE void named_barrier_arrive(i32 id, i32 threads) { kernwright_named_barrier_arrive(id, threads); }

// vector.cuh

template <typename T>
KERNWRIGHT_INLINE Words4 load_16(const T* from) {
    const KernwrightWords4 both = kernwright_load_16(from);
    return Words4{{static_cast<u32>(both.of[0]), static_cast<u32>(both.of[0] >> 32), static_cast<u32>(both.of[1]),
                   static_cast<u32>(both.of[1] >> 32)}};
}

template <typename T>
KERNWRIGHT_INLINE Words2 load_8(const T* from) {
    const u64 both = kernwright_load_8(from);
    return Words2{{static_cast<u32>(both), static_cast<u32>(both >> 32)}};
}

template <typename T>
KERNWRIGHT_INLINE u32 load_4(const T* from) {
    return kernwright_load_4(from);
}

template <typename T>
KERNWRIGHT_INLINE void store_16(T* to, Words4 value) {
    kernwright_store_16(to, value.word[0] | static_cast<u64>(value.word[1]) << 32,
                        value.word[2] | static_cast<u64>(value.word[3]) << 32);
}

template <typename T>
KERNWRIGHT_INLINE void store_8(T* to, Words2 value) {
    kernwright_store_8(to, value.word[0] | static_cast<u64>(value.word[1]) << 32);
}

template <typename T>
KERNWRIGHT_INLINE void store_4(T* to, u32 value) {
    kernwright_store_4(to, value);
}

// async.cuh

template <typename T>
KERNWRIGHT_INLINE void cp_async_16(T* to_shared, const T* from_global) {
    kernwright_cp_async(to_shared, from_global, 1);
}

template <typename T>
KERNWRIGHT_INLINE void cp_async_16_or_zero(T* to_shared, const T* from_global, bool real) {
    kernwright_cp_async(to_shared, from_global, real);
}

KERNWRIGHT_INLINE void cp_async_commit() { kernwright_cp_async_commit(); }

template <i32 N>
KERNWRIGHT_INLINE void cp_async_wait() {
    kernwright_cp_async_wait(N);
}

// mma.cuh. The forms are numbered as in matrix.cc: k16 and k8 of bf16, k16 and k8 of fp16, k8 of tf32.

template <typename T>
struct KernwrightForm;
template <>
struct KernwrightForm<bf16> {
    static constexpr i32 K16 = 0;
    static constexpr i32 IS_BF16 = 1;
};
template <>
struct KernwrightForm<fp16> {
    static constexpr i32 K16 = 2;
    static constexpr i32 IS_BF16 = 0;
};

KERNWRIGHT_INLINE void kernwright_mma_into(float (&d)[4], u64 a_low, u64 a_high, u64 b, i32 form) {
    const KernwrightFloats4 sum = kernwright_mma(KernwrightFloats4{{d[0], d[1], d[2], d[3]}}, a_low, a_high, b, form);
    d[0] = sum.of[0];
    d[1] = sum.of[1];
    d[2] = sum.of[2];
    d[3] = sum.of[3];
}

template <typename T>
KERNWRIGHT_INLINE void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    kernwright_mma_into(d, a[0] | static_cast<u64>(a[1]) << 32, a[2] | static_cast<u64>(a[3]) << 32,
                        b[0] | static_cast<u64>(b[1]) << 32, KernwrightForm<T>::K16);
}

template <typename T>
KERNWRIGHT_INLINE void mma_m16n8k8(float (&d)[4], const u32 (&a)[2], u32 b) {
    kernwright_mma_into(d, a[0] | static_cast<u64>(a[1]) << 32, 0, b, KernwrightForm<T>::K16 + 1);
}

KERNWRIGHT_INLINE void mma_m16n8k8_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    kernwright_mma_into(d, a[0] | static_cast<u64>(a[1]) << 32, a[2] | static_cast<u64>(a[3]) << 32,
                        b[0] | static_cast<u64>(b[1]) << 32, 4);
}

KERNWRIGHT_INLINE void ldmatrix_x4(u32 (&to)[4], const void* row) {
    const KernwrightWords4 words = kernwright_ldmatrix(row, 4, 0);
    for (i32 i = 0; i < 4; ++i) to[i] = static_cast<u32>(words.of[i / 2] >> i % 2 * 32);
}
KERNWRIGHT_INLINE void ldmatrix_x4_transposed(u32 (&to)[4], const void* row) {
    const KernwrightWords4 words = kernwright_ldmatrix(row, 4, 1);
    for (i32 i = 0; i < 4; ++i) to[i] = static_cast<u32>(words.of[i / 2] >> i % 2 * 32);
}
KERNWRIGHT_INLINE void ldmatrix_x2(u32 (&to)[2], const void* row) {
    const KernwrightWords4 words = kernwright_ldmatrix(row, 2, 0);
    to[0] = static_cast<u32>(words.of[0]);
    to[1] = static_cast<u32>(words.of[0] >> 32);
}
KERNWRIGHT_INLINE void ldmatrix_x2_transposed(u32 (&to)[2], const void* row) {
    const KernwrightWords4 words = kernwright_ldmatrix(row, 2, 1);
    to[0] = static_cast<u32>(words.of[0]);
    to[1] = static_cast<u32>(words.of[0] >> 32);
}

// atomics.cuh

KERNWRIGHT_INLINE void atomic_add(float* to, float value) { kernwright_atomic_add_float(to, value); }
KERNWRIGHT_INLINE u32 atomic_add(u32* to, u32 value) { return kernwright_atomic_add_word(to, value); }
KERNWRIGHT_INLINE void add_release(u32* to, u32 value) { kernwright_add_release(to, value); }
KERNWRIGHT_INLINE u32 load_acquire(const u32* from) { return kernwright_load_acquire(from); }

template <typename T>
KERNWRIGHT_INLINE void atomic_add_pair(u32* to, u32 pair) {
    kernwright_atomic_add_pair(to, pair, KernwrightForm<T>::IS_BF16);
}

KERNWRIGHT_INLINE void atomic_add_4(float* to, const float (&values)[4]) {
    kernwright_atomic_add_4(to, KernwrightFloats4{{values[0], values[1], values[2], values[3]}});
}

#include "kernwright_hopper.h"

// How the library calls a kernel: one function behind the text takes untyped arguments, one names their kinds.
namespace kernwright {

// `p` a pointer, `t` a tensor map, `f` a float, `i` a 32-bit and `l` a 64-bit whole number, `?` anything else.
template <typename T>
struct Kind {
    static constexpr char NAME = '?';
};
template <typename T>
struct Kind<T*> {
    static constexpr char NAME = 'p';
};
template <>
struct Kind<TensorMap> {
    static constexpr char NAME = 't';
};
template <>
struct Kind<float> {
    static constexpr char NAME = 'f';
};
template <>
struct Kind<i32> {
    static constexpr char NAME = 'i';
};
template <>
struct Kind<u32> {
    static constexpr char NAME = 'i';
};
template <>
struct Kind<i64> {
    static constexpr char NAME = 'l';
};
template <>
struct Kind<u64> {
    static constexpr char NAME = 'l';
};

template <u32... NUMBERS>
struct Numbers {};
template <u32 N, u32... NUMBERS>
struct FirstNumbers : FirstNumbers<N - 1, N - 1, NUMBERS...> {};
template <u32... NUMBERS>
struct FirstNumbers<0, NUMBERS...> {
    using All = Numbers<NUMBERS...>;
};

template <typename T>
struct Plain {
    using Type = T;
};
template <typename T>
struct Plain<const T> {
    using Type = T;
};

template <typename... P, u32... NUMBERS>
__attribute__((no_sanitize_thread)) void call(void (*kernel)(P...), void* const* arguments, Numbers<NUMBERS...>) {
    (void)arguments;
    kernel(*static_cast<typename Plain<P>::Type*>(arguments[NUMBERS])...);
}

template <typename... P>
__attribute__((no_sanitize_thread)) void call(void (*kernel)(P...), void* const* arguments) {
    call(kernel, arguments, typename FirstNumbers<sizeof...(P)>::All());
}

template <typename... P>
const char* kinds(void (*)(P...)) {
    static const char names[] = {Kind<typename Plain<P>::Type>::NAME..., 0};
    return names;
}

}  // namespace kernwright

#define KERNWRIGHT_KERNEL(NAME)                                                                                \
    extern "C" __attribute__((no_sanitize_thread)) void kernwright_call(void* const* arguments) {              \
        kernwright::call(&NAME, arguments);                                                                    \
    }                                                                                                          \
    extern "C" const char* kernwright_kinds() { return kernwright::kinds(&NAME); }

// Blocks of a cluster, in x, y and z.
#define KERNWRIGHT_CLUSTER(X, Y, Z) \
    extern "C" u32 kernwright_cluster() { return static_cast<u32>((X) * (Y) * (Z)); }
