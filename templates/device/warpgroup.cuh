<% include "device/warp.cuh" %>
// Four warps that work together (sm_90 and later): warps 4 g to 4 g + 3. How many registers their threads have, one thread
// that acts for a warp, and how a grid meets the one before it.

constexpr i32 WARPGROUP_SIZE = 128;

#ifndef KERNWRIGHT_EMULATOR

// True for one lane of the warp, always the same. All lanes take part.
__device__ __forceinline__ bool elect_one() {
    u32 is_elected;
    asm volatile(
        "{\n"
        ".reg .pred elected;\n"
        "elect.sync _|elected, 0xffffffff;\n"
        "selp.b32 %0, 1, 0, elected;\n"
        "}"
        : "=r"(is_elected)::"memory");
    return is_elected != 0;
}

// Every thread of a warpgroup gives registers back, or takes what others gave back and waits for it. COUNT is what each
// has then, a multiple of 8 from 24 to 256. The kernel has `__launch_bounds__(threads, 1)`, which decides what each begins
// with.
template <i32 COUNT>
__device__ __forceinline__ void registers_release() {
    static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "a multiple of 8 from 24 to 256");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <i32 COUNT>
__device__ __forceinline__ void registers_acquire() {
    static_assert(COUNT >= 24 && COUNT <= 256 && COUNT % 8 == 0, "a multiple of 8 from 24 to 256");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Where the next grid was launched to overlap this one: it may start when all blocks said so or ended, and what they wrote
// is seen behind its wait. Where grids do not overlap, nothing happens.
__device__ __forceinline__ void grid_launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

#endif

// The same for all lanes of a warp, and known to the compiler to be.
__device__ __forceinline__ i32 warpgroup_index() {
    return shuffle(static_cast<i32>(threadIdx.x) / WARPGROUP_SIZE, 0);
}
