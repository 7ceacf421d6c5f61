// What the emulator is made of, from the outside in:
//
//   Launch    a grid of one kernel, its arguments, the live allocations. Lives as long as `kernwright_launch` runs.
//   Worker    a host thread that runs one cluster of blocks at a time, most often of one: its fibers' stacks, the blocks'
//             shared memory, and what is known of each byte of that (Shadow). Kept from launch to launch. Threads and
//             warps have numbers of their own throughout the cluster.
//   Block     one of them: its part of the threads and warps, its barriers.
//   Warp      a Rendezvous of 32 threads and a clock.
//   Thread    a fiber. It runs until it must wait for others; then the worker runs the next that can go on. A fiber
//             never changes its worker.
//
// A Rendezvous is a point where n threads leave operands and the last one computes for all: votes, shuffles, matrix
// products, the arrival of a warp at a barrier. A Copy is asynchronous: it is noted when issued and done when waited
// for, so that forgetting to wait is seen. The units of sm_90 (mbarriers, TMA, wgmma) are in model of their own, hopper.h. The
// first fault of a block is written into its Report; the block is then
// dropped where it stands, and blocks before it are finished, so that any number of workers reports the same.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "faults.h"

namespace kernwright {

constexpr u32 MOST_WARPS = MOST_THREADS / WARP;
constexpr u32 NAMED_BARRIERS = 16;
constexpr size_t STACK_BYTES = 384 * 1024;
// What must be free of it whenever a kernel enters a function: room for the largest frame that modules.rs allows, and
// for the library below it.
constexpr u64 STACK_RESERVE = (128 + 16) * 1024;

// Device memory handed in by the driver, sorted by address.
struct Allocation {
    u64 address;
    u64 bytes;
    u8* written;   // a byte for each byte: whether anybody wrote it; null for constants
    u64 constant;  // not to be written
};

// What is counted; known to counters.rs.
enum class Counted : u32 { shared, global, products, barriers };

// The counts of one place: how often a warp was there, what that took (wavefronts, sectors), and the least it can take.
struct CounterRow {
    u64 site;
    u32 what;  // Counted
    u32 unused;
    u64 requests;
    u64 units;
    u64 least;
};

// Room for the rows of a launch.
struct Counters {
    CounterRow* rows;
    u64 capacity;
    u64 n_rows;
};

struct Worker;

struct Launch {
    void (*call)(void* const*);
    void* const* arguments;
    Index grid;
    Index block;
    u64 shared_bytes;
    u64 module_base;
    u64 module_bytes;
    const Allocation* allocations;
    u64 n_allocations;
    u32 checks;
    u32 workers;
    u32 cluster;  // blocks that run together
    u32 unused;
    Counters* counters;  // null when nothing is counted
    // Whether two places of the module are the same line, inlined the same way.
    u32 (*same_place)(void* context, u64 one, u64 other);
    void* context;
};

// Who does something that others must be able to tell the end of, each with a time of its own: the warps of a block, the
// products of its warpgroups, the copies from shared memory that a warp began, the phases of its mbarriers.
constexpr u32 MOST_WARPGROUPS = MOST_WARPS / 4;
constexpr u32 MOST_MBARRIERS = 64;
constexpr u32 MOST_CLUSTER = 8;
constexpr u32 AGENT_PRODUCTS = MOST_WARPS;
constexpr u32 AGENT_COPIES = AGENT_PRODUCTS + MOST_WARPGROUPS;
constexpr u32 AGENT_MBARRIERS = AGENT_COPIES + MOST_WARPS;
constexpr u32 MOST_AGENTS = AGENT_MBARRIERS + MOST_MBARRIERS;

struct Block;
struct Warp;

}  // namespace kernwright

#include "hopper.h"

