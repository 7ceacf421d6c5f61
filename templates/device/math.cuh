<% include "device/types.cuh" %>
// Elementary functions under our own names, so that each has one meaning on every device.

#ifndef KERNWRIGHT_EMULATOR

__device__ __forceinline__ float exponential(float x) { return expf(x); }
// e^x - 1 and ln(1 + x), exact near zero.
__device__ __forceinline__ float exponential_minus_1(float x) { return expm1f(x); }
__device__ __forceinline__ float logarithm_1_plus(float x) { return log1pf(x); }
__device__ __forceinline__ float square_root(float x) { return sqrtf(x); }
// 1 / sqrt(x), within 2 ulp.
__device__ __forceinline__ float reciprocal_root(float x) { return rsqrtf(x); }
__device__ __forceinline__ float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ __forceinline__ float error_function(float x) { return erff(x); }
// Sine and cosine of pi x.
__device__ __forceinline__ void sine_cosine_pi(float x, float& sine, float& cosine) { sincospif(x, &sine, &cosine); }

#endif

// Sine and cosine of an angle counted in turns / 2^64. A product `position * turns` wraps around by itself, so no
// position is too large; what is left to round is one conversion to fp32.
__device__ __forceinline__ void sine_cosine_turns(u64 turns, float& sine, float& cosine) {
    sine_cosine_pi(static_cast<float>(static_cast<i64>(turns)) * 0x1p-63f, sine, cosine);
}

// 1 / (1 + e^-x)
__device__ __forceinline__ float logistic(float x) { return 1.0f / (1.0f + exponential(-x)); }

// Compile-time only, within a few ulp: log2 of a number above zero, 2^x.
__device__ constexpr double constant_log2(double x) {
    double whole = 0.0;
    while (x >= 1.5) {
        x *= 0.5;
        whole += 1.0;
    }
    while (x < 0.75) {
        x *= 2.0;
        whole -= 1.0;
    }
    // 2 artanh(r), by its series; |r| <= 1/5.
    const double r = (x - 1.0) / (x + 1.0);
    double power = r;
    double sum = 0.0;
    for (i32 k = 1; k < 48; k += 2) {
        sum += power / k;
        power *= r * r;
    }
    return whole + 2.0 * sum * 1.4426950408889634074;
}

__device__ constexpr double constant_exp2(double x) {
    double scale = 1.0;
    while (x > 0.5) {
        x -= 1.0;
        scale *= 2.0;
    }
    while (x < -0.5) {
        x += 1.0;
        scale *= 0.5;
    }
    const double y = x * 0.6931471805599453094;
    double term = 1.0;
    double sum = 1.0;
    for (i32 k = 1; k < 24; ++k) {
        term *= y / k;
        sum += term;
    }
    return sum * scale;
}
