<% include "device/attention_backward.cuh" %>
<% include "device/mask.cuh" %>
// The score stage of attention's gradient where rows of a product are keys, and columns queries.

// S^T of this warp's 16 keys from `key` on and the queries from `query` on: scores become what dP - delta is multiplied by, P or
// P (1 - (S / c)^2); P itself goes, rounded, to `p`. lse is log2(e) times that, and lies as `statistic_place` says.
// With HAS_NEAR a warp whose products are all near 0 does without the cap's exponentials.
template <typename T, bool CAPPED, bool HAS_NEAR, typename SEEN, i32 N>
__device__ __forceinline__ void probabilities(float (&scores)[N], u32 (&p)[N / 8][4], const float* lse, float scale, float cap,
                                              bool is_edge, SEEN mask, i32 query, i32 key, i32 lane) {
    constexpr i32 QUERIES = 2 * N;
    if (is_edge) {
        // The queries that see each of the lane's two keys, counted from the lane's first; those behind the sequence have P = 0.
        const i32 first = query + lane % 4 * 2;
        i32 begin[2];
        i32 end[2];
#pragma unroll
        for (i32 i = 0; i < 2; ++i) {
            const i32 own = key + lane / 4 + 8 * i;
            begin[i] = own < mask.keys ? mask.first_query(own) - first : QUERIES;
            end[i] = SEEN::WINDOWED ? mask.end_query(own) - first : QUERIES;
        }
#pragma unroll
        for (i32 i = 0; i < QUERIES / 2; ++i) {
            const i32 at = i / 4 * 8 + i % 2;
            const bool seen = at >= begin[i % 4 / 2] && at < end[i % 4 / 2];
            scores[i] = seen ? scores[i] : float_of_bits(MINUS_INFINITY_BITS);
        }
    }
    const auto weigh = [&](auto of) {
#pragma unroll
        for (i32 n = 0; n < QUERIES / 16; ++n) {
            const Words4 lse2 = load_16(lse + 16 * n + lane % 4 * 4);
            float slopes[8];
#pragma unroll
            for (i32 i = 0; i < 8; ++i) {
                float& value = scores[8 * n + i];
                value = of(value, float_of_bits(lse2.word[i / 4 * 2 + i % 2]), slopes[i]);
            }
#pragma unroll
            for (i32 i = 0; i < 4; ++i) p[n][i] = pack<T>(scores[8 * n + 2 * i], scores[8 * n + 2 * i + 1]);
#pragma unroll
            for (i32 i = 0; i < 8; ++i) scores[8 * n + i] *= slopes[i];
        }
    };
    // What is not seen is near nothing.
    if (CAPPED && HAS_NEAR && all_near(scores, scale / cap)) {
        weigh([&](float product, float lse2, float& slope) { return near_probability(product, scale, cap, lse2, slope); });
    } else {
        weigh([&](float product, float lse2, float& slope) {
            const float value = probability<CAPPED>(product, scale, cap, lse2, slope);
            // A softcap has no score of minus infinity.
            return CAPPED && bits_of_float(product) == MINUS_INFINITY_BITS ? 0.0f : value;
        });
    }
}