namespace kernwright {

// A copy under way from global to shared memory.
struct Copy {
    u8* to;
    const u8* from;  // null: zeros
    u64 group;
};

struct Thread {
    void* stack_pointer;
    u64 stack_low;
    Worker* worker;
    Block* block;
    Warp* warp;
    Index index;
    u32 number;
    u32 lane;
    bool has_returned;
    // Where it waits, what for, and what it brought.
    Operation operation;
    u32 detail;
    u64 site;
    void* operands;
    // Asynchronous copies, oldest first; `groups` have been committed.
    std::vector<Copy> copies;
    u64 groups;
    // Where its last access to global memory was found.
    const Allocation* last;
    // How often it showed its writes to the asynchronous units, and its mbarriers.
    u32 fences;
    u32 mbarrier_fences;
    // Copies from shared memory, oldest first; `bulk_groups` have been committed.
    std::vector<BulkCopy> bulk_copies;
    u64 bulk_groups;
    // Registers of products under way.
    std::vector<Registers> in_flight;
};

struct Rendezvous {
    Thread* first;  // its threads are neighbours
    u32 threads;
    u32 arrived;
    Thread* earliest;  // the first to arrive
};

struct Warp : Rendezvous {
    u32 number;
    // clock[a]: up to which of agent a's times this warp has seen everything; clock[number] is its own time now.
    u32 clock[MOST_AGENTS];
    // What the clock was at the last fence between ordinary accesses and the asynchronous units.
    u32 fenced[MOST_AGENTS];
    // Groups of products that were committed; whether registers may have changed since the last wgmma_fence.
    u32 product_groups;
    bool needs_fence;
    u32 cluster_phase;  // in which it arrived at the barrier of its cluster
};

struct NamedBarrier {
    u32 expected;  // threads; 0 while nobody is here
    u32 arrived;
    u32 waiting;  // bit w: warp w waits
    Thread* earliest;
    u32 joined[MOST_AGENTS];
};

struct Block {
    const Launch* launch;
    Worker* worker;
    Index index;
    u64 number;
    u32 rank;  // in its cluster
    u8* shared;
    u64 shared_bytes;
    u32 first_thread;
    u32 n_threads;
    u32 n_warps;
    u32 n_returned;
    Warp* warps;
    NamedBarrier barriers[NAMED_BARRIERS];
    Hopper* hopper;
};

// The barrier of a cluster, in phases.
struct ClusterBarrier {
    u32 phase;
    u32 arrived;  // warps
    u32 joined[MOST_AGENTS];
    u32 seen[MOST_AGENTS];
    std::vector<Thread*> waiting;  // the last lanes of warps
};

// Known of each byte of shared memory.
enum class ByteState : u8 { unwritten, written, in_flight, mbarrier };

// The last write to a granule of shared memory.
struct WriteMark {
    u32 time;  // 0: never
    u32 site;  // from the module's base
    u16 thread;  // or the number of the mbarrier at which a copy arrives
    u8 atomic;
    u8 is_copy;
    u32 fences;  // of the thread, before it
};

// A warp's last reads of a granule.
struct ReadMark {
    u32 time_and_lane;  // time * 64 + 32 (several lanes) + lane
    u32 site;
};

// The last read of a granule by an asynchronous unit.
struct UnitMark {
    u32 time;
    u32 site;
    u16 agent;
    u16 thread;  // who told it to
};

// Races are told by granules of two bytes, the smallest element in use.
constexpr u32 GRANULE = 2;

struct Shadow {
    std::vector<u8> state;
    std::vector<WriteMark> writes;
    std::vector<ReadMark> reads;  // granule by granule, one for each warp
    std::vector<UnitMark> unit_reads;  // granule by granule: products, copies; empty while nothing asked for them
    u32 n_warps = 0;
    u32 time = 0;  // everything up to here belongs to earlier blocks
};

// What one instruction of a warp touched.
struct AccessGroup {
    u32 lanes;
    u32 bytes;
    u64 address[WARP];
};

struct SiteGroups {
    u64 site = 0;
    u32 next[WARP] = {};  // how often each lane was here
    std::vector<AccessGroup> groups;
};

// A warp's accesses since it last met.
struct Gathered {
    std::vector<SiteGroups> sites;
    u32 n_sites = 0;
    u32 n_groups = 0;
};

struct Tally {
    Gathered warps[MOST_WARPS];
    std::vector<CounterRow> rows;
};

struct Worker {
    Worker();
    ~Worker();
    Worker(const Worker&) = delete;

