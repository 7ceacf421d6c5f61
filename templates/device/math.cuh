<% include "device/types.cuh" %>
// Elementary functions under our own names, so that each has one meaning on every device.

#ifndef KERNWRIGHT_EMULATOR

__device__ __forceinline__ float exponential(float x) { return expf(x); }
// 2^x within 2 ulp, and 0 of minus infinity; log2 x within 2 ulp away from 1. One instruction each.
__device__ __forceinline__ float exponential_2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
__device__ __forceinline__ float logarithm_2(float x) {
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
// 1 / x within 1 ulp, and 0 of infinity. One instruction.
__device__ __forceinline__ float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
// The greater one; of a number and what is none, the number.
__device__ __forceinline__ float maximum(float x, float y) { return fmaxf(x, y); }
__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
// x y + z, rounded once.
__device__ __forceinline__ float fused_multiply_add(float x, float y, float z) { return fmaf(x, y, z); }
// e^x - 1 and ln(1 + x), exact near zero.
__device__ __forceinline__ float exponential_minus_1(float x) { return expm1f(x); }
__device__ __forceinline__ float logarithm_1_plus(float x) { return log1pf(x); }
__device__ __forceinline__ float natural_logarithm(float x) { return logf(x); }
__device__ __forceinline__ float square_root(float x) { return sqrtf(x); }
// 1 / sqrt(x), within 2 ulp.
__device__ __forceinline__ float reciprocal_root(float x) { return rsqrtf(x); }
__device__ __forceinline__ float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ __forceinline__ float error_function(float x) { return erff(x); }
// Sine and cosine of pi x.
__device__ __forceinline__ void sine_cosine_pi(float x, float& sine, float& cosine) { sincospif(x, &sine, &cosine); }

#endif

// Neither infinite nor no number: not all bits of the exponent are set.
__device__ __forceinline__ bool is_finite(float x) { return (bits_of_float(x) & 0x7f800000u) != 0x7f800000u; }

// Sine and cosine of an angle counted in turns / 2^64. A product `position * turns` wraps around by itself, so no
// position is too large; what is left to round is one conversion to fp32.
__device__ __forceinline__ void sine_cosine_turns(u64 turns, float& sine, float& cosine) {
    sine_cosine_pi(static_cast<float>(static_cast<i64>(turns)) * 0x1p-63f, sine, cosine);
}

// 1 / (1 + e^-x)
__device__ __forceinline__ float logistic(float x) { return 1.0f / (1.0f + exponential(-x)); }
