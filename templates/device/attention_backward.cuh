<% include "device/attention.cuh" %>
<% include "device/atomics.cuh" %>
<% include "device/block.cuh" %>
<% include "device/head_place.cuh" %>
<% include "device/tiles.cuh" %>
<% include "device/vector.cuh" %>
// What the kernels of attention's gradient share: products of fragments, the way of a gradient to memory, and the sums of
// d_q that many blocks add to.

[[maybe_unused]] constexpr float LOG2_E = 1.44269504088896341f;
[[maybe_unused]] constexpr u32 INFINITY_BITS = 0x7f800000u;
[[maybe_unused]] constexpr u32 MINUS_INFINITY_BITS = 0xff800000u;

// sum += a b^T. Both begin in the tiles at rows `left` and `right` and are as many fragments high as `sum` says. With LOADED,
// `loaded` is a.
template <bool LOADED, i32 PARTS, i32 N, typename T, i32 COLUMNS>
__device__ __forceinline__ void add_product_transposed(float (&sum)[PARTS][N][4], Tile<T, COLUMNS> a_tile,
                                                       const u32 (&loaded)[PARTS][LOADED ? COLUMNS / 16 : 1][4], i32 left,
                                                       Tile<T, COLUMNS> b_tile, i32 right) {
    static_assert(N % 2 == 0, "fragments b come in pairs");
    const i32 lane = renewed(lane_index());
    constexpr i32 DEPTHS = COLUMNS / 16;
    // A loop of a few depths; unrolled as a whole, it would begin before the work ahead of it has given its registers back.
    constexpr i32 AT_ONCE = LOADED ? DEPTHS : 4;
#pragma unroll AT_ONCE
    for (i32 depth = 0; depth < DEPTHS; ++depth) {
        u32 a[PARTS][4];
#pragma unroll
        for (i32 part = 0; part < PARTS; ++part) {
            if constexpr (LOADED) {
#pragma unroll
                for (i32 i = 0; i < 4; ++i) a[part][i] = loaded[part][depth][i];
            } else {
                load_a(a[part], a_tile, left + 16 * part, 2 * depth, lane);
            }
        }
#pragma unroll
        for (i32 n = 0; n < N; n += 2) {
            u32 b[2][2];
            load_b_transposed(b, b_tile, right + 8 * n, 2 * depth, lane);
#pragma unroll
            for (i32 part = 0; part < PARTS; ++part) {
                mma_m16n8k16<T>(sum[part][n], a[part], b[0]);
                mma_m16n8k16<T>(sum[part][n + 1], a[part], b[1]);
            }
        }
    }
}

// sum += a b, b from the 16 rows of `tile` from `row` on and its columns from word `word` on, which is even where N is.
template <i32 PARTS, i32 N, typename T, i32 COLUMNS>
__device__ __forceinline__ void add_product(float (&sum)[PARTS][N][4], const u32 (&a)[PARTS][4], Tile<T, COLUMNS> tile,
                                            i32 row, i32 word, i32 lane) {
#pragma unroll
    for (i32 n = 0; n < N; n += 2) {
        u32 b[2][2];
        if constexpr (N % 2 == 0) {
            load_b(b, tile, row, word + n, lane);
        } else {
            ldmatrix_x2_transposed(b[0], tile.at(row + (lane & 15), word + n));
            if (n + 1 < N) ldmatrix_x2_transposed(b[1], tile.at(row + (lane & 15), word + n + 1));
        }
#pragma unroll
        for (i32 part = 0; part < PARTS; ++part) {
            mma_m16n8k16<T>(sum[part][n], a[part], b[0]);
            if (n + 1 < N) mma_m16n8k16<T>(sum[part][n + 1], a[part], b[1]);
        }
    }
}

// Rounds fragments d to operands a.
template <typename T, i32 PARTS, i32 N>
__device__ __forceinline__ void round_to_a(u32 (&a)[PARTS][N / 2][4], const float (&d)[PARTS][N][4]) {
#pragma unroll
    for (i32 part = 0; part < PARTS; ++part) {
#pragma unroll
        for (i32 n = 0; n < N; n += 2) a_of_d<T>(a[part][n / 2], d[part][n], d[part][n + 1]);
    }
}

