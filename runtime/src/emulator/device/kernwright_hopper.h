// The second definition of what the device vocabulary has for sm_90: mbarriers, TMA, products of warpgroups, clusters.
//
// Included by kernwright_emulator.h, whose rules hold. The vocabulary's types are defined behind this file.
#pragma once

struct TensorMap;
struct Mbarrier;
enum class CacheHint : u64;
enum class Major : i32;

#define __grid_constant__
// Read from the text where a kernel is loaded.
#define __cluster_dims__(...)

extern "C" {
u32 kernwright_shared_address(const void* of);
void kernwright_mbarrier_init(void* barrier, u32 arrivals);
void kernwright_mbarrier_arrive(void* barrier, u32 bytes, i32 arrives);
i32 kernwright_mbarrier_try_wait(void* barrier, u32 parity);
void kernwright_mbarrier_wait(void* barrier, u32 parity);
void kernwright_proxy_fence(i32 only_mbarriers);
void kernwright_tma_load(void* to, const void* map, void* barrier, i32 rank, i32 x, i32 y, i32 z, i32 u, i32 v);
void kernwright_tma_store(const void* map, const void* from, i32 rank, i32 x, i32 y, i32 z, i32 u, i32 v);
void kernwright_bulk_load(void* to, const void* from, u32 bytes, void* barrier);
void kernwright_bulk_store(void* to, const void* from, u32 bytes, i32 adds);
void kernwright_bulk_commit();
void kernwright_bulk_wait(i32 newest);
void kernwright_wgmma(float* d, i32 registers, u64 a, u64 b, i32 flags);
void kernwright_wgmma_registers(float* d, i32 registers, u64 a_low, u64 a_high, u64 b, i32 flags);
void kernwright_wgmma_fence();
void kernwright_wgmma_commit();
void kernwright_wgmma_wait(i32 newest);
i32 kernwright_elect_one();
void kernwright_registers(i32 count, i32 acquires);
void kernwright_stmatrix(void* row, u64 low, u64 high, i32 matrices, i32 transposed);
u32 kernwright_cluster_rank();
void kernwright_cluster_arrive();
void kernwright_cluster_wait();
u32 kernwright_cluster_address(const void* own, u32 rank);
KernwrightWords4 kernwright_cluster_load_16(u32 from);
void kernwright_cluster_store_16(u32 to, u64 low, u64 high);
void kernwright_cluster_mbarrier_arrive(u32 barrier);
}

// async.cuh

KERNWRIGHT_INLINE u32 shared_address(const void* of) { return kernwright_shared_address(of); }

// mbarrier.cuh

KERNWRIGHT_INLINE void mbarrier_init(Mbarrier* barrier, u32 arrivals) { kernwright_mbarrier_init(barrier, arrivals); }
KERNWRIGHT_INLINE void fence_mbarrier_init() { kernwright_proxy_fence(1); }
KERNWRIGHT_INLINE void mbarrier_arrive(Mbarrier* barrier) { kernwright_mbarrier_arrive(barrier, 0, 1); }
KERNWRIGHT_INLINE void mbarrier_expect_bytes(Mbarrier* barrier, u32 bytes) {
    kernwright_mbarrier_arrive(barrier, bytes, 0);
}
KERNWRIGHT_INLINE void mbarrier_expect_bytes_and_arrive(Mbarrier* barrier, u32 bytes) {
    kernwright_mbarrier_arrive(barrier, bytes, 1);
}
KERNWRIGHT_INLINE bool mbarrier_try_wait(Mbarrier* barrier, u32 parity) {
    return kernwright_mbarrier_try_wait(barrier, parity) != 0;
}
KERNWRIGHT_INLINE void mbarrier_wait(Mbarrier* barrier, u32 parity) { kernwright_mbarrier_wait(barrier, parity); }
KERNWRIGHT_INLINE void fence_proxy_async() { kernwright_proxy_fence(0); }

// tma.cuh. Hints change no result.

