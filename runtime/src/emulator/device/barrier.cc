// Barriers of a block, and what they order.
//
// A barrier is passed by whole warps: the lanes of one gather first. It counts threads, a warp always as 32, as the
// hardware does; number 0 with every thread is the block's own. Clocks: a warp's time goes on at each barrier it arrives
// at, and whoever waits there has then seen everything up to the times at which the others arrived. `checks.cc` asks these
// clocks whether two accesses are ordered. A warp that only arrives learns nothing.
#include "model.h"

namespace kernwright {

// What one has seen, another has seen from here on.
void join_clocks(Block& block, u32* to, const u32* from) {
    const u32 n = block.hopper->is_used ? MOST_AGENTS : block.worker->n_warps;
    for (u32 i = 0; i < n; ++i) to[i] = to[i] < from[i] ? from[i] : to[i];
}

[[noreturn]] static void disagree(Thread& thread, Fault fault, Operation operation, u64 found, u64 expected) {
    Report& report = begin_report(thread, fault);
    report.operation = static_cast<u32>(operation);
    report.detail = found;
    report.other_detail = expected;
    fail(thread);
}

// The last lane of a warp counts the warp in.
static void count_in(Thread& thread, Operation operation, u32 id, u32 threads, bool waits) {
    Block& block = *thread.block;
    Warp& warp = *thread.warp;
    const u32 own_bit = 1u << (&warp - block.warps);
    NamedBarrier& barrier = block.barriers[id];
    if (barrier.expected == 0) {
        barrier.expected = threads;
        barrier.arrived = 0;
        barrier.waiting = 0;
        barrier.earliest = &thread;
        memset(barrier.joined, 0, sizeof barrier.joined);
    } else if (barrier.expected != threads) {
        disagree(thread, Fault::barrier_count, operation, threads, barrier.expected);
    } else if (operation == Operation::barrier && block.launch->checks &&
               !same_place(thread, barrier.earliest->site, thread.site)) {
        Report& report = begin_report(thread, Fault::divergent_block);
        report.operation = static_cast<u32>(operation);
        report.other_operation = static_cast<u32>(barrier.earliest->operation);
        report.other_thread = barrier.earliest->index;
        report.other_site = barrier.earliest->site;
        fail(thread);
    }
    barrier.arrived += WARP;
    join_clocks(block, barrier.joined, warp.clock);
    ++warp.clock[warp.number];
    if (waits) barrier.waiting |= own_bit;
    const bool is_full = barrier.arrived >= barrier.expected;
    if (is_full) {
        for (u32 w = 0; w < block.n_warps; ++w) {
            if (!(barrier.waiting >> w & 1)) continue;
            join_clocks(block, block.warps[w].clock, barrier.joined);
            // Nobody of a waiting warp runs: its last lane waits too, unless that is this thread.
            if (1u << w == own_bit) continue;
            Warp& other = block.warps[w];
            for (u32 i = 0; i < other.threads; ++i) {
                other.first[i].operation = Operation::nothing;
                resume(other.first[i]);
            }
        }
        barrier.expected = 0;
    }
    if (waits && !is_full) {
        wait(thread);
    } else {
        release(warp, thread);
    }
}

static void pass(Operation operation, u64 site, i32 id, u32 threads, bool waits) {
    Thread& thread = *current;
    thread.detail = static_cast<u32>(id);
    if (id < 0 || id >= static_cast<i32>(NAMED_BARRIERS)) {
        disagree(thread, Fault::barrier_id, operation, static_cast<u64>(static_cast<u32>(id)), NAMED_BARRIERS);
    }
    const u32 whole = thread.block->n_warps * WARP;
    if (threads == 0 || threads % WARP != 0 || threads > whole) {
        disagree(thread, Fault::barrier_count, operation, threads, 0);
    }
    if (arrive(thread, operation, site, nullptr)) {
        // Its lanes wait on until the barrier lets the whole warp go.
        count_in(thread, operation, static_cast<u32>(id), threads, waits);
    }
}

}  // namespace kernwright

using namespace kernwright;

extern "C" {

void kernwright_barrier() {
    pass(Operation::barrier, KERNWRIGHT_SITE, 0, current->block->n_warps * WARP, true);
}

void kernwright_named_barrier(i32 id, i32 threads) {
    pass(Operation::named_barrier, KERNWRIGHT_SITE, id, static_cast<u32>(threads), true);
}

void kernwright_named_barrier_arrive(i32 id, i32 threads) {
    pass(Operation::named_barrier_arrive, KERNWRIGHT_SITE, id, static_cast<u32>(threads), false);
}
}
