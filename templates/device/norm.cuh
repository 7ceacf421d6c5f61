<% include "device/vector.cuh" %>
// What the kernels of norms share: which norm, and the factors of its columns.

enum class Norm { rms, layer };
enum class NormWeight { w, one_plus_w, none };

// The factors of the columns from `column` on: the weight, 1 + that, or 1 where there is none.
template <NormWeight WEIGHT, i32 N>
__device__ __forceinline__ void load_factors(const float* weight, i32 column, float (&to)[N]) {
    if constexpr (WEIGHT != NormWeight::none) load_floats(weight + column, to);
#pragma unroll
    for (i32 i = 0; i < N; ++i) {
        if constexpr (WEIGHT == NormWeight::none) to[i] = 1.0f;
        if constexpr (WEIGHT == NormWeight::one_plus_w) to[i] += 1.0f;
    }
}