KERNWRIGHT_INLINE void tma_prefetch(const TensorMap&) {}

template <CacheHint HINT = static_cast<CacheHint>(0)>
KERNWRIGHT_INLINE void tma_load(void* to, const TensorMap& map, Mbarrier* barrier, i32 x, i32 y) {
    kernwright_tma_load(to, &map, barrier, 2, x, y, 0, 0, 0);
}
template <CacheHint HINT = static_cast<CacheHint>(0)>
KERNWRIGHT_INLINE void tma_load(void* to, const TensorMap& map, Mbarrier* barrier, i32 x, i32 y, i32 z) {
    kernwright_tma_load(to, &map, barrier, 3, x, y, z, 0, 0);
}
template <CacheHint HINT = static_cast<CacheHint>(0)>
KERNWRIGHT_INLINE void tma_load(void* to, const TensorMap& map, Mbarrier* barrier, i32 x, i32 y, i32 z, i32 u) {
    kernwright_tma_load(to, &map, barrier, 4, x, y, z, u, 0);
}
template <CacheHint HINT = static_cast<CacheHint>(0)>
KERNWRIGHT_INLINE void tma_load(void* to, const TensorMap& map, Mbarrier* barrier, i32 x, i32 y, i32 z, i32 u, i32 v) {
    kernwright_tma_load(to, &map, barrier, 5, x, y, z, u, v);
}
KERNWRIGHT_INLINE void tma_store(const TensorMap& map, const void* from, i32 x, i32 y) {
    kernwright_tma_store(&map, from, 2, x, y, 0, 0, 0);
}
KERNWRIGHT_INLINE void tma_store(const TensorMap& map, const void* from, i32 x, i32 y, i32 z) {
    kernwright_tma_store(&map, from, 3, x, y, z, 0, 0);
}
KERNWRIGHT_INLINE void tma_store(const TensorMap& map, const void* from, i32 x, i32 y, i32 z, i32 u) {
    kernwright_tma_store(&map, from, 4, x, y, z, u, 0);
}
KERNWRIGHT_INLINE void tma_store(const TensorMap& map, const void* from, i32 x, i32 y, i32 z, i32 u, i32 v) {
    kernwright_tma_store(&map, from, 5, x, y, z, u, v);
}
KERNWRIGHT_INLINE void bulk_load(void* to, const void* from, u32 bytes, Mbarrier* barrier) {
    kernwright_bulk_load(to, from, bytes, barrier);
}
KERNWRIGHT_INLINE void bulk_store(void* to, const void* from, u32 bytes) { kernwright_bulk_store(to, from, bytes, 0); }
KERNWRIGHT_INLINE void bulk_add(float* to, const float* from, u32 bytes) { kernwright_bulk_store(to, from, bytes, 1); }
KERNWRIGHT_INLINE void bulk_commit() { kernwright_bulk_commit(); }
template <i32 NEWER>
KERNWRIGHT_INLINE void bulk_wait_read() {
    kernwright_bulk_wait(NEWER);
}
template <i32 NEWER>
KERNWRIGHT_INLINE void bulk_wait() {
    kernwright_bulk_wait(NEWER);
}

// wgmma.cuh. What a product is asked for: see wgmma.cc.

template <i32... N>
KERNWRIGHT_INLINE void wgmma_fence(float (&... d)[N]) {
    kernwright_wgmma_fence();
}
KERNWRIGHT_INLINE void wgmma_commit() { kernwright_wgmma_commit(); }
template <i32 NEWER, i32... N>
KERNWRIGHT_INLINE void wgmma_wait(float (&... d)[N]) {
    kernwright_wgmma_wait(NEWER);
}

