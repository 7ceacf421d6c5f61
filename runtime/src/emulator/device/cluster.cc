// Clusters: blocks that run together, their barrier, and each other's shared memory.
//
// An address of the cluster's shared memory has the block's rank, plus one, in its upper 8 bits, and the place in that
// block's memory below. What is done there is checked as if it were the thread's own; a block must not have ended.
#include "model.h"

#include <algorithm>

namespace kernwright {

constexpr u32 RANK = 24;

void begin_cluster_barrier(Worker& worker) {
    ClusterBarrier& barrier = worker.cluster;
    barrier.phase = 1;
    barrier.arrived = 0;
    barrier.waiting.clear();
    std::fill(barrier.joined, barrier.joined + MOST_AGENTS, worker.shadow.time);
    std::fill(barrier.seen, barrier.seen + MOST_AGENTS, worker.shadow.time);
}

[[noreturn]] static void refuse_rank(Thread& thread, u64 rank, u64 blocks) {
    Report& report = begin_report(thread, Fault::rank);
    report.detail = rank;
    report.other_detail = blocks;
    fail(thread);
}

// The block that an address names, and the address itself as the host has it.
static Block& block_at(Thread& thread, u32 address, u64& at) {
    Worker& worker = *thread.worker;
    const u32 rank = (address >> RANK) - 1;
    if (rank >= worker.n_blocks) refuse_rank(thread, rank, worker.n_blocks);
    Block& block = worker.blocks[rank];
    if (block.n_returned == block.n_threads) refuse_rank(thread, rank, 0);
    at = reinterpret_cast<u64>(block.shared) + (address & ((1u << RANK) - 1));
    return block;
}

static u64 touch_cluster(u32 address, Access access, u64 site) {
    Thread& thread = *current;
    u64 at = 0;
    const Block& block = block_at(thread, address, at);
    if (at - reinterpret_cast<u64>(block.shared) >= block.shared_bytes) refuse(thread, Fault::outside, at, 16, access);
    if (block.launch->checks) check_shared(thread, block, at, 16, access, site);
    return at;
}

struct ClusterWords {
    u64 of[2];
};

}  // namespace kernwright

using namespace kernwright;

extern "C" {

u32 kernwright_cluster_rank() { return current->block->rank; }

u32 kernwright_cluster_address(const void* own, u32 rank) {
    Thread& thread = *current;
    const u64 place = reinterpret_cast<u64>(own) - reinterpret_cast<u64>(thread.block->shared);
    if (place >= thread.block->shared_bytes) refuse(thread, Fault::not_shared, reinterpret_cast<u64>(own), 16, Access::read);
    if (rank >= thread.worker->n_blocks) refuse_rank(thread, rank, thread.worker->n_blocks);
    return (rank + 1) << RANK | static_cast<u32>(place);
}

ClusterWords kernwright_cluster_load_16(u32 from) {
    ClusterWords value;
    memcpy(&value, reinterpret_cast<const void*>(touch_cluster(from, Access::read, KERNWRIGHT_SITE)), 16);
    return value;
}

void kernwright_cluster_store_16(u32 to, u64 low, u64 high) {
    const ClusterWords value{{low, high}};
    memcpy(reinterpret_cast<void*>(touch_cluster(to, Access::write, KERNWRIGHT_SITE)), &value, 16);
}

void kernwright_cluster_mbarrier_arrive(u32 at) {
    Thread& thread = *current;
    const u64 site = KERNWRIGHT_SITE;
    u64 address = 0;
    Block& block = block_at(thread, at, address);
    MbarrierModel* const barrier = find_mbarrier(block, address);
    if (barrier == nullptr) refuse(thread, Fault::no_mbarrier, address, 8, Access::atomic);
    if (block.launch->checks) check_mbarrier(thread, address, site);
    arrive_at(thread, *barrier, 0, true);
}

void kernwright_cluster_arrive() {
    Thread& thread = *current;
    Block& block = *thread.block;
    use_hopper(block);
    if (!arrive(thread, Operation::cluster_arrive, KERNWRIGHT_SITE, nullptr)) return;
    Worker& worker = *thread.worker;
    ClusterBarrier& barrier = worker.cluster;
    Warp& warp = *thread.warp;
    join_clocks(block, barrier.joined, warp.clock);
    ++warp.clock[warp.number];
    warp.cluster_phase = barrier.phase;
    if (++barrier.arrived == worker.n_warps) {
        barrier.arrived = 0;
        ++barrier.phase;
        join_clocks(block, barrier.seen, barrier.joined);
        for (Thread* const one : barrier.waiting) resume(*one);
        barrier.waiting.clear();
    }
    release(warp, thread);
}

void kernwright_cluster_wait() {
    Thread& thread = *current;
    if (!arrive(thread, Operation::cluster_wait, KERNWRIGHT_SITE, nullptr)) return;
    ClusterBarrier& barrier = thread.worker->cluster;
    Warp& warp = *thread.warp;
    while (barrier.phase <= warp.cluster_phase) {
        barrier.waiting.push_back(&thread);
        wait(thread);
    }
    join_clocks(*thread.block, warp.clock, barrier.seen);
    release(warp, thread);
}
}
