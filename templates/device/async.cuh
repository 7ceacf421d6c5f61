<% include "device/types.cuh" %>
// Copies from global to shared memory that go on while the thread does (sm_80 and later). 16 bytes each, at addresses
// that are multiples of 16. A thread's copies since its last commit are one group.

#ifndef KERNWRIGHT_EMULATOR

// An address in shared memory as instructions take it.
__device__ __forceinline__ u32 shared_address(const void* of) {
    return static_cast<u32>(__cvta_generic_to_shared(of));
}

template <typename T>
__device__ __forceinline__ void cp_async_16(T* to_shared, const T* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to_shared)), "l"(from) : "memory");
}

// Zeros where there is nothing real to read; `from` is not followed then.
template <typename T>
__device__ __forceinline__ void cp_async_16_or_zero(T* to_shared, const T* from, bool real) {
    const i32 bytes = real ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to_shared)), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but this thread's newest `NEWER` groups are there. Others see them behind a barrier.
template <i32 NEWER>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(NEWER) : "memory");
}

#endif