template <typename T, Major A = static_cast<Major>(0), Major B = static_cast<Major>(0), i32 REGISTERS>
KERNWRIGHT_INLINE void wgmma_m64k16(float (&d)[REGISTERS], u64 a, u64 b, bool accumulate) {
    kernwright_wgmma(d, REGISTERS, a, b,
                     KernwrightForm<T>::IS_BF16 | (accumulate ? 2 : 0) | static_cast<i32>(A) << 2 | static_cast<i32>(B) << 3);
}
template <typename T, Major B = static_cast<Major>(0), i32 REGISTERS>
KERNWRIGHT_INLINE void wgmma_m64k16(float (&d)[REGISTERS], const u32 (&a)[4], u64 b, bool accumulate) {
    kernwright_wgmma_registers(d, REGISTERS, a[0] | static_cast<u64>(a[1]) << 32, a[2] | static_cast<u64>(a[3]) << 32, b,
                               KernwrightForm<T>::IS_BF16 | (accumulate ? 2 : 0) | static_cast<i32>(B) << 3);
}

// warpgroup.cuh

KERNWRIGHT_INLINE bool elect_one() { return kernwright_elect_one() != 0; }
template <i32 COUNT>
KERNWRIGHT_INLINE void registers_release() {
    static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "a multiple of 8 from 24 to 256");
    kernwright_registers(COUNT, 0);
}
template <i32 COUNT>
KERNWRIGHT_INLINE void registers_acquire() {
    static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "a multiple of 8 from 24 to 256");
    kernwright_registers(COUNT, 1);
}
KERNWRIGHT_INLINE void grid_launch_dependents() {}
KERNWRIGHT_INLINE void grid_dependency_wait() {}

// mma.cuh

KERNWRIGHT_INLINE void stmatrix_x4(void* row, const u32 (&from)[4]) {
    kernwright_stmatrix(row, from[0] | static_cast<u64>(from[1]) << 32, from[2] | static_cast<u64>(from[3]) << 32, 4, 0);
}
KERNWRIGHT_INLINE void stmatrix_x4_transposed(void* row, const u32 (&from)[4]) {
    kernwright_stmatrix(row, from[0] | static_cast<u64>(from[1]) << 32, from[2] | static_cast<u64>(from[3]) << 32, 4, 1);
}
KERNWRIGHT_INLINE void stmatrix_x2(void* row, const u32 (&from)[2]) {
    kernwright_stmatrix(row, from[0] | static_cast<u64>(from[1]) << 32, 0, 2, 0);
}
KERNWRIGHT_INLINE void stmatrix_x2_transposed(void* row, const u32 (&from)[2]) {
    kernwright_stmatrix(row, from[0] | static_cast<u64>(from[1]) << 32, 0, 2, 1);
}

// cluster.cuh

KERNWRIGHT_INLINE u32 cluster_rank() { return kernwright_cluster_rank(); }
KERNWRIGHT_INLINE void cluster_arrive() { kernwright_cluster_arrive(); }
KERNWRIGHT_INLINE void cluster_wait() { kernwright_cluster_wait(); }
KERNWRIGHT_INLINE u32 cluster_address(const void* own, u32 rank) { return kernwright_cluster_address(own, rank); }
KERNWRIGHT_INLINE Words4 cluster_load_16(u32 from) {
    const KernwrightWords4 both = kernwright_cluster_load_16(from);
    return Words4{{static_cast<u32>(both.of[0]), static_cast<u32>(both.of[0] >> 32), static_cast<u32>(both.of[1]),
                   static_cast<u32>(both.of[1] >> 32)}};
}
KERNWRIGHT_INLINE void cluster_store_16(u32 to, Words4 value) {
    kernwright_cluster_store_16(to, value.word[0] | static_cast<u64>(value.word[1]) << 32,
                                value.word[2] | static_cast<u64>(value.word[3]) << 32);
}
KERNWRIGHT_INLINE void cluster_mbarrier_arrive(u32 barrier) { kernwright_cluster_mbarrier_arrive(barrier); }
KERNWRIGHT_INLINE void cluster_mbarrier_wait(Mbarrier* barrier, u32 parity) { kernwright_mbarrier_wait(barrier, parity); }
