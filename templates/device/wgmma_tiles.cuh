<% include "device/tma.cuh" %>
<% include "device/mma.cuh" %>
<% include "device/warp.cuh" %>
<% include "device/wgmma_products.cuh.tera" %>
// Tiles of rows in shared memory as TMA fills them and wgmma reads them, and products over them (sm_90a).
//
// A tile is ROWS x COLUMNS elements of a 2-byte type in blocks of 64 columns: block after block, each of ROWS rows of 128
// bytes with a swizzle of 128 bytes. The last block may have columns of which nobody reads. A tile begins at a multiple
// of 1024 bytes, its ROWS are a multiple of 8.

template <typename T, i32 ROWS, i32 COLUMNS>
struct RowTile {
    static_assert(sizeof(T) == 2 && ROWS % 8 == 0 && COLUMNS % 16 == 0, "whole patterns, whole depths");
    using Element = T;
    static constexpr i32 BLOCKS = (COLUMNS + 63) / 64;
    // From one block of columns to the next.
    static constexpr u32 BLOCK_BYTES = ROWS * 128;
    static constexpr i32 BYTES = BLOCKS * BLOCK_BYTES;

    // Copies rows of a head, from a map of columns x rows x heads x sequences with boxes of 64 x ROWS x 1 x 1. The barrier
    // is to expect BYTES.
    static __device__ __forceinline__ void load(u8* to, const TensorMap& map, Mbarrier* barrier, i32 head, i32 row,
                                                i32 sequence) {
#pragma unroll
        for (i32 block = 0; block < BLOCKS; ++block) {
            tma_load(to + block * BLOCK_BYTES, map, barrier, 64 * block, row, head, sequence);
        }
    }

    // Operands whose rows are rows of the tile from `row` on, a multiple of 8: begin there; the next 16 columns are `across`
    // bytes on.
    static __device__ __forceinline__ u64 rows_from(const u8* tile, i32 row) {
        return wgmma_matrix(tile + row * 128, Swizzle::bytes_128, 16, 1024);
    }
    static __device__ __forceinline__ constexpr u32 across(i32 depth) {
        return depth / 4 * BLOCK_BYTES + depth % 4 * 32;
    }

    // Operands whose rows are columns of the tile from `column` on, at most to the end of its block or from a multiple of 64
    // on: begin there; the next 16 rows are `down` bytes on.
    static __device__ __forceinline__ u64 columns_from(const u8* tile, i32 column) {
        return wgmma_matrix(tile + column / 64 * BLOCK_BYTES + column % 64 * 2, Swizzle::bytes_128, BLOCK_BYTES, 1024);
    }
    static __device__ __forceinline__ constexpr u32 down(i32 depth) { return depth * 2048; }

    // Stores an operand a, 16 x 16, transposed: its columns become rows from `row` on, its rows columns from `column` on, both
    // multiples of 16.
    static __device__ __forceinline__ void store_transposed(u8* tile, i32 row, i32 column, const u32 (&a)[4], i32 lane) {
        const i32 word = column % 64 / 8 + lane / 8 % 2;
        u8* const block = tile + column / 64 * BLOCK_BYTES + row * 128;
        stmatrix_x4_transposed(block + (lane / 16 * 8 + lane % 8) * 128 + (word ^ lane % 8) * 16, a);
    }
};

// sum = a b^T over DEPTH columns: a 64 rows of a tile from `row` on, b all rows of another.
template <typename A, typename B, i32 DEPTH, i32 N>
__device__ __forceinline__ void product_transposed(float (&sum)[N], const u8* a_tile, i32 row, const u8* b_tile) {
    const u64 a = A::rows_from(a_tile, row);
    const u64 b = B::rows_from(b_tile, 0);
#pragma unroll
    for (i32 depth = 0; depth < DEPTH / 16; ++depth) {
        wgmma_m64k16<typename A::Element>(sum, wgmma_further(a, A::across(depth)), wgmma_further(b, B::across(depth)),
                                          depth > 0);
    }
}

// sum = a b over DEPTH columns of a, rows of b: a 64 rows of a tile from `row` on, b columns of another from `column` on.
template <typename A, typename B, i32 DEPTH, i32 N>
__device__ __forceinline__ void product(float (&sum)[N], const u8* a_tile, i32 row, const u8* b_tile, i32 column) {
    const u64 a = A::rows_from(a_tile, row);
    const u64 b = B::columns_from(b_tile, column);
#pragma unroll
    for (i32 depth = 0; depth < DEPTH / 16; ++depth) {
        wgmma_m64k16<typename A::Element, Major::k, Major::mn>(sum, wgmma_further(a, A::across(depth)),
                                                               wgmma_further(b, B::down(depth)), depth > 0);
    }
}

// sum += a b, a in registers, b the columns of a tile from the first on.
template <typename B, i32 N, i32 DEPTHS>
__device__ __forceinline__ void add_product_of(float (&sum)[N], const u32 (&a)[DEPTHS][4], const u8* b_tile) {
    const u64 b = B::columns_from(b_tile, 0);
#pragma unroll
    for (i32 depth = 0; depth < DEPTHS; ++depth) {
        wgmma_m64k16<typename B::Element, Major::mn>(sum, a[depth], wgmma_further(b, B::down(depth)), true);
    }
}
