// Mbarriers: phases that end when enough threads arrived and enough bytes came, and the fences of the asynchronous units.
//
// Their state is kept beside shared memory, whose bytes there are nobody's to touch. Copies that are to arrive at a barrier
// are done when a thread waits there: as late as a kernel may count on. Who waited for a phase has seen what those who
// arrived did before, and the phase itself: `checks.cc` asks for that of the bytes which copies brought.
#include "model.h"

#include <algorithm>

namespace kernwright {

constexpr u32 MOST_ARRIVALS = (1u << 20) - 1;

MbarrierModel* find_mbarrier(Block& block, u64 address) {
    Hopper& hopper = *block.hopper;
    for (u32 i = 0; i < hopper.n_mbarriers; ++i) {
        if (hopper.mbarriers[i].address == address) return &hopper.mbarriers[i];
    }
    return nullptr;
}

u32 mbarrier_number(const Block& block, const MbarrierModel& barrier) {
    return static_cast<u32>(&barrier - block.hopper->mbarriers);
}

// The barrier there, which this thread must have seen made.
MbarrierModel& need_mbarrier(Thread& thread, const void* at, u64 site) {
    const u64 address = reinterpret_cast<u64>(at);
    Block& block = *thread.block;
    need_shared(thread, address, 8, Access::atomic);
    MbarrierModel* const barrier = find_mbarrier(block, address);
    if (barrier == nullptr) refuse(thread, Fault::no_mbarrier, address, 8, Access::atomic);
    if (block.launch->checks) check_mbarrier(thread, address, site);
    return *barrier;
}

[[noreturn]] static void refuse_count(Thread& thread, Fault fault, const MbarrierModel& barrier, u64 found, u64 allowed) {
    Report& report = begin_report(thread, fault);
    report.address = barrier.address;
    report.bytes = 8;
    report.access = static_cast<u32>(Access::atomic);
    report.detail = found;
    report.other_detail = allowed;
    report.other_thread = thread.worker->threads[barrier.maker].index;
    report.other_site = barrier.site;
    fail(thread);
}

// Ends the phase if nothing is missing, and lets go who waits for it.
static void end_phase(Thread& thread, MbarrierModel& barrier) {
    if (barrier.missing > 0 || barrier.bytes != 0) return;
    Block& block = *thread.block;
    barrier.missing = barrier.count;
    ++barrier.phase;
    join_clocks(block, barrier.seen, barrier.joined);
    std::fill(barrier.joined, barrier.joined + MOST_AGENTS, block.hopper->base);
    for (Thread* const one : barrier.waiting) resume(*one);
    barrier.waiting.clear();
}

// Does the copies that are to arrive here.
static void settle(Thread& thread, MbarrierModel& barrier) {
    for (const BulkCopy& copy : barrier.copies) {
        do_load(copy);
        barrier.bytes -= copy.bytes;
    }
    barrier.copies.clear();
    if (barrier.bytes < 0 && barrier.missing == 0) {
        refuse_count(thread, Fault::mbarrier_bytes, barrier, static_cast<u64>(-barrier.bytes), 0);
    }
    end_phase(thread, barrier);
}

// A copy was told to arrive here.
void note_load(Thread& thread, MbarrierModel& barrier, BulkCopy copy) {
    barrier.issuer = thread.number;
    barrier.issuer_site = copy.site;
    barrier.copies.push_back(std::move(copy));
    if (!barrier.waiting.empty()) settle(thread, barrier);
}

void arrive_at(Thread& thread, MbarrierModel& barrier, u32 bytes, bool arrives) {
    Block& block = *thread.block;
    Warp& warp = *thread.warp;
    if (bytes > MOST_ARRIVALS) refuse_count(thread, Fault::mbarrier_count, barrier, bytes, MOST_ARRIVALS);
    if (arrives && barrier.missing == 0) settle(thread, barrier);
    barrier.bytes += bytes;
    if (!arrives) return;
    if (barrier.missing == 0) refuse_count(thread, Fault::mbarrier_full, barrier, barrier.count, 0);
    --barrier.missing;
    join_clocks(block, barrier.joined, warp.clock);
    ++warp.clock[warp.number];
    if (barrier.copies.empty() || !barrier.waiting.empty()) settle(thread, barrier);
}

static bool has_ended(const MbarrierModel& barrier, u32 parity) { return (barrier.phase & 1) != parity; }

static void see(Thread& thread, const MbarrierModel& barrier) {
    Block& block = *thread.block;
    join_clocks(block, thread.warp->clock, barrier.seen);
    u32& own = thread.warp->clock[AGENT_MBARRIERS + mbarrier_number(block, barrier)];
    own = std::max(own, block.hopper->base + barrier.phase);
}

static MbarrierModel& need_parity(Thread& thread, const void* at, u32 parity, u64 site) {
    MbarrierModel& barrier = need_mbarrier(thread, at, site);
    if (parity > 1) refuse_count(thread, Fault::mbarrier_count, barrier, parity, 1);
    return barrier;
}

// Lets every other thread run that can: one that relies on this wait without taking part is then found.
static void yield(Thread& thread) {
    resume(thread);
    wait(thread);
}

// What is wrong with the block's barriers when its last thread has returned; told of who began it.
void check_mbarriers(Thread& thread) {
    Hopper& hopper = *thread.block->hopper;
    for (u32 i = 0; i < hopper.n_mbarriers; ++i) {
        const MbarrierModel& barrier = hopper.mbarriers[i];
        const bool is_copied = !barrier.copies.empty();
        if (!is_copied && barrier.bytes <= 0) continue;
        Report& report = begin_report(thread, is_copied ? Fault::unwaited_copy : Fault::mbarrier_open);
        report.n_frames = 1;
        report.frames[0] = is_copied ? barrier.copies.front().site : barrier.site;
        report.thread = thread.worker->threads[is_copied ? barrier.issuer : barrier.maker].index;
        report.address = is_copied ? reinterpret_cast<u64>(barrier.copies.front().shared) : barrier.address;
        report.bytes = is_copied ? barrier.copies.front().bytes : 8;
        report.detail = static_cast<u64>(barrier.bytes);
        fail(thread);
    }
}

}  // namespace kernwright