// What exponents of 2 are lowered by: lse, or where a query sees nothing and that is minus infinity, so much that P is 0.
__device__ __forceinline__ float exponent_of_lse(float lse) {
    return bits_of_float(lse) == MINUS_INFINITY_BITS ? float_of_bits(INFINITY_BITS) : lse * LOG2_E;
}

// exp(S - lse) of a product of query and key, lse2 = lse log2(e); `slope` gets the derivative of S by the scaled product.
// Behind a softcap c, with r = 1 / (1 + e^2x) = (1 - tanh x) / 2: S = c - 2 c r, slope = 4 (r - r^2), in half as many instructions
// as by tanh x itself. S is then within 4e-7 c, which moves P less than its rounding does; large caps take the exact tangent.
template <bool CAPPED>
__device__ __forceinline__ float probability(float product, float scale, float softcap, float lse2, float& slope) {
    if constexpr (CAPPED) {
        if (softcap > 1000.0f) {
            const float tangent = cap_tangent(product * (scale / softcap));
            slope = 1.0f - tangent * tangent;
            return exponential_2(tangent * (softcap * LOG2_E) - lse2);
        }
        const float r = reciprocal(1.0f + exponential_2(product * (2.0f * LOG2_E * scale / softcap)));
        slope = 4.0f * (r - r * r);
        return exponential_2(r * (-2.0f * LOG2_E * softcap) + (softcap * LOG2_E - lse2));
    } else {
        slope = 1.0f;
        return exponential_2(product * (scale * LOG2_E) - lse2);
    }
}

// The same of products of which all are near 0, with no exponential beside its own.
__device__ __forceinline__ float near_probability(float product, float scale, float softcap, float lse2, float& slope) {
    const float inner = scale / softcap;
    const float unit = 1.0f / (softcap * LOG2_E);
    const float exponent = product * near_tangent(product * product, inner * inner, scale * LOG2_E);
    slope = 1.0f - exponent * exponent * (unit * unit);
    return exponential_2(exponent - lse2);
}

// Floats of shared memory through which `write_rows` passes: 8 more columns keep neighbouring rows in different banks.
__device__ constexpr i32 gradient_floats(i32 rows, i32 columns) { return rows * (columns + 8); }

// to (+)= factor * sum, 8 columns per thread and 16 bytes at a time. This warp's fragments begin at row `row` and column
// `column` of the block's; `to` is the block's first row, of which n_rows are real. `room` is shared memory.
template <i32 COLUMNS, i32 HEAD_DIM, i32 THREADS, i32 PARTS, i32 N, typename Out>
__device__ __forceinline__ void write_rows(Out* to, i32 stride, const float (&sum)[PARTS][N][4], float factor, i32 add,
                                           float* room, i32 row, i32 column, i32 n_rows) {
    constexpr i32 PITCH = COLUMNS + 8;
    const i32 lane = lane_index();
    // Guards `room`: what was there is no longer read.
    barrier();
#pragma unroll
    for (i32 part = 0; part < PARTS; ++part) {
#pragma unroll
        for (i32 n = 0; n < N; ++n) {
#pragma unroll
            for (i32 half = 0; half < 2; ++half) {
                const i32 at = row + 16 * part + 8 * half + lane / 4;
                const Words2 pair = {{bits_of_float(sum[part][n][2 * half] * factor),
                                      bits_of_float(sum[part][n][2 * half + 1] * factor)}};
                store_8(room + at * PITCH + column + 8 * n + lane % 4 * 2, pair);
            }
        }
    }
    // Guards `room`: all of the gradient is there.
    barrier();
    constexpr i32 WORDS = HEAD_DIM / 8;
    // Half of the lanes read their second 16 bytes first: so 8 neighbours meet in no bank.
    const bool late = lane / 4 % 2 == 1;
    for (i32 index = threadIdx.x; index < n_rows * WORDS; index += THREADS) {
        const i32 at = index / WORDS;
        const i32 word = index % WORDS;
        const float* const own = room + at * PITCH + word * 8;
        const Words4 one = load_16(own + (late ? 4 : 0));
        const Words4 other = load_16(own + (late ? 0 : 4));
        float values[8];
#pragma unroll
        for (i32 i = 0; i < 4; ++i) {
            values[i] = float_of_bits(late ? other.word[i] : one.word[i]);
            values[4 + i] = float_of_bits(late ? one.word[i] : other.word[i]);
        }
        Out* const place = to + static_cast<i64>(at) * stride + word * 8;
        if (add) {
            float old[8];
            load_floats(place, old);
#pragma unroll
            for (i32 i = 0; i < 8; ++i) values[i] += old[i];
        }
        store_floats(place, values);
    }
}