    u8* stacks;
    size_t stack_stride;
    std::vector<Thread> threads;
    // Threads that can go on, first come first served.
    u32 ready[MOST_THREADS];
    u32 ready_first;
    u32 n_ready;
    void* home;  // the host thread's own stack pointer
    Thread* running;
    bool has_failed;
    Block blocks[MOST_CLUSTER];
    u32 n_blocks;
    u32 n_threads;  // of all of them
    u32 n_warps;
    u32 n_returned;
    Warp warps[MOST_WARPS];
    Hopper hopper;
    ClusterBarrier cluster;
    u8* shared;  // of all of them
    u64 shared_bytes;
    std::vector<u8> shared_room;
    Shadow shadow;
    Tally tally;
    std::vector<float> operands;  // of a warpgroup's product
    Report* report;
};

// fiber.cc
void start(Thread& thread, void (*entry)());
void switch_stacks(void** from, void* to);

// scheduler.cc
extern thread_local Thread* current __attribute__((tls_model("initial-exec")));
void wait(Thread& thread);
void resume(Thread& thread);
Report& begin_report(Thread& thread, Fault fault);
[[noreturn]] void fail(Thread& thread);

// warp.cc
bool arrive(Thread& thread, Operation operation, u64 site, void* operands);
void release(Rendezvous& rendezvous, Thread& last);
bool same_place(const Thread& thread, u64 one, u64 other);

// checks.cc
void check(Thread& thread, u64 address, u32 bytes, Access access, u64 site);
void begin_copy(Thread& thread, u8* to, const u8* from, u64 site);
void finish_copy(Thread& thread, u8* to, u64 site);
void check_row(Thread& thread, u64 address, Access access, u64 site);
void check_unit_read(Thread& thread, u64 address, u32 bytes, u32 agent, u32 time, const u32* seen, u64 site);
void check_unit_write(Thread& thread, u64 address, u32 bytes, u32 mbarrier, u32 time, u64 site);
void need_shared(Thread& thread, u64 address, u32 bytes, Access access);
void check_shared(Thread& thread, const Block& of, u64 address, u32 bytes, Access access, u64 site);
[[noreturn]] void refuse(Thread& thread, Fault fault, u64 address, u32 bytes, Access access, u64 detail = 0);
void reset_shadow(Worker& worker);

// barrier.cc
void join_clocks(Block& block, u32* to, const u32* from);

void make_mbarrier(Thread& thread, u64 address, u64 site);
void check_mbarrier(Thread& thread, u64 address, u64 site);
[[noreturn]] void refuse_copy_at(Thread& thread, const MbarrierModel& barrier, u64 address, u32 bytes, Access access);

// mbarrier.cc
MbarrierModel& need_mbarrier(Thread& thread, const void* at, u64 site);
u32 mbarrier_number(const Block& block, const MbarrierModel& barrier);
void note_load(Thread& thread, MbarrierModel& barrier, BulkCopy copy);
void arrive_at(Thread& thread, MbarrierModel& barrier, u32 bytes, bool arrives);
MbarrierModel* find_mbarrier(Block& block, u64 address);
void check_mbarriers(Thread& thread);

// tma.cc
void do_load(const BulkCopy& copy);
void check_bulk_copies(Thread& thread);

// wgmma.cc
void check_registers(Thread& thread, u64 address, u32 bytes, Access access);
bool arrive_as_warpgroup(Thread& thread, u32 group, Operation operation, u64 site, void* operands);
void release_warpgroup(Block& block, u32 group, Thread& last);

// warpgroup.cc
void use_hopper(Block& block);
void begin_hopper(Worker& worker);
u32 end_hopper(const Worker& worker);

// cluster.cc
void begin_cluster_barrier(Worker& worker);

// counters.cc
void count_access(Thread& thread, u64 address, u32 bytes, u64 site);
void count_meeting(Thread& thread, Operation operation, u64 site);
void count_block(Worker& worker);
void hand_over(Worker& worker, Counters& counters);

}  // namespace kernwright

#define KERNWRIGHT_SITE reinterpret_cast<u64>(__builtin_return_address(0))
