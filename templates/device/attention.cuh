<% include "device/mma.cuh" %>
<% include "device/math.cuh" %>
<% include "device/mask.cuh" %>
<% include "device/warp.cuh" %>
// What the kernels of attention share: tiles in shared memory, their copies and fragments, the softcap.
//
// A tile is rows of COLUMNS elements of a 2-byte type, a multiple of 16, without gaps. Its 16-byte words lie swizzled: word w
// of row r at w ^ (r / S % (8 / S)) with S the rows that 8 banks of 16 bytes take to repeat. So 8 neighbouring rows of one
// column of words, which is what ldmatrix reads, fall into 8 different banks, and 8 neighbouring words of a row do too:
// neither copies nor fragments conflict, at any width.

// Columns of a tile for heads of `head_dim`: whole depths of an mma. The last 8 are zeros where head_dim is no multiple of 16.
__device__ constexpr i32 padded_columns(i32 head_dim) { return (head_dim + 15) / 16 * 16; }

template <typename T, i32 COLUMNS>
struct Tile {
    static_assert(sizeof(T) == 2 && COLUMNS % 16 == 0, "rows of whole mma depths of a 2-byte type");
    static constexpr i32 WORDS = COLUMNS / 8;
    // Words of a row that change places among themselves, and the rows that keep theirs together.
    static constexpr i32 SWIZZLED = WORDS % 8 == 0 ? 8 : WORDS % 4 == 0 ? 4 : 2;
    static constexpr i32 TOGETHER = 8 / SWIZZLED;

    // The block's shared memory, and the tile's first element there, at a multiple of 128 bytes.
    T* room;
    i32 begin;

    // Where word `word` of row `row` lies.
    __device__ __forceinline__ T* at(i32 row, i32 word) const {
        const i32 swizzle = (row / TOGETHER) & (SWIZZLED - 1);
        return room + begin + row * COLUMNS + (word ^ swizzle) * 8;
    }

    // The same of row `row + lane_row` and word `word + lane_word`, for a row that is a multiple of 8, and an even word with
    // a lane_word of 0 or 1, or the word 0. One register holds what depends on the lane; the rest are constants.
    __device__ __forceinline__ T* at(i32 row, i32 word, i32 lane_row, i32 lane_word) const {
        const i32 swizzle = (lane_row / TOGETHER) & (SWIZZLED - 1);
        const i32 lane = begin + lane_row * COLUMNS + (lane_word ^ swizzle) * 8;
        return room + (lane ^ (word & (SWIZZLED - 1)) * 8) + (row * COLUMNS + word / SWIZZLED * SWIZZLED * 8);
    }
};

// Begins to copy rows `first`, `first + 1`, ... of a tensor with rows of `stride` elements to the ROWS rows of a tile, by
// all THREADS threads of the block. `from` is the head's first element in row 0. Rows from `end` on, and columns from
// HEAD_DIM on, become zeros and are not read.
template <i32 HEAD_DIM, i32 ROWS, i32 THREADS, typename T, i32 COLUMNS>
__device__ __forceinline__ void copy_tile(Tile<T, COLUMNS> to, const T* from, i32 stride, i32 first, i32 end,
                                          i32 thread = static_cast<i32>(threadIdx.x)) {
    constexpr i32 WORDS = COLUMNS / 8;
    // A thread keeps its word. Rows 8 apart are swizzled alike; some threads stay idle for that.
    constexpr i32 ALL_AT_ONCE = THREADS / WORDS;
    constexpr i32 AT_ONCE = ALL_AT_ONCE > 8 ? ALL_AT_ONCE / 8 * 8 : ALL_AT_ONCE;
    const i32 word = thread % WORDS;
    const i32 own = thread / WORDS;
    if (AT_ONCE * WORDS != THREADS && own >= AT_ONCE) return;
    const T* source = from + static_cast<i64>(first + own) * stride + word * 8;
    const i64 step = static_cast<i64>(AT_ONCE) * stride;
    const i32 left = HEAD_DIM == COLUMNS || word * 8 < HEAD_DIM ? end - first - own : 0;
#pragma unroll
    for (i32 begin = 0; begin < ROWS; begin += AT_ONCE) {
        if (begin + AT_ONCE > ROWS && begin + own >= ROWS) break;
        T* const target = AT_ONCE % 8 == 0 ? to.at(begin, 0, own, word) : to.at(begin + own, word);
        cp_async_16_or_zero(target, source, begin < left);
        source += step;
    }
}

#ifndef KERNWRIGHT_EMULATOR

// The same number, of which the compiler knows nothing. Addresses that depend on it are computed anew where they are needed:
// kept in registers across a loop, as they would be, they would cost more than they save.
template <typename WORD>
__device__ __forceinline__ WORD renewed(WORD value) {
    static_assert(sizeof(WORD) == 4, "a register");
    asm volatile("" : "+r"(value));
    return value;
}

