<% include "device/types.cuh" %>
// Vector access to memory. `load_16` and kin move 16 (8, 4) bytes at an address that is a multiple of 16 (8, 4).
// `load_floats` and `store_floats` walk rows of any float type in fp32, 4 or 8 elements a time, or 1 where rows do not
// come in whole words.

// 16 bytes of T: 4 floats or 8 of a 2-byte type.
template <typename T>
struct alignas(16) Pack {
    static constexpr i32 COUNT = 16 / sizeof(T);
    T of[COUNT];
};

#ifndef KERNWRIGHT_EMULATOR

template <typename T>
__device__ __forceinline__ Words4 load_16(const T* from) {
    return *reinterpret_cast<const Words4*>(from);
}

template <typename T>
__device__ __forceinline__ Words2 load_8(const T* from) {
    return *reinterpret_cast<const Words2*>(from);
}

// Two neighbours of a 2-byte type.
template <typename T>
__device__ __forceinline__ u32 load_4(const T* from) {
    return *reinterpret_cast<const u32*>(from);
}

template <typename T>
__device__ __forceinline__ void store_4(T* to, u32 value) {
    *reinterpret_cast<u32*>(to) = value;
}

template <typename T>
__device__ __forceinline__ void store_16(T* to, Words4 value) {
    *reinterpret_cast<Words4*>(to) = value;
}

template <typename T>
__device__ __forceinline__ void store_8(T* to, Words2 value) {
    *reinterpret_cast<Words2*>(to) = value;
}

#endif

template <i32 N>
__device__ __forceinline__ void load_floats(const float* from, float (&to)[N]) {
    static_assert(N == 1 || N % 4 == 0, "one, or a whole number of 16-byte words");
    if constexpr (N == 1) to[0] = *from;
#pragma unroll
    for (i32 part = 0; part + 4 <= N; part += 4) {
        const Words4 words = load_16(from + part);
#pragma unroll
        for (i32 i = 0; i < 4; ++i) to[part + i] = float_of_bits(words.word[i]);
    }
}

template <typename T, i32 N>
__device__ __forceinline__ void load_floats(const T* from, float (&to)[N]) {
    static_assert(sizeof(T) == 2, "a 2-byte type");
    static_assert(N == 1 || N == 4 || N % 8 == 0, "one, 8 bytes or a whole number of 16-byte words");
    if constexpr (N == 1) {
        to[0] = to_float(*from);
    } else if constexpr (N == 4) {
        const Words2 words = load_8(from);
#pragma unroll
        for (i32 i = 0; i < 2; ++i) {
            to[2 * i] = unpack_low<T>(words.word[i]);
            to[2 * i + 1] = unpack_high<T>(words.word[i]);
        }
    } else {
#pragma unroll
        for (i32 part = 0; part < N; part += 8) {
            const Words4 words = load_16(from + part);
#pragma unroll
            for (i32 i = 0; i < 4; ++i) {
                to[part + 2 * i] = unpack_low<T>(words.word[i]);
                to[part + 2 * i + 1] = unpack_high<T>(words.word[i]);
            }
        }
    }
}

template <i32 N>
__device__ __forceinline__ void store_floats(float* to, const float (&from)[N]) {
    static_assert(N == 1 || N % 4 == 0, "one, or a whole number of 16-byte words");
    if constexpr (N == 1) *to = from[0];
#pragma unroll
    for (i32 part = 0; part + 4 <= N; part += 4) {
        Words4 words;
#pragma unroll
        for (i32 i = 0; i < 4; ++i) words.word[i] = bits_of_float(from[part + i]);
        store_16(to + part, words);
    }
}

template <typename T, i32 N>
__device__ __forceinline__ void store_floats(T* to, const float (&from)[N]) {
    static_assert(sizeof(T) == 2, "a 2-byte type");
    static_assert(N == 1 || N == 4 || N % 8 == 0, "one, 8 bytes or a whole number of 16-byte words");
    if constexpr (N == 1) {
        *to = from_float<T>(from[0]);
    } else if constexpr (N == 4) {
        Words2 words;
#pragma unroll
        for (i32 i = 0; i < 2; ++i) words.word[i] = pack<T>(from[2 * i], from[2 * i + 1]);
        store_8(to, words);
    } else {
#pragma unroll
        for (i32 part = 0; part < N; part += 8) {
            Words4 words;
#pragma unroll
            for (i32 i = 0; i < 4; ++i) words.word[i] = pack<T>(from[part + 2 * i], from[part + 2 * i + 1]);
            store_16(to + part, words);
        }
    }
}

// 8 neighbours of any float type as they lie in memory: in registers a 2-byte type takes half the room of fp32.
template <typename T>
struct Eight {
    static constexpr i32 WORDS = 8 * sizeof(T) / sizeof(Words4);
    Words4 words[WORDS];
};

template <typename T>
__device__ __forceinline__ void load_eight(const T* from, Eight<T>& to) {
#pragma unroll
    for (i32 i = 0; i < Eight<T>::WORDS; ++i) to.words[i] = load_16(from + i * Pack<T>::COUNT);
}

__device__ __forceinline__ void unpack_eight(const Eight<float>& from, float (&to)[8]) {
#pragma unroll
    for (i32 i = 0; i < 8; ++i) to[i] = float_of_bits(from.words[i / 4].word[i % 4]);
}

template <typename T>
__device__ __forceinline__ void unpack_eight(const Eight<T>& from, float (&to)[8]) {
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
        to[2 * i] = unpack_low<T>(from.words[0].word[i]);
        to[2 * i + 1] = unpack_high<T>(from.words[0].word[i]);
    }
}

// Where an element of a tensor lies whose rows of COLUMNS begin `stride` apart; with COLUMNS = 0 it has no gaps.
template <i32 COLUMNS>
__device__ __forceinline__ i64 place(i64 element, i64 stride) {
    if constexpr (COLUMNS > 0) {
        return element / COLUMNS * stride + element % COLUMNS;
    } else {
        return element;
    }
}
