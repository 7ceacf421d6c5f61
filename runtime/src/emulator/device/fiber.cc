// Fibers: a stack for each CUDA thread, and the switch between two of them.
//
// A stack is 384 KiB of lazily committed memory with a page below it that cannot be touched. Stacks are a few pages apart
// from a power of two, and each begins at another cache line: were they all alike, the tops of all would fight for one set
// of the cache. On x86-64 a switch saves the six registers that a function must keep, and swaps stack pointers; elsewhere
// ucontext does it, five times slower.
#include "model.h"

#include <sys/mman.h>
#include <unistd.h>

#if !defined(__x86_64__) || defined(KERNWRIGHT_UCONTEXT)
#define KERNWRIGHT_PORTABLE
#include <ucontext.h>
#endif

namespace kernwright {

static size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

Worker::Worker() : threads(MOST_THREADS), ready_first(0), n_ready(0), home(nullptr), running(nullptr), has_failed(false) {
    const size_t page = page_bytes();
    stack_stride = STACK_BYTES + 3 * page;
    void* const room =
        mmap(nullptr, stack_stride * MOST_THREADS, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    stacks = room == MAP_FAILED ? nullptr : static_cast<u8*>(room);
    for (u32 i = 0; i < MOST_THREADS; ++i) {
        threads[i].worker = this;
        threads[i].stack_low = 0;
    }
}

Worker::~Worker() {
    if (stacks != nullptr) munmap(stacks, stack_stride * MOST_THREADS);
}

// Makes the thread's stack usable. Everything around it stays out of reach.
static void open_stack(Thread& thread) {
    if (thread.stack_low != 0) return;
    u8* const low = thread.worker->stacks + thread.number * thread.worker->stack_stride + page_bytes();
    mprotect(low, STACK_BYTES, PROT_READ | PROT_WRITE);
    thread.stack_low = reinterpret_cast<u64>(low);
}

static u64 stack_top(const Thread& thread) { return thread.stack_low + STACK_BYTES - 192 * (thread.number % 61); }

#ifdef KERNWRIGHT_PORTABLE

// A saved stack pointer is a ucontext; those of threads lie at the tops of their stacks.
void start(Thread& thread, void (*entry)()) {
    open_stack(thread);
    const u64 top = (stack_top(thread) - sizeof(ucontext_t)) & ~u64{63};
    ucontext_t* const context = reinterpret_cast<ucontext_t*>(top);
    getcontext(context);
    context->uc_stack.ss_sp = reinterpret_cast<void*>(thread.stack_low);
    context->uc_stack.ss_size = top - thread.stack_low;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
    thread.stack_pointer = context;
}

void switch_stacks(void** from, void* to) {
    ucontext_t here;
    // A thread's own room is used again; the host thread's lies in this frame, which waits here.
    ucontext_t* const own = *from != nullptr ? static_cast<ucontext_t*>(*from) : &here;
    *from = own;
    swapcontext(own, static_cast<ucontext_t*>(to));
    if (own == &here) *from = nullptr;
}

#else

asm(R"(
    .text
    .p2align 4
    .hidden kernwright_switch
    .globl kernwright_switch
    .type kernwright_switch, @function
kernwright_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size kernwright_switch, .-kernwright_switch
)");

extern "C" __attribute__((visibility("hidden"))) void kernwright_switch(void** from, void* to);

void start(Thread& thread, void (*entry)()) {
    open_stack(thread);
    u64* const top = reinterpret_cast<u64*>(stack_top(thread) & ~u64{15});
    // From the top: a return address of zero, where a debugger stops; the entry, to which the switch returns; six
    // registers. The entry then finds its stack as a call would leave it: 8 bytes off a multiple of 16.
    top[-1] = 0;
    top[-2] = reinterpret_cast<u64>(entry);
    for (int i = 3; i <= 8; ++i) top[-i] = 0;
    thread.stack_pointer = top - 8;
}

void switch_stacks(void** from, void* to) { kernwright_switch(from, to); }

#endif

}  // namespace kernwright
