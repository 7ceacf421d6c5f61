<% include "device/vector.cuh" %>
<% include "device/math.cuh" %>
<% include "device/mask.cuh" %>
<% include "device/warp.cuh" %>
// Rows of attention scores in memory. A warp owns a row; a lane takes WIDTH neighbours of every ROW_STEP, the same ones
// whenever the row is walked.

constexpr i32 WIDTH = 8;
constexpr i32 ROW_STEP = WARP_SIZE * WIDTH;

constexpr float LOG2_E = 1.44269504088896341f;

// A product x of query and key becomes the score s = cap tanh(scale x / cap), or scale x where cap is 0; what is given is
// s log2 e, and the slope ds/dx.
__device__ __forceinline__ float exponent_of_score(float product, float scale, float cap, float& slope) {
    if (cap > 0.0f) {
        const float h = hyperbolic_tangent(product * (scale / cap));
        slope = (1.0f - h * h) * scale;
        return h * (cap * LOG2_E);
    }
    slope = scale;
    return product * (scale * LOG2_E);
}

// WIDTH elements from `column` on. Those from `end` on are not read: nobody wrote them.
__device__ __forceinline__ void load_scores(const float* row, i32 column, i32 end, float (&to)[WIDTH]) {
    if (column + WIDTH <= end) {
        load_floats(row + column, to);
    } else {
#pragma unroll
        for (i32 i = 0; i < WIDTH; ++i) to[i] = column + i < end ? row[column + i] : 0.0f;
    }
}