// The same by one warp, for its own 16 rows, whose fragments d lie one behind the other. `room` is the warp's own.
template <i32 COLUMNS, i32 HEAD_DIM, typename Out>
__device__ __forceinline__ void write_own_rows(Out* to, i32 stride, const float (&sum)[COLUMNS / 2], float factor, i32 add,
                                               float* room, i32 n_rows, i32 lane) {
    constexpr i32 PITCH = COLUMNS + 8;
    constexpr i32 WORDS = HEAD_DIM / 8;
    // Guards `room`: what was there is no longer read.
    warp_barrier();
#pragma unroll
    for (i32 i = 0; i < COLUMNS / 2; i += 2) {
        const i32 row = lane / 4 + i % 4 / 2 * 8;
        const Words2 pair = {{bits_of_float(sum[i] * factor), bits_of_float(sum[i + 1] * factor)}};
        store_8(room + row * PITCH + i / 4 * 8 + lane % 4 * 2, pair);
    }
    // Guards `room`: all rows are there.
    warp_barrier();
    for (i32 index = lane; index < n_rows * WORDS; index += WARP_SIZE) {
        const i32 row = index / WORDS;
        const i32 column = index % WORDS * 8;
        float values[8];
        load_floats(room + row * PITCH + column, values);
        Out* const place = to + static_cast<i64>(row) * stride + column;
        if (add) {
            float old[8];
            load_floats(place, old);
#pragma unroll
            for (i32 i = 0; i < 8; ++i) values[i] += old[i];
        }
        store_floats(place, values);
    }
}

// Makes n_rows rows of a gradient zeros, unless it is added to, 8 columns per thread at a time.
template <i32 HEAD_DIM, i32 THREADS, typename Out>
__device__ __forceinline__ void write_zeros(Out* to, i32 stride, i32 add, i32 n_rows) {
    constexpr i32 WORDS = HEAD_DIM / 8;
    if (add) return;
    for (i32 index = threadIdx.x; index < n_rows * WORDS; index += THREADS) {
        const float zeros[8] = {};
        store_floats(to + static_cast<i64>(index / WORDS) * stride + index % WORDS * 8, zeros);
    }
}

// d_q_sum, fp32, lies as the lanes of a warp hold it: for each sequence and head, each 16 rows (the last ones padded) and
// each 8 columns a fragment d of 128 floats, so that a warp adds one to 512 bytes in a row: lane by lane where 16 bytes are
// added at once, elsewhere register by register.
#ifdef KERNWRIGHT_EMULATOR
constexpr bool ADDS_16_BYTES = true;
#else
constexpr bool ADDS_16_BYTES = __CUDA_ARCH__ >= 900;
#endif

// Floats of a sequence and head before its 16 rows from `row` on.
template <i32 HEAD_DIM>
__device__ __forceinline__ i64 sum_place(i64 unit, i32 length, i32 row) {
    return (unit * ((length + 15) / 16) + row / 16) * (16 * HEAD_DIM);
}

__device__ __forceinline__ void add_fragment(float* to, const float (&d)[4]) {
    const i32 lane = lane_index();
    if constexpr (ADDS_16_BYTES) {
        atomic_add_4(to + lane * 4, d);
    } else {
#pragma unroll
        for (i32 i = 0; i < 4; ++i) atomic_add(to + i * 32 + lane, d[i]);
    }
}

// Rows `row` and `row + 8` of a fragment.
__device__ __forceinline__ void load_fragment_rows(const float* from, i32 row, float (&low)[8], float (&high)[8]) {
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
        const Words4 words = load_16(from + (ADDS_16_BYTES ? row * 16 + i * 4 : i * 32 + row * 4));
#pragma unroll
        for (i32 of = 0; of < 4; ++of) {
            // Words are registers of lane i, or register i of the lanes.
            const i32 held = ADDS_16_BYTES ? of : i;
            const i32 column = 2 * (ADDS_16_BYTES ? i : of) + held % 2;
            if (held < 2) low[column] = float_of_bits(words.word[of]);
            else high[column] = float_of_bits(words.word[of]);
        }
    }
}
