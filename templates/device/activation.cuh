<% include "device/math.cuh" %>
// Activation functions and their slopes. What a gated kind does to its gate stands under the gate's own name: swiglu is
// silu, geglu gelu, geglu_tanh gelu_tanh.
//   gelu:       x (1 + erf(x / sqrt 2)) / 2
//   gelu_tanh:  x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
//   silu:       x / (1 + e^-x)
//   relu:       max(x, 0)
//   relu2:      max(x, 0)^2

enum class Activation { swiglu, geglu, geglu_tanh, gelu, gelu_tanh, relu, relu2 };

// The value at x, and the slope there.
template <Activation KIND>
__device__ __forceinline__ float activate(float x, float& slope) {
    if constexpr (KIND == Activation::swiglu) {
        const float s = logistic(x);
        slope = s * (1.0f + x * (1.0f - s));
        return x * s;
    } else if constexpr (KIND == Activation::gelu || KIND == Activation::geglu) {
        constexpr float SQRT_HALF = 0.70710678118654752f;
        constexpr float ONE_OVER_SQRT_2_PI = 0.39894228040143268f;
        const float share = 0.5f * (1.0f + error_function(x * SQRT_HALF));
        slope = share + x * ONE_OVER_SQRT_2_PI * exponential(-0.5f * x * x);
        return x * share;
    } else if constexpr (KIND == Activation::gelu_tanh || KIND == Activation::geglu_tanh) {
        constexpr float SQRT_2_OVER_PI = 0.79788456080286536f;
        constexpr float CUBIC = 0.044715f;
        const float h = hyperbolic_tangent(SQRT_2_OVER_PI * (x + CUBIC * x * x * x));
        const float inner = SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * x * x);
        slope = 0.5f * (1.0f + h) + 0.5f * x * (1.0f - h * h) * inner;
        return 0.5f * x * (1.0f + h);
    } else if constexpr (KIND == Activation::relu) {
        // A number that is none is passed on: only what is not above zero goes.
        const bool off = x <= 0.0f;
        slope = off ? 0.0f : 1.0f;
        return off ? 0.0f : x;
    } else {
        const bool off = x <= 0.0f;
        slope = off ? 0.0f : 2.0f * x;
        return off ? 0.0f : x * x;
    }
}

// The value alone.
template <Activation KIND>
__device__ __forceinline__ float activate(float x) {
    float slope;
    return activate<KIND>(x, slope);
}
