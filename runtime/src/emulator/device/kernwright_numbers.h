// Narrow floating-point numbers as the GPU rounds them: to nearest, ties to even. For kernels and the emulator alike,
// on plain bits and without any system header.
#pragma once

namespace kernwright {

inline float float_of_word(unsigned bits) {
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}

inline unsigned word_of_float(float value) {
    unsigned bits;
    __builtin_memcpy(&bits, &value, 4);
    return bits;
}

// NaN becomes 0x7fff, as `cvt` makes it.
inline unsigned short bf16_of_float(float value) {
    const unsigned bits = word_of_float(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float float_of_bf16_bits(unsigned short bits) { return float_of_word(static_cast<unsigned>(bits) << 16); }

// NaN becomes 0x7fff, as `cvt` makes it.
inline unsigned short fp16_of_float(float value) {
    const unsigned bits = word_of_float(value);
    const unsigned sign = bits >> 16 & 0x8000u;
    const unsigned size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fff;
    // 65520 is the least that rounds to infinity.
    if (size >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00u);
    if (size >= 0x38800000u) {
        const unsigned rounded = size + 0xfffu + (size >> 13 & 1u);
        return static_cast<unsigned short>(sign | ((rounded - 0x38000000u) >> 13));
    }
    // Below the normal numbers fp16 counts in steps of 2^-24: adding 1/2 puts that step at the last bit of an fp32,
    // and the addition rounds.
    const float shifted = float_of_word(size) + 0.5f;
    return static_cast<unsigned short>(sign | (word_of_float(shifted) - 0x3f000000u));
}

inline float float_of_fp16_bits(unsigned short bits) {
    const unsigned sign = (bits & 0x8000u) << 16;
    const unsigned size = bits & 0x7fffu;
    if (size >= 0x7c00u) return float_of_word(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    if (size >= 0x400u) return float_of_word(sign | ((size << 13) + 0x38000000u));
    const float value = static_cast<float>(size) * 0x1p-24f;
    return sign ? -value : value;
}

}  // namespace kernwright
