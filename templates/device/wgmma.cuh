<% include "device/async.cuh" %>
// Products of a warpgroup (sm_90a): d (64 x N, fp32) = a (64 x 16) b (16 x N) + d, asynchronously, of bf16 or fp16. b lies
// in shared memory, a there too or in registers. wgmma_products.cuh.tera has the instructions.
//
//     wgmma_fence(d);                                    // registers are as they shall be
//     for (...) wgmma_m64k16<bf16>(d, a, b, i > 0);      // d = a b, then d += a b
//     wgmma_commit();                                    // one group
//     wgmma_wait<0>(d);                                  // until it is done; until then nobody touches d, a or b
//
// Fragments (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16"), with w the warp of the warpgroup, g = lane / 4,
// t = lane % 4:
//   d  d[4 j + i]: row 16 w + g + 8 (i / 2), column 8 j + 2 t + i % 2
//   a  a[i], a pair: row 16 w + g + 8 (i % 2), columns 2 t + 8 (i / 2) and the next
// So two neighbouring groups of 4 of d, rounded to pairs, are the a of 16 columns, as for mma_m16n8k16.

// How the 16-byte words of shared memory are exchanged: word w (address / 16) lies at w ^ (address / 128) % n, with n the
// words of the swizzle: 2, 4 or 8. The numbers are those of a descriptor.
enum class Swizzle : u32 { none = 0, bytes_128 = 1, bytes_64 = 2, bytes_32 = 3 };

// Which elements of an operand are neighbours in memory: those of one row of a (one column of b), or of one k.
enum class Major : i32 { k = 0, mn = 1 };

template <typename ONE, typename OTHER>
struct Same {
    enum : bool { TYPE = false };
};
template <typename T>
struct Same<T, T> {
    enum : bool { TYPE = true };
};

#ifndef KERNWRIGHT_EMULATOR

// Registers that instructions have in use are, for the compiler, new from here on: no access moves across.
template <i32 N>
__device__ __forceinline__ void renew_registers(float (&d)[N]) {
#pragma unroll
    for (i32 i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Before the first product, and whenever registers of the next ones (d or a) were touched.
template <i32... N>
__device__ __forceinline__ void wgmma_fence(float (&... d)[N]) {
    (renew_registers(d), ...);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// The products since the last commit become a group.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits for all but the newest `NEWER` groups. Name the results that are read behind it: their products are then done.
template <i32 NEWER, i32... N>
__device__ __forceinline__ void wgmma_wait(float (&... d)[N]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(NEWER) : "memory");
    (renew_registers(d), ...);
}

#endif

// A matrix in shared memory, from `at` on; 16 elements of k are read. In bytes, multiples of 16:
//   Major::k, swizzled by S:   rows of S bytes, 8 of them without gaps; `stride` from 8 rows to the next (8 S when they
//                              follow each other), `leading` is not used. The next 16 of k: 32 bytes on.
//   Major::mn, swizzled by S:  rows of S bytes of one k, 8 k without gaps; `stride` from 8 k to the next (8 S when they
//                              follow each other), `leading` from S bytes of rows to the next S bytes.
//   no swizzle:                pieces of 8 x 16 bytes without gaps. Major::k: `leading` to the next piece along k, `stride`
//                              to the next 8 rows. Major::mn: `leading` to the next 8 k, `stride` to the next 8 rows.
// S bytes: 128, 64, 32. The pattern of the swizzle begins at multiples of 8 S.
__device__ __forceinline__ u64 wgmma_matrix(const void* at, Swizzle swizzle, u32 leading, u32 stride) {
    const u64 start = (shared_address(at) & 0x3ffff) >> 4;
    return start | static_cast<u64>(leading >> 4 & 0x3fff) << 16 | static_cast<u64>(stride >> 4 & 0x3fff) << 32 |
           static_cast<u64>(swizzle) << 62;
}

// The same matrix from so many bytes further on.
__device__ __forceinline__ u64 wgmma_further(u64 matrix, u32 bytes) {
    // The address is in the lower word and does not leave it.
    return (matrix & 0xffffffff00000000ull) | (static_cast<u32>(matrix) + (bytes >> 4));
}