#else

template <typename WORD>
WORD renewed(WORD value) {
    return value;
}

#endif

// Fragments, of 16 x 16 elements from row `row` (a multiple of 8) and word `word` (even) on, for this lane.

// Operand a of rows that lie in rows of the tile.
template <typename T, i32 COLUMNS>
__device__ __forceinline__ void load_a(u32 (&a)[4], Tile<T, COLUMNS> tile, i32 row, i32 word,
                                       i32 lane = lane_index()) {
    ldmatrix_x4(a, tile.at(row, word, lane & 15, lane / 16));
}

// Operand a of rows that lie in columns of the tile: its transpose.
template <typename T, i32 COLUMNS>
__device__ __forceinline__ void load_a_transposed(u32 (&a)[4], Tile<T, COLUMNS> tile, i32 row, i32 word,
                                                  i32 lane = lane_index()) {
    ldmatrix_x4_transposed(a, tile.at(row, word, (lane & 7) + lane / 16 * 8, lane / 8 & 1));
}

// Two operands b, side by side, whose columns are rows of the tile: the right side of a product `x tile^T`.
template <typename T, i32 COLUMNS>
__device__ __forceinline__ void load_b_transposed(u32 (&b)[2][2], Tile<T, COLUMNS> tile, i32 row, i32 word,
                                                  i32 lane = lane_index()) {
    u32 all[4];
    ldmatrix_x4(all, tile.at(row, word, (lane & 7) + lane / 16 * 8, lane / 8 & 1));
#pragma unroll
    for (i32 i = 0; i < 4; ++i) b[i / 2][i % 2] = all[i];
}

// Two operands b, side by side, whose rows are rows of the tile: the right side of a product `x tile`.
template <typename T, i32 COLUMNS>
__device__ __forceinline__ void load_b(u32 (&b)[2][2], Tile<T, COLUMNS> tile, i32 row, i32 word,
                                       i32 lane = lane_index()) {
    u32 all[4];
    ldmatrix_x4_transposed(all, tile.at(row, word, lane & 15, lane / 16));
#pragma unroll
    for (i32 i = 0; i < 4; ++i) b[i / 2][i % 2] = all[i];
}

// Two neighbouring fragments d become the operand a whose 16 columns are theirs, rounded to T.
template <typename T>
__device__ __forceinline__ void a_of_d(u32 (&a)[4], const float (&left)[4], const float (&right)[4]) {
    a[0] = pack<T>(left[0], left[1]);
    a[1] = pack<T>(left[2], left[3]);
    a[2] = pack<T>(right[0], right[1]);
    a[3] = pack<T>(right[2], right[3]);
}

// FACTOR tanh(x) / x of x^2 below NEAR_SQUARE: the polynomial whose greatest relative error there is least (9.8e-8), in powers of
// some `square` of which x^2 is FOLD times that.
[[maybe_unused]] __device__ constexpr float NEAR_SQUARE = 0.16f;
__device__ __forceinline__ float near_tangent(float square, float fold, float factor) {
    float ratio = -0.0475536037f * factor * fold * fold * fold * square + 0.132709768f * factor * fold * fold;
    ratio = ratio * square - 0.333313625f * factor * fold;
    return ratio * square + 0.999999902f * factor;
}

// Are all of a warp's products, times `inner`, so near 0? Not where fp32 has no powers of `inner` for the polynomial.
template <i32 N>
__device__ __forceinline__ bool all_near(const float (&products)[N], float inner) {
    if (!(inner > 0x1p-15f && inner < 0x1p15f)) return false;
    float greatest = 0.0f;
#pragma unroll
    for (i32 i = 0; i < N; ++i) greatest = maximum(greatest, magnitude(products[i]));
    greatest *= inner;
    return ballot(!(greatest * greatest < NEAR_SQUARE)) == 0;
}

// The same further on, below MIDDLE_SQUARE (1.6e-8).
__device__ constexpr float MIDDLE_SQUARE = 0.49f;
__device__ __forceinline__ float middle_tangent(float square) {
    float ratio = -0.00513865752f * square + 0.0200919658f;
    ratio = ratio * square - 0.05355886f;
    ratio = ratio * square + 0.13329111f;
    ratio = ratio * square - 0.333331913f;
    return ratio * square + 1.0f;
}

// tanh(x) within 3 units in the last place. Small scores are as exact as their sums are: near 0, 1 - 2 / (1 + e^2x) would lose
// their last digits.
__device__ __forceinline__ float cap_tangent(float x) {
    constexpr float TWO_LOG2_E = 2.88539008177792681f;
    const float square = x * x;
    const float near = middle_tangent(square) * x;
    const float far = 1.0f - 2.0f * reciprocal(1.0f + exponential_2(TWO_LOG2_E * x));
    return square < MIDDLE_SQUARE ? near : far;
}
