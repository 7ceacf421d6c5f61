<% include "device/mbarrier.cuh" %>
// Copies between global and shared memory by a unit of their own (sm_90 and later): boxes of tensors, which a TensorMap
// describes, and plain bytes. One thread issues a copy for all.
//
// To shared memory: its bytes arrive at an Mbarrier that expects them, those of the whole box, what lies outside of the
// tensor (zeros) included. From shared memory: behind `fence_proxy_async` and a barrier; a thread's copies since its last
// commit are one group, which it waits for: until shared memory was read, or until all is written. What lies outside of
// the tensor is not written.
//
// Coordinates are those of the box's first element, innermost first. A box of a map with a swizzle of S bytes lies in
// rows of S bytes; its 16-byte words are exchanged as Swizzle in wgmma.cuh tells. Addresses in shared memory: multiples of
// 128, with a swizzle of 8 S.

// A parameter `const __grid_constant__ TensorMap` of the kernel, made by the host.
struct alignas(128) TensorMap {
    u64 opaque[16];
};

// What becomes of a copy's lines in the L2 cache; the words that the instructions take.
enum class CacheHint : u64 {
    normal = 0x1000000000000000ull,
    evict_first = 0x12f0000000000000ull,
    evict_last = 0x14f0000000000000ull,
};

#ifndef KERNWRIGHT_EMULATOR

// Fetches the description itself, once, before its first use.
__device__ __forceinline__ void tma_prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// A box of 2 to 5 dimensions to shared memory.
template <CacheHint HINT = CacheHint::normal>
__device__ __forceinline__ void tma_load(void* to_shared, const TensorMap& map, Mbarrier* barrier, i32 x, i32 y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to_shared)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "l"(static_cast<u64>(HINT))
        : "memory");
}

template <CacheHint HINT = CacheHint::normal>
__device__ __forceinline__ void tma_load(void* to_shared, const TensorMap& map, Mbarrier* barrier, i32 x, i32 y, i32 z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to_shared)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "l"(static_cast<u64>(HINT))
        : "memory");
}

template <CacheHint HINT = CacheHint::normal>
__device__ __forceinline__ void tma_load(void* to_shared, const TensorMap& map, Mbarrier* barrier, i32 x, i32 y, i32 z,
                                         i32 u) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(to_shared)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(u), "l"(static_cast<u64>(HINT))
        : "memory");
}

template <CacheHint HINT = CacheHint::normal>
__device__ __forceinline__ void tma_load(void* to_shared, const TensorMap& map, Mbarrier* barrier, i32 x, i32 y, i32 z,
                                         i32 u, i32 v) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
        " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared_address(to_shared)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v), "l"(static_cast<u64>(HINT))
        : "memory");
}

// A box of shared memory to its place in the tensor.
__device__ __forceinline__ void tma_store(const TensorMap& map, const void* from_shared, i32 x, i32 y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
                 "r"(shared_address(from_shared)), "r"(x), "r"(y)
                 : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap& map, const void* from_shared, i32 x, i32 y, i32 z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
                 "r"(shared_address(from_shared)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap& map, const void* from_shared, i32 x, i32 y, i32 z, i32 u) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
                 "r"(shared_address(from_shared)), "r"(x), "r"(y), "r"(z), "r"(u)
                 : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap& map, const void* from_shared, i32 x, i32 y, i32 z, i32 u,
                                          i32 v) {
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
                 "r"(shared_address(from_shared)), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v)
                 : "memory");
}

// Plain bytes, a multiple of 16 at multiples of 16.
__device__ __forceinline__ void bulk_load(void* to_shared, const void* from, u32 bytes, Mbarrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to_shared)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

__device__ __forceinline__ void bulk_store(void* to, const void* from_shared, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from_shared)), "r"(bytes)
                 : "memory");
}

// Adds floats to those of global memory, each for itself, in whatever order copies come.
__device__ __forceinline__ void bulk_add(float* to, const float* from_shared, u32 bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from_shared)), "r"(bytes)
                 : "memory");
}

// Closes a group of this thread's copies from shared memory.
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until all but this thread's newest `NEWER` groups have read shared memory, which may then be written again.
template <i32 NEWER>
__device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(NEWER) : "memory");
}

// Waits until they have written global memory. A kernel's end waits for all.
template <i32 NEWER>
__device__ __forceinline__ void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(NEWER) : "memory");
}

#endif
