// What the compiler calls at every plain access of a kernel, by `-fsanitize=thread`: the names are its own.
//
// A thread's own stack is local memory; it is let through by one comparison. The hook's return address lies at the access.
#include "model.h"

namespace kernwright {

static inline void hook(const void* at, u32 bytes, Access access, u64 site) {
    if (bytes == 0) return;
    Thread& thread = *current;
    const u64 address = reinterpret_cast<u64>(at);
    if (address - thread.stack_low < STACK_BYTES) {
        if (!thread.in_flight.empty()) check_registers(thread, address, bytes, access);
        return;
    }
    check(thread, address, bytes, access, site);
    if (thread.block->launch->counters != nullptr) count_access(thread, address, bytes, site);
}

}  // namespace kernwright

using namespace kernwright;

#define KERNWRIGHT_HOOKS(WIDTH)                                                                            \
    void __tsan_read##WIDTH(void* at) { hook(at, WIDTH, Access::read, KERNWRIGHT_SITE); }                  \
    void __tsan_write##WIDTH(void* at) { hook(at, WIDTH, Access::write, KERNWRIGHT_SITE); }                \
    void __tsan_unaligned_read##WIDTH(void* at) { hook(at, WIDTH, Access::read, KERNWRIGHT_SITE); }        \
    void __tsan_unaligned_write##WIDTH(void* at) { hook(at, WIDTH, Access::write, KERNWRIGHT_SITE); }      \
    void __tsan_volatile_read##WIDTH(void* at) { hook(at, WIDTH, Access::read, KERNWRIGHT_SITE); }         \
    void __tsan_volatile_write##WIDTH(void* at) { hook(at, WIDTH, Access::write, KERNWRIGHT_SITE); }       \
    void __tsan_unaligned_volatile_read##WIDTH(void* at) { hook(at, WIDTH, Access::read, KERNWRIGHT_SITE); } \
    void __tsan_unaligned_volatile_write##WIDTH(void* at) { hook(at, WIDTH, Access::write, KERNWRIGHT_SITE); }

extern "C" {

KERNWRIGHT_HOOKS(1)
KERNWRIGHT_HOOKS(2)
KERNWRIGHT_HOOKS(4)
KERNWRIGHT_HOOKS(8)
KERNWRIGHT_HOOKS(16)

void __tsan_read_range(void* at, unsigned long bytes) {
    hook(at, static_cast<u32>(bytes), Access::read, KERNWRIGHT_SITE);
}

void __tsan_write_range(void* at, unsigned long bytes) {
    hook(at, static_cast<u32>(bytes), Access::write, KERNWRIGHT_SITE);
}

// Some compilers turn copies of whole objects into these.
void* __tsan_memcpy(void* to, const void* from, unsigned long bytes) {
    hook(from, static_cast<u32>(bytes), Access::read, KERNWRIGHT_SITE);
    hook(to, static_cast<u32>(bytes), Access::write, KERNWRIGHT_SITE);
    return memcpy(to, from, bytes);
}

void* __tsan_memmove(void* to, const void* from, unsigned long bytes) {
    hook(from, static_cast<u32>(bytes), Access::read, KERNWRIGHT_SITE);
    hook(to, static_cast<u32>(bytes), Access::write, KERNWRIGHT_SITE);
    return memmove(to, from, bytes);
}

void* __tsan_memset(void* to, int value, unsigned long bytes) {
    hook(to, static_cast<u32>(bytes), Access::write, KERNWRIGHT_SITE);
    return memset(to, value, bytes);
}

void __tsan_init() {}

void __tsan_func_entry(void*) {
    if (current == nullptr) return;
    Thread& thread = *current;
    if (reinterpret_cast<u64>(__builtin_frame_address(0)) - thread.stack_low >= STACK_RESERVE) return;
    begin_report(thread, Fault::stack);
    fail(thread);
}

void __tsan_func_exit() {}
}