using namespace kernwright;

extern "C" {

u32 kernwright_shared_address(const void* of) {
    return static_cast<u32>(static_cast<const u8*>(of) - current->block->shared);
}

void kernwright_mbarrier_init(void* at, u32 arrivals) {
    Thread& thread = *current;
    Block& block = *thread.block;
    Hopper& hopper = *block.hopper;
    const u64 site = KERNWRIGHT_SITE;
    const u64 address = reinterpret_cast<u64>(at);
    need_shared(thread, address, 8, Access::write);
    if (const MbarrierModel* const old = find_mbarrier(block, address)) {
        refuse_count(thread, Fault::mbarrier_again, *old, 0, 0);
    }
    if (hopper.n_mbarriers == MOST_MBARRIERS) refuse(thread, Fault::mbarrier_again, address, 8, Access::write, MOST_MBARRIERS);
    if (block.launch->checks) make_mbarrier(thread, address, site);
    use_hopper(block);
    MbarrierModel& barrier = hopper.mbarriers[hopper.n_mbarriers++];
    barrier.address = address;
    barrier.count = barrier.missing = arrivals;
    barrier.bytes = 0;
    barrier.phase = 0;
    barrier.maker = thread.number;
    barrier.site = site;
    barrier.fences = thread.fences;
    barrier.mbarrier_fences = thread.mbarrier_fences;
    barrier.copies.clear();
    barrier.waiting.clear();
    std::fill(barrier.joined, barrier.joined + MOST_AGENTS, hopper.base);
    std::fill(barrier.seen, barrier.seen + MOST_AGENTS, hopper.base);
    if (arrivals == 0 || arrivals > MOST_ARRIVALS) {
        refuse_count(thread, Fault::mbarrier_count, barrier, arrivals, MOST_ARRIVALS);
    }
}

void kernwright_mbarrier_arrive(void* at, u32 bytes, i32 arrives) {
    Thread& thread = *current;
    arrive_at(thread, need_mbarrier(thread, at, KERNWRIGHT_SITE), bytes, arrives != 0);
}

i32 kernwright_mbarrier_try_wait(void* at, u32 parity) {
    Thread& thread = *current;
    MbarrierModel& barrier = need_parity(thread, at, parity, KERNWRIGHT_SITE);
    yield(thread);
    if (!has_ended(barrier, parity)) settle(thread, barrier);
    if (!has_ended(barrier, parity)) return 0;
    see(thread, barrier);
    return 1;
}

void kernwright_mbarrier_wait(void* at, u32 parity) {
    Thread& thread = *current;
    const u64 site = KERNWRIGHT_SITE;
    MbarrierModel& barrier = need_parity(thread, at, parity, site);
    yield(thread);
    if (!has_ended(barrier, parity)) settle(thread, barrier);
    while (!has_ended(barrier, parity)) {
        thread.operation = Operation::mbarrier_wait;
        thread.site = site;
        thread.operands = &barrier;
        barrier.waiting.push_back(&thread);
        wait(thread);
        thread.operation = Operation::nothing;
    }
    see(thread, barrier);
}

// Shows this thread's writes, and what its warp has seen of others', to the asynchronous units; or only its mbarriers.
void kernwright_proxy_fence(i32 only_mbarriers) {
    Thread& thread = *current;
    Block& block = *thread.block;
    ++thread.mbarrier_fences;
    if (only_mbarriers) return;
    ++thread.fences;
    use_hopper(block);
    memcpy(thread.warp->fenced, thread.warp->clock, sizeof thread.warp->fenced);
    // Its own warp's writes are its own to show, lane by lane.
    thread.warp->fenced[thread.warp->number] = block.hopper->base;
}
}
