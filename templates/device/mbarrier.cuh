<% include "device/async.cuh" %>
// Barriers in shared memory that count arrivals of threads and bytes of asynchronous copies (sm_90 and later), and the
// fences between ordinary accesses and those of the asynchronous units.
//
// A barrier is in a phase, 0 at first. The phase ends when as many threads arrived as `mbarrier_init` said and as many
// bytes came as were expected. `mbarrier_wait` with parity p waits for the end of the phase of that parity which is the
// current one or the one before: a fresh barrier lets parity 1 through at once, and parity 0 when phase 0 ends. Who waited
// sees what those who arrived did before, and what the copies brought.

// At a multiple of 8 bytes of shared memory; nothing else may lie there.
struct alignas(8) Mbarrier {
    u64 state;
};

#ifndef KERNWRIGHT_EMULATOR

// By one thread, before anybody uses it: then `fence_mbarrier_init`, then a barrier of the block (the cluster).
__device__ __forceinline__ void mbarrier_init(Mbarrier* barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Shows barriers that this thread made to the copies and to the other blocks of the cluster.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(Mbarrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// The phase does not end before so many more bytes came. Before the copies are issued.
__device__ __forceinline__ void mbarrier_expect_bytes(Mbarrier* barrier, u32 bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Both at once, in this order.
__device__ __forceinline__ void mbarrier_expect_bytes_and_arrive(Mbarrier* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Whether that phase has ended; waits a little for it.
__device__ __forceinline__ bool mbarrier_try_wait(Mbarrier* barrier, u32 parity) {
    u32 has_ended;
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.b32 %0, 1, 0, ended;\n"
        "}"
        : "=r"(has_ended)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
    return has_ended != 0;
}

__device__ __forceinline__ void mbarrier_wait(Mbarrier* barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
        "@!ended bra again;\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

// What this thread wrote to shared memory by ordinary stores, and what it saw others write, is seen by the asynchronous
// units (copies to global memory, wgmma) that are told to read it afterwards. By the writers, before the barrier behind
// which the reader is issued.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#endif
