<% include "device/mbarrier.cuh" %>
// Blocks that run together and reach each other's shared memory (sm_90 and later). A kernel says how many with
// `__cluster_dims__(n, 1, 1)` behind `__global__ void`; its grid is a multiple of that.

#ifndef KERNWRIGHT_EMULATOR

// This block's number in its cluster.
__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// A barrier of all threads of the cluster, in two halves: what was written before one arrives is seen by who waited.
__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// An address of shared memory as the block of that rank has it, for the functions below.
__device__ __forceinline__ u32 cluster_address(const void* own, u32 rank) {
    u32 address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(own)), "r"(rank));
    return address;
}

__device__ __forceinline__ Words4 cluster_load_16(u32 from) {
    Words4 value;
    asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
                 : "r"(from)
                 : "memory");
    return value;
}

__device__ __forceinline__ void cluster_store_16(u32 to, Words4 value) {
    asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(value.word[0]), "r"(value.word[1]),
                 "r"(value.word[2]), "r"(value.word[3])
                 : "memory");
}

// Arrives at another block's barrier.
__device__ __forceinline__ void cluster_mbarrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Waits for arrivals of other blocks too: what they did before is seen.
__device__ __forceinline__ void cluster_mbarrier_wait(Mbarrier* barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "again:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [%0], %1;\n"
        "@!ended bra again;\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

#endif

// Waits for every thread of the cluster.
__device__ __forceinline__ void cluster_barrier() {
    cluster_arrive();
    cluster_wait();
}
