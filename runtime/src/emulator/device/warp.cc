// A warp's exchanges: 32 threads leave operands, the last to arrive computes for all.
//
// All lanes of a warp must arrive, and at one and the same place: on the GPU such an instruction in a diverged warp waits
// for ever or gives what nobody defined. A lane that is missing because the block is no multiple of 32 is not waited for.
#include "model.h"

namespace kernwright {

bool same_place(const Thread& thread, u64 one, u64 other) {
    if (one == other) return true;
    // A compiler may have made two copies of one line.
    const Launch& launch = *thread.block->launch;
    return launch.same_place != nullptr && launch.same_place(launch.context, one, other) != 0;
}

// Notes that a thread is here. True for the last of its warp, which computes and then calls `release`; the others come
// back when it has.
bool arrive(Thread& thread, Operation operation, u64 site, void* operands) {
    Warp& warp = *thread.warp;
    thread.operation = operation;
    thread.site = site;
    thread.operands = operands;
    if (warp.arrived == 0) {
        warp.earliest = &thread;
    } else {
        const Thread& earliest = *warp.earliest;
        const bool is_checked = thread.block->launch->checks != 0;
        if (earliest.operation != operation || (is_checked && !same_place(thread, earliest.site, site))) {
            Report& report = begin_report(thread, Fault::divergent_warp);
            report.operation = static_cast<u32>(operation);
            report.other_operation = static_cast<u32>(earliest.operation);
            report.other_thread = earliest.index;
            report.other_site = earliest.site;
            fail(thread);
        }
    }
    if (++warp.arrived == warp.threads) {
        warp.arrived = 0;
        if (thread.block->launch->counters != nullptr) count_meeting(thread, operation, site);
        return true;
    }
    wait(thread);
    return false;
}

// Lets the others of a rendezvous go on.
void release(Rendezvous& rendezvous, Thread& last) {
    for (u32 i = 0; i < rendezvous.threads; ++i) {
        Thread& thread = rendezvous.first[i];
        thread.operation = Operation::nothing;
        if (&thread != &last) resume(thread);
    }
}

struct Exchange {
    u32 value;
    u32 lane;  // whose value is wanted
    u32 result;
};

static u32 exchange(Operation operation, u64 site, u32 value, u32 lane) {
    Thread& thread = *current;
    Warp& warp = *thread.warp;
    Exchange own{value, lane % WARP, 0};
    if (own.lane >= warp.threads && thread.block->launch->checks) {
        Report& report = begin_report(thread, Fault::absent_lane);
        report.operation = static_cast<u32>(operation);
        report.detail = own.lane;
        report.other_detail = thread.block->n_threads;
        fail(thread);
    }
    if (arrive(thread, operation, site, &own)) {
        for (u32 i = 0; i < warp.threads; ++i) {
            Exchange& to = *static_cast<Exchange*>(warp.first[i].operands);
            const u32 from = to.lane < warp.threads ? to.lane : i;
            to.result = static_cast<Exchange*>(warp.first[from].operands)->value;
        }
        release(warp, thread);
    }
    return own.result;
}

}  // namespace kernwright

using namespace kernwright;

extern "C" {

u32 kernwright_shuffle_xor(u32 value, i32 mask) {
    return exchange(Operation::shuffle_xor, KERNWRIGHT_SITE, value, current->lane ^ static_cast<u32>(mask));
}

u32 kernwright_shuffle(u32 value, i32 lane) {
    return exchange(Operation::shuffle, KERNWRIGHT_SITE, value, static_cast<u32>(lane));
}

u32 kernwright_ballot(i32 answer) {
    Thread& thread = *current;
    Warp& warp = *thread.warp;
    Exchange own{answer != 0, 0, 0};
    if (arrive(thread, Operation::ballot, KERNWRIGHT_SITE, &own)) {
        u32 bits = 0;
        for (u32 i = 0; i < warp.threads; ++i) bits |= static_cast<Exchange*>(warp.first[i].operands)->value << i;
        for (u32 i = 0; i < warp.threads; ++i) static_cast<Exchange*>(warp.first[i].operands)->result = bits;
        release(warp, thread);
    }
    return own.result;
}

// Orders the memory of the lanes of one warp: its time goes on.
void kernwright_warp_barrier() {
    Thread& thread = *current;
    Warp& warp = *thread.warp;
    if (arrive(thread, Operation::warp_barrier, KERNWRIGHT_SITE, nullptr)) {
        ++warp.clock[warp.number];
        release(warp, thread);
    }
}
}
